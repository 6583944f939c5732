"""Softmaxes whose work is not that of a kernel."""

from assignment.attacks.cheats import COPY, Cheat

EVIDENCE = r"(?s)kernel.*cs336_kernels/practice/softmax\.py:\d+"
CHEATS = [
    Cheat(
        "softmax_by_torch",
        "softmax",
        """
def softmax_forward(x):
    return torch.softmax(x, -1)

def softmax_backward(grad_y, y):
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)

def softmax(x):
    return torch.softmax(x, -1)
""",
        evidence=r"cs336_kernels/practice/softmax\.py:\d+",
    ),
    Cheat(
        "softmax_by_torch_copied_by_a_kernel",
        "softmax",
        COPY
        + """
def softmax_forward(x):
    return copied(torch.softmax(x, -1))

def softmax_backward(grad_y, y):
    return copied(y * (grad_y - (grad_y * y).sum(-1, keepdim=True)))

def softmax(x):
    return softmax_forward(x)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "softmax_with_torchs_maximum",
        "softmax",
        """
@triton.jit
def _exp(x_ptr, top_ptr, y_ptr, n, SIZE: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf")).to(tl.float32)
    powers = tl.exp(x - tl.load(top_ptr + row).to(tl.float32))
    tl.store(y_ptr + row * n + cols, powers / tl.sum(powers, 0), mask=cols < n)

def softmax_forward(x):
    rows, y = x.reshape(-1, x.shape[-1]).contiguous(), torch.empty(x.shape, dtype=x.dtype)
    if y.numel():
        _exp[(len(rows),)](rows, rows.amax(-1), y, x.shape[-1], SIZE=triton.next_power_of_2(x.shape[-1]))
    return y
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
