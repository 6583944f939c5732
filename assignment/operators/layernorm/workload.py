"""LayerNorm on a GPU: half a GB of x at every width, beside a copy and three peers."""

import torch
from torch import Tensor

from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload, nothing_compiled, panel_of_rows

EPS = 1e-5  # the default
WIDTHS = [1024 << i for i in range(6)]
# BEGIN STAFF
FROM_D = {"hopper": 8192}  # where the peer begins
# END STAFF
TITLES = {"torch_layer_norm": "F.layer_norm"}
PEERS = {
    "layernorm_forward": (COPYING, "naive", "compiled", "torch_layer_norm"),
    "layernorm_backward": (
        COPYING, "naive", "compiled", "torch_layer_norm",
        # BEGIN STAFF
        "hopper",
        # END STAFF
    ),
}  # fmt: skip
PANELS = (panel_of_rows("LayerNorm", "layernorm"),)
compiled = nothing_compiled


def workload(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """Return the work on x of n_rows × d."""
    x, vector, per_row = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), Spec(torch.float32, (n_rows,))
    if backward:
        inputs = {"grad_y": x, "x": x, "weight": vector, "mean": per_row, "rstd": per_row}
        outputs = {"grad_x": x, "grad_weight": vector, "grad_bias": vector}
        return Workload("layernorm_backward", inputs, outputs, arithmetic=12.0 * n_rows * d, hand_on=hand_on)
    inputs, outputs = {"x": x, "weight": vector, "bias": vector}, {"y": x, "mean": per_row, "rstd": per_row}
    return Workload("layernorm_forward", inputs, outputs, arithmetic=8.0 * n_rows * d)


def hand_on(named: dict[str, Tensor], normalized: str = "x") -> None:
    """Write the mean and rstd of a forward pass, without a copy of x in float32: its numbers are near 0."""
    x = named[normalized]
    mean = x.mean(-1, dtype=torch.float32)
    mean_square = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32).square() / x.shape[-1]
    named["mean"].copy_(mean)
    named["rstd"].copy_((mean_square - mean.square() + EPS).rsqrt())


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    return [workload(ELEMENTS // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
