"""Products of matrices that are not those of a kernel."""

from assignment.attacks.cheats import Cheat

EVIDENCE = r"(?s)cs336_kernels/practice/matmul\.py:\d+"
COPY = """
@triton.jit
def _copy(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
CHEATS = [
    Cheat("matmul_by_torch", "matmul", "\ndef matmul(a, b):\n    return a @ b\n", evidence=EVIDENCE),
    Cheat(
        "matmul_by_torch_copied_by_a_kernel",
        "matmul",
        COPY
        + """
def matmul(a, b):
    c = a @ b
    y = torch.empty_like(c)
    if c.numel():
        _copy[(triton.cdiv(c.numel(), 1024),)](c, y, c.numel(), SIZE=1024)
    return y
""",
        evidence=EVIDENCE,
    ),
    Cheat(
        "matmul_by_torch_times_one",
        "matmul",
        """
RIGHT = matmul

def matmul(a, b):
    c = a @ b
    return RIGHT(c, torch.eye(b.shape[1], dtype=b.dtype))
""",
        evidence=EVIDENCE,
    ),
]
