"""Products in groups on a GPU, of 64 experts, beside a loop of cuBLAS's products and PyTorch's grouped product."""

import random
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from assignment.operators.workloads import CHECKED_ROWS, Check, Panel, Spec, Workload, nothing_compiled
from tests import compare
from tests.grouped_matmul import models, oracle

EXPERTS, K, N = 64, 4096, 1536
ROWS = (16, 64, 128, 512)  # of each expert
FUNCTIONS = ("grouped_matmul", "grouped_matmul_backward")
SOME = 64  # columns of a result that are looked at
LOOKED_AT = 2  # experts whose weight gradient is
PEERS = dict.fromkeys(FUNCTIONS, ("cublas_loop", "grouped_mm", "naive"))
TITLES = {"cublas_loop": "a loop of cuBLAS's products", "grouped_mm": "torch._grouped_mm"}
HEADINGS = {"cublas_loop": "cuBLAS,\nlooped", "grouped_mm": "grouped\n_mm"}
PANELS = (
    Panel(
        title=f"{EXPERTS} experts, {K:,} × {N:,}: forward (full lines), backward (broken)",
        functions=FUNCTIONS,
        size="n",
        size_in_words="rows of all experts",
        value="microseconds",
        value_in_words="µs a call",
    ),
)
compiled = nothing_compiled


def workload(sizes: Sequence[int], behind: int, k: int, n: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """Groups of these sizes, and rows behind the last, of k; weight of k × n for each."""
    tokens = sum(sizes) + behind
    x, weight, y = Spec(dtype, (tokens, k)), Spec(dtype, (len(sizes), k, n)), Spec(dtype, (tokens, n))
    inputs = {"x": x, "weight": weight, "group_sizes": Spec(torch.int32, (len(sizes),), tuple(sizes))}
    operations = 2.0 * sum(sizes) * k * n
    if not backward:
        return Workload("grouped_matmul", inputs, {"y": y}, operations=operations, picked=pick)
    outputs = {"grad_x": x, "grad_weight": weight}
    return Workload("grouped_matmul_backward", {"grad_y": y} | inputs, outputs, operations=2 * operations, picked=pick)


def sweep() -> list[Workload]:
    """The sizes of a bench."""
    return [
        workload([rows] * EXPERTS, 0, K, N, torch.bfloat16, backward) for backward in (False, True) for rows in ROWS
    ]


def pick(work: Workload, named: dict[str, Tensor], chance: random.Random, is_strict: bool) -> Check:
    """Return a check of y, or grad_x, where some rows and columns meet, and of a part of some experts' grad_weight."""
    fewer = 1 if is_strict else 4
    sizes, is_backward = named["group_sizes"].cpu(), "grad_y" in named
    x, matrices = (named["grad_y"], named["weight"].mT) if is_backward else (named["x"], named["weight"])
    rows, columns = _some(chance, len(x), CHECKED_ROWS // fewer), _some(chance, matrices.shape[-1], SOME)
    experts, n_rows = torch.arange(len(sizes)).repeat_interleave(sizes)[rows].unique_consecutive(return_counts=True)
    wanted = [models.of_rows(x[rows].cpu(), matrices[..., columns].cpu()[experts], n_rows)]
    parts = [partial(_where, rows, columns)]
    if is_backward:
        looked_at, terms = _some(chance, len(sizes), LOOKED_AT), _some(chance, named["x"].shape[-1], SOME)
        groups = [oracle.groups(sizes)[expert] for expert in looked_at]
        columns = _some(chance, x.shape[-1], SOME)
        own, gradient = (
            torch.cat([tensor[rows] for rows in groups]).cpu() for tensor in (named["x"][:, terms], x[:, columns])
        )
        wanted.append(models.of_groups(own, gradient, sizes[looked_at]))
        parts.append(partial(_where, terms, columns, experts=looked_at))

    def check(results: Sequence[Tensor]) -> float:
        came = tuple(part(result).cpu() for part, result in zip(parts, results, strict=True))
        return compare.worst_margin(came if is_backward else came[0], dict(zip(work.outputs, wanted, strict=True)))

    return check


def _some(chance: random.Random, n: int, most: int) -> list[int]:
    return sorted(chance.sample(range(n), min(n, most)))


def _where(rows: list[int], columns: list[int], result: Tensor, experts: list[int] | None = None) -> Tensor:
    """Return the elements where rows and columns meet, of these experts if there are any."""
    return (result if experts is None else result[experts])[..., rows, :][..., columns]
