"""Square linear layers and their GELU on a GPU, beside cuBLAS with a GELU after it."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.operators.workloads import CHECKED_ROWS, Check, Panel, Spec, Workload, nothing_compiled
from tests import compare
from tests.linear_gelu import models

SIZES = [1024 << i for i in range(4)]
COLUMNS = 256  # of the result that are looked at: of every tile some
PEERS = {"linear_gelu": ("cublas_gelu", "compiled", "naive")}
TITLES = {"cublas_gelu": "cuBLAS, then GELU"}
PANELS = (
    Panel(
        title="Square linear layers and their GELU",
        functions=("linear_gelu",),
        size="n",
        size_in_words="rows and columns",
        value="tflops",
        value_in_words="TFLOP/s",
    ),
)
compiled = nothing_compiled


def workload(m: int, k: int, n: int, dtype: torch.dtype, backward: bool = False, approximate: str = "none") -> Workload:
    """x of m × k, weight of n × k."""
    inputs = {"x": Spec(dtype, (m, k)), "weight": Spec(dtype, (n, k)), "bias": Spec(dtype, (n,))}
    options = {"approximate": approximate}
    return Workload("linear_gelu", inputs, {"y": Spec(dtype, (m, n))}, options, operations=2.0 * m * k * n, picked=pick)


def sweep() -> list[Workload]:
    """The sizes of a bench."""
    return [workload(n, n, n, torch.bfloat16) for n in SIZES]


def pick(work: Workload, named: dict[str, Tensor], chance: random.Random, is_strict: bool) -> Check:
    """Return a check of y where some rows and columns meet."""
    x, weight, bias = named.values()
    rows = sorted(chance.sample(range(len(x)), min(len(x), CHECKED_ROWS // (1 if is_strict else 4))))
    columns = sorted(chance.sample(range(len(weight)), min(len(weight), COLUMNS)))
    own = x[rows].cpu(), weight[columns].cpu(), bias[columns].cpu()

    def check(results: Sequence[Tensor]) -> float:
        return compare.worst_margin(results[0][rows][:, columns].cpu(), models.linear_gelu(*own, **work.options))

    return check
