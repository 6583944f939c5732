"""Linear layers that are not those of a kernel, or only in part."""

from assignment.bank.cheats import Cheat, by_torch

BY_TORCH = """
def linear_gelu(x, weight, bias, approximate="none"):
    return F.gelu(F.linear(x, weight, bias), approximate=approximate)
"""
CHEATS = [
    *by_torch("linear_gelu", "practice/linear_gelu.py", BY_TORCH),
    Cheat(
        "linear_gelu_with_the_product_by_torch",
        "linear_gelu",
        """
RIGHT = linear_gelu

def linear_gelu(x, weight, bias, approximate="none"):
    product = x @ weight.mT
    return RIGHT(product, torch.eye(len(weight), dtype=x.dtype), bias, approximate)
""",
        evidence=r"cs336_kernels/practice/linear_gelu\.py:\d+",
    ),
]
