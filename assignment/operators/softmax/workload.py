"""Softmax on a GPU: half a GB of x at every width, beside a copy and three peers."""

import torch
from torch import Tensor

from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload, nothing_compiled, panel_of_rows

WIDTHS = [1024 << i for i in range(7)]
PEERS = dict.fromkeys(("softmax_forward", "softmax_backward"), (COPYING, "naive", "compiled", "torch_softmax"))
TITLES = {"torch_softmax": "F.softmax"}
PANELS = (panel_of_rows("Softmax", "softmax"),)
compiled = nothing_compiled


def workload(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False) -> Workload:
    """Return the work on x of n_rows × d."""
    x = Spec(dtype, (n_rows, d))
    if backward:
        inputs, outputs = {"grad_y": x, "y": x}, {"grad_x": x}
        return Workload("softmax_backward", inputs, outputs, arithmetic=4.0 * n_rows * d, hand_on=hand_on)
    return Workload("softmax_forward", {"x": x}, {"y": x}, arithmetic=5.0 * n_rows * d)


def hand_on(named: dict[str, Tensor]) -> None:
    """Make y that of a forward pass: of the numbers that it holds, so that nothing else tells of it."""
    named["y"].copy_(torch.softmax(named["y"], -1))


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    return [workload(ELEMENTS // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
