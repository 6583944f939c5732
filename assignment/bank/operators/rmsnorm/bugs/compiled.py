"""Planted bugs of RMSNorm that only a compiler sees: results are right in the simulator."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

BUGS = (
    bug(
        "twelve warps",
        "test_rmsnorm.py::test_compiles",
        "IS_ONE_TILE=d <= d_tile_size,\n            num_warps=8, → "
        "IS_ONE_TILE=d <= d_tile_size,\n            num_warps=12,",
        compiled="_forward_kernel[grid](",
    ),
)
