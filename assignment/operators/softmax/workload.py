"""Softmax on a GPU: half a GB of x at every width, beside a copy and three peers."""

import torch
from torch import Tensor

from assignment.operators.workloads import COPYING, ELEMENTS, Panel, Spec, Workload

WIDTHS = [1024 << i for i in range(7)]
PEERS = {
    "softmax_forward": (COPYING, "naive", "compiled", "torch_softmax"),
    "softmax_backward": (COPYING, "naive", "compiled", "torch_softmax"),
}
TITLES = {"torch_softmax": "F.softmax"}
PANELS = (
    Panel(
        title="Softmax: forward (full lines), backward (broken)",
        functions=("softmax_forward", "softmax_backward"),
        size="d",
        size_in_words="width d",
        value="tb_per_s",
        value_in_words="TB/s",
    ),
)


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


def compiled() -> list[tuple[Workload, bool]]:
    """Return what is compiled for GPUs that are not there: practice is compiled by its own check."""
    return []


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    return [workload(ELEMENTS // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
