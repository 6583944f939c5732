"""Bias and GELU whose work is not that of a kernel."""

from assignment.attacks.cheats import COPY, LOSES, Cheat

EVIDENCE = r"(?s)kernel.*cs336_kernels/practice/bias_gelu\.py:\d+"
CHEATS = [
    Cheat(
        "bias_gelu_by_torch",
        "bias_gelu",
        """
def bias_gelu_forward(x, bias, approximate="none"):
    return F.gelu(x + bias, approximate=approximate)

def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    grad_x = torch.ops.aten.gelu_backward(grad_y, x + bias, approximate=approximate)
    return grad_x, grad_x.reshape(-1, len(bias)).sum(0)

def bias_gelu(x, bias, approximate="none"):
    return F.gelu(x + bias, approximate=approximate)
""",
        evidence=r"cs336_kernels/practice/bias_gelu\.py:\d+",
    ),
    Cheat(
        "bias_gelu_by_torch_copied_by_a_kernel",
        "bias_gelu",
        COPY
        + """
def bias_gelu_forward(x, bias, approximate="none"):
    return copied(F.gelu(x + bias, approximate=approximate))

def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    grad_x = torch.ops.aten.gelu_backward(grad_y, x + bias, approximate=approximate)
    return copied(grad_x), copied(grad_x.reshape(-1, len(bias)).sum(0))

def bias_gelu(x, bias, approximate="none"):
    return bias_gelu_forward(x, bias, approximate)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "bias_gelu_of_torchs_sum",
        "bias_gelu",
        """
RIGHT = bias_gelu_forward

def bias_gelu_forward(x, bias, approximate="none"):
    if bias.shape != x.shape[-1:]:
        raise ValueError(bias.shape)
    return RIGHT(x + bias, torch.zeros_like(bias), approximate=approximate)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "grad_bias_by_torch",
        "bias_gelu",
        """
RIGHT = bias_gelu_backward

def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    grad_x, _ = RIGHT(grad_y, x, bias, approximate=approximate)
    again = torch.ops.aten.gelu_backward(grad_y, x + bias, approximate=approximate)
    return grad_x, again.reshape(-1, len(bias)).sum(0)
""",
        LOSES,
        ("test_backward_values",),
        evidence=EVIDENCE,
    ),
]
