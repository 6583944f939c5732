"""Bias and GELU whose work is not that of a kernel."""

from assignment.bank.cheats import LOSES, Cheat, by_torch

EVIDENCE = r"(?s)kernel.*cs336_kernels/practice/bias_gelu\.py:\d+"
BY_TORCH = """
def bias_gelu_forward(x, bias, approximate="none"):
    return F.gelu(x + bias, approximate=approximate)

def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    grad_x = torch.ops.aten.gelu_backward(grad_y, x + bias, approximate=approximate)
    return grad_x, grad_x.reshape(-1, len(bias)).sum(0)

def bias_gelu(x, bias, approximate="none"):
    return F.gelu(x + bias, approximate=approximate)
"""
CHEATS = [
    *by_torch("bias_gelu", "practice/bias_gelu.py", BY_TORCH),
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
