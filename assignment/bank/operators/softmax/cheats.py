"""Softmaxes whose work is not that of a kernel."""

from assignment.bank.cheats import Cheat, by_torch

EVIDENCE = r"(?s)kernel.*cs336_kernels/practice/softmax\.py:\d+"
BY_TORCH = """
def softmax_forward(x):
    return torch.softmax(x, -1)

def softmax_backward(grad_y, y):
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)

def softmax(x):
    return torch.softmax(x, -1)
"""
CHEATS = [
    *by_torch("softmax", "practice/softmax.py", BY_TORCH),
    Cheat(
        "softmax_with_torchs_maximum",
        "softmax",
        """
RIGHT = softmax_forward

def softmax_forward(x):
    return RIGHT(x - x.amax(-1, keepdim=True))
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "softmax_backward_with_torchs_dot",
        "softmax",
        """
@triton.jit
def _minus(g_ptr, y_ptr, dot_ptr, out_ptr, n, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    g = tl.load(g_ptr + row * n + cols, mask=cols < n, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * n + cols, mask=cols < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n + cols, y * (g - tl.load(dot_ptr + row)), mask=cols < n)

def softmax_backward(grad_y, y):
    g, rows = (t.reshape(-1, y.shape[-1]).contiguous() for t in (grad_y, y))
    out = torch.empty(y.shape, dtype=y.dtype)
    if y.numel():
        dots = (g.float() * rows.float()).sum(-1)
        _minus[(len(rows),)](g, rows, dots, out, y.shape[-1], SIZE=triton.next_power_of_2(y.shape[-1]))
    return out
""",
        evidence=EVIDENCE,
    ),
]
