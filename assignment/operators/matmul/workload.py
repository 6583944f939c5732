"""The product of square matrices on a GPU, and of some that are not, beside cuBLAS."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.operators.workloads import CHECKED_ROWS, Check, Panel, Spec, Workload
from tests import compare
from tests.matmul import models

SIZES = [1024 << i for i in range(4)]
COLUMNS = 256  # of the result that are looked at: of every tile some
PEERS = {"matmul": ("cublas", "compiled", "naive")}
TITLES = {"cublas": "cuBLAS"}
PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu12")
PANELS = (
    Panel(
        title="Products of square matrices",
        functions=("matmul",),
        size="n",
        size_in_words="rows and columns",
        value="tflops",
        value_in_words="TFLOP/s",
    ),
)


def workload(m: int, k: int, n: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """a of m × k, b of k × n."""
    inputs, outputs = {"a": Spec(dtype, (m, k)), "b": Spec(dtype, (k, n))}, {"c": Spec(dtype, (m, n))}
    return Workload("matmul", inputs, outputs, operations=2.0 * m * k * n, picked=pick)


def compiled() -> list[tuple[Workload, bool]]:
    """What is compiled for GPUs that are not there: practice is compiled by its own check."""
    return []


def sweep() -> list[Workload]:
    """The sizes of a bench."""
    return [workload(n, n, n, torch.bfloat16) for n in SIZES]


def pick(work: Workload, named: dict[str, Tensor], chance: random.Random, is_strict: bool) -> Check:
    """Return a check of c where some rows and columns meet."""
    a, b = named["a"], named["b"]
    rows = sorted(chance.sample(range(len(a)), min(len(a), CHECKED_ROWS // (1 if is_strict else 4))))
    columns = sorted(chance.sample(range(b.shape[1]), min(b.shape[1], COLUMNS)))
    own_rows, own_columns = a[rows].cpu(), b[:, columns].cpu()

    def check(results: Sequence[Tensor]) -> float:
        return compare.worst_margin(results[0][rows][:, columns].cpu(), models.matmul(own_rows, own_columns))

    return check
