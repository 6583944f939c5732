"""Linear layers that are not those of a kernel, or only in part."""

from assignment.attacks.cheats import COPY, Cheat

EVIDENCE = r"(?s)cs336_kernels/practice/linear_gelu\.py:\d+"
BY_TORCH = "F.linear(x, weight, bias)"
CHEATS = [
    Cheat(
        "linear_gelu_by_torch",
        "linear_gelu",
        f"""
def linear_gelu(x, weight, bias, approximate="none"):
    return F.gelu({BY_TORCH}, approximate=approximate)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "linear_gelu_with_the_product_by_torch",
        "linear_gelu",
        """
RIGHT = linear_gelu

def linear_gelu(x, weight, bias, approximate="none"):
    product = x @ weight.mT
    return RIGHT(product, torch.eye(len(weight), dtype=x.dtype), bias, approximate)
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "linear_gelu_by_torch_copied_by_a_kernel",
        "linear_gelu",
        COPY
        + f"""
def linear_gelu(x, weight, bias, approximate="none"):
    return copied(F.gelu({BY_TORCH}, approximate=approximate))
""",
        evidence=EVIDENCE,
    ),
]
