"""Planted bugs of FlashAttention-2 backward in Triton that only a compiler sees: results are right in the simulator."""

from assignment.bank.operators.edits import bug

PROBLEM = "flash_backward_triton"
FILES = ("triton_backward.py", "flash_attention.py")

BUGS = (
    bug(
        "six warps",
        "test_flash_backward.py::test_triton_compiles",
        "num_stages=1, → num_warps=6,",
        compiled="_backward_kernel[key_grid](",
    ),
)
