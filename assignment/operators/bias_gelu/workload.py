"""Bias and GELU on a GPU: half a GB of x at every width, beside a copy and two peers."""

import torch

from assignment.operators.workloads import COPYING, ELEMENTS, Spec, Workload, nothing_compiled, panel_of_rows

WIDTHS = [1024 << i for i in range(6)]
PEERS = dict.fromkeys(("bias_gelu_forward", "bias_gelu_backward"), (COPYING, "naive", "compiled"))
PANELS = (panel_of_rows("Bias and GELU", "bias_gelu"),)
compiled = nothing_compiled


def workload(n_rows: int, d: int, dtype: torch.dtype, backward: bool = False, approximate: str = "none") -> Workload:
    """Return the work on x of n_rows × d."""
    x, bias, options = Spec(dtype, (n_rows, d)), Spec(dtype, (d,)), {"approximate": approximate}
    if backward:
        inputs, outputs = {"grad_y": x, "x": x, "bias": bias}, {"grad_x": x, "grad_bias": bias}
        return Workload("bias_gelu_backward", inputs, outputs, options, arithmetic=25.0 * n_rows * d)
    return Workload("bias_gelu_forward", {"x": x, "bias": bias}, {"y": x}, options, arithmetic=15.0 * n_rows * d)


def sweep() -> list[Workload]:
    """Return the sizes of a bench."""
    return [workload(ELEMENTS // d, d, torch.bfloat16, back) for back in (False, True) for d in WIDTHS]
