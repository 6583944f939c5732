"""Weighted sum on a GPU: half a GB of x, beside a copy and PyTorch's own words."""

import torch

from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload

COMPILED = (128, 4096)  # rows and columns
PEERS = dict.fromkeys(("weighted_sum_forward", "weighted_sum_backward"), (COPYING, "naive", "compiled"))


def workload(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """Return the work on x of n_rows × d."""
    x, weight, y = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(dtype, (n_rows,))
    if backward:
        inputs, outputs = {"grad_y": y, "x": x, "weight": weight}, {"grad_x": x, "grad_weight": weight}
        return Workload("weighted_sum_backward", inputs, outputs, arithmetic=3.0 * n_rows * d)
    return Workload("weighted_sum_forward", {"x": x, "weight": weight}, {"y": y}, arithmetic=2.0 * n_rows * d)


def compiled() -> list[tuple[Workload, bool]]:
    """Return what is compiled for GPUs that are not there, and whether it is graded."""
    dtypes = (torch.float32, torch.bfloat16)
    return [(workload(*COMPILED, dtype, back), True) for dtype in dtypes for back in (False, True)]


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    dtypes = (torch.bfloat16, torch.float32)
    return [workload(ELEMENTS // 4096, 4096, dtype, back) for back in (False, True) for dtype in dtypes]
