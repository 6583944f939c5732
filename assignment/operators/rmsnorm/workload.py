"""RMSNorm on a GPU: half a GB of x at every width, beside a copy and three peers."""

import torch
from torch import Tensor

from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload, panel_of_rows

EPS = 1e-5  # the default
COMPILED = (128, 4096)  # rows and columns
WIDTHS = [1024 << i for i in range(6)]
PEERS = {  # Liger has no backward pass that can be called by itself
    "rmsnorm_forward": (COPYING, "naive", "compiled", "torch_norm", "liger"),
    "rmsnorm_backward": (
        COPYING, "naive", "compiled", "torch_norm",
        # BEGIN STAFF
        "hopper",
        # END STAFF
    ),
}  # fmt: skip
# BEGIN STAFF
FROM_D = {"hopper": 8192}  # where the peer begins
# END STAFF
TITLES, HEADINGS = {"torch_norm": "F.rms_norm", "liger": "Liger"}, {"torch_norm": "F.rms_\nnorm"}
PACKAGES = ("liger-kernel",)
PANELS = (panel_of_rows("RMSNorm", "rmsnorm"),)


def workload(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """Return the work on x of n_rows × d."""
    x, weight, rstd = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(torch.float32, (n_rows,))
    if backward:
        inputs, outputs = {"grad_y": x, "x": x, "weight": weight, "rstd": rstd}, {"grad_x": x, "grad_weight": weight}
        return Workload("rmsnorm_backward", inputs, outputs, arithmetic=9.0 * n_rows * d, hand_on=hand_on)
    return Workload("rmsnorm_forward", {"x": x, "weight": weight}, {"y": x, "rstd": rstd}, arithmetic=4.0 * n_rows * d)


def hand_on(named: dict[str, Tensor]) -> None:
    """Write the rstd of a forward pass."""
    x = named["x"]
    norm = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32)
    named["rstd"].copy_((norm.square() / x.shape[-1] + EPS).rsqrt())


def compiled() -> list[tuple[Workload, bool]]:
    """Return what is compiled for GPUs that are not there, and whether it is graded."""
    dtypes = (torch.float32, torch.bfloat16)
    return [(workload(*COMPILED, dtype, back), True) for dtype in dtypes for back in (False, True)]


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    return [workload(ELEMENTS // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
