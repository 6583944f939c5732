"""Quantization to float8 by blocks with scales, and the product of two such matrices."""

from typing import Any

from tests.operators import Function, Operator, Problem, counted


def count_products(tensors: dict[str, Any]) -> int:
    """The elements of the larger matrix."""
    return max(tensor.numel() for tensor in tensors.values())


def in_words(tensors: dict[str, Any]) -> str:
    """ "77 rows of 40, times 96 rows" or "77 rows of 40" """
    first, *others = list(tensors.values())
    n_rows, k = first.shape
    times = f", times {counted(len(others[1]), 'row', 'rows')}" if others else ""
    return f"{counted(n_rows, 'row', 'rows')} of {k}{times}"


OPERATOR = Operator(
    name="matmul_block_scaled",
    file="cs336_kernels/practice/matmul_block_scaled.py",
    position=9,
    follows="linear_gelu",
    problems=(Problem("matmul_block_scaled", "Block-scaled product in float8", "handout/matmul_block_scaled.md"),),
    functions=(
        Function(
            name="quantize_block_scaled",
            problem="matmul_block_scaled",
            inputs=("x",),
            outputs=("values", "scales"),
            oracle="quantize_block_scaled",
        ),
        Function(
            name="matmul_block_scaled",
            problem="matmul_block_scaled",
            inputs=("a", "a_scales", "b", "b_scales"),
            outputs=("c",),
            oracle="matmul_block_scaled",
        ),
    ),
    sized_by="a",
    count=count_products,
    say=in_words,
)
