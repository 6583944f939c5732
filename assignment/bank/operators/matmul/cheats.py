"""Products of matrices that are not those of a kernel."""

from assignment.bank.cheats import Cheat, by_torch

CHEATS = [
    *by_torch("matmul", "practice/matmul.py", "\ndef matmul(a, b):\n    return a @ b\n"),
    Cheat(
        "matmul_by_torch_times_one",
        "matmul",
        """
RIGHT = matmul

def matmul(a, b):
    c = a @ b
    return RIGHT(c, torch.eye(b.shape[1], dtype=b.dtype))
""",
        evidence=r"cs336_kernels/practice/matmul\.py:\d+",
    ),
]
