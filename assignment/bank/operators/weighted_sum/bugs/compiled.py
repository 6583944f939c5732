"""Planted bugs of the weighted sum that only a compiler sees: results are right in the simulator."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

BUGS = (
    bug(
        "64 warps, more threads than a program has",
        "test_weighted_sum.py::test_compiles",
        "y.stride(0),\n            n_rows, d,\n → y.stride(0),\n            n_rows, d, num_warps=64,\n",
        compiled="num_warps=64",
    ),
)
