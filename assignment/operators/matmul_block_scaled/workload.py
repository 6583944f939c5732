"""Square products of block-scaled float8 matrices on a GPU, beside cuBLAS in bfloat16 and PyTorch's own of these."""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.operators.workloads import CHECKED_ROWS, Check, Panel, Spec, Workload, nothing_compiled
from tests import compare
from tests.matmul_block_scaled import models
from tests.matmul_block_scaled.oracle import BLOCK

SIZES = [1024 << i for i in range(4)]
FLOAT8 = torch.float8_e4m3fn
PEERS = {"matmul_block_scaled": ("cublas_in_bfloat16", "scaled_mm", "compiled", "naive")}
TITLES = {"cublas_in_bfloat16": "cuBLAS, bfloat16", "scaled_mm": "_scaled_mm"}
HEADINGS = {"cublas_in_bfloat16": "cuBLAS,\nbf16", "scaled_mm": "_scaled\n_mm"}
PANELS = (
    Panel(
        title="Square products of block-scaled float8 matrices",
        functions=("matmul_block_scaled",),
        size="n",
        size_in_words="rows and columns",
        value="tflops",
        value_in_words="TFLOP/s",
    ),
)
compiled = nothing_compiled


def workload(m: int, k: int, n: int, dtype: torch.dtype = FLOAT8, backward: bool = False) -> Workload:
    """a of m × k, b of n × k."""
    k_blocks = -(-k // BLOCK)
    inputs = {
        "a": Spec(dtype, (m, k)),
        "a_scales": Spec(torch.float32, (m, k_blocks)),
        "b": Spec(dtype, (n, k)),
        "b_scales": Spec(torch.float32, (-(-n // BLOCK), k_blocks)),
    }
    outputs = {"c": Spec(torch.bfloat16, (m, n))}
    return Workload(
        "matmul_block_scaled", inputs, outputs, operations=2.0 * m * k * n, hand_on=make_scales, picked=pick
    )


def make_scales(named: dict[str, Tensor]) -> None:
    """Make numbers of both signs scales, which have one."""
    for name in ("a_scales", "b_scales"):
        named[name].abs_()


def sweep() -> list[Workload]:
    """The sizes of a bench."""
    return [workload(n, n, n) for n in SIZES]


def pick(work: Workload, named: dict[str, Tensor], chance: random.Random, is_strict: bool) -> Check:
    """Return a check of c where some rows meet the columns of some blocks of b."""
    a, a_scales, b, b_scales = named.values()
    rows = sorted(chance.sample(range(len(a)), min(len(a), CHECKED_ROWS // (1 if is_strict else 4))))
    blocks = sorted(chance.sample(range(len(b_scales)), min(len(b_scales), 2)))
    columns = [column for block in blocks for column in range(block * BLOCK, min(len(b), (block + 1) * BLOCK))]
    of_a, of_b = (x.view(torch.uint8)[some].view(FLOAT8) for x, some in ((a, rows), (b, columns)))
    own = of_a.cpu(), a_scales[rows].cpu(), of_b.cpu(), b_scales[blocks].cpu()

    def check(results: Sequence[Tensor]) -> float:
        return compare.worst_margin(results[0][rows][:, columns].cpu(), models.matmul_block_scaled(*own))

    return check
