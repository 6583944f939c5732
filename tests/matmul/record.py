"""The product of matrices, c = a b, tile by tile, in an order that shares what it loads."""

import math
from typing import Any

from tests.operators import Function, Operator, Problem, counted


def count_products(tensors: dict[str, Any]) -> int:
    """The elements of the first factor, or of the second if it has more."""
    return max(tensor.numel() for tensor in tensors.values())


def in_words(tensors: dict[str, Any]) -> str:
    """ "77 rows of 40, times 40 × 96" """
    first, second = list(tensors.values())[:2]
    n_rows = math.prod(first.shape[:-1])
    of_second = " × ".join(map(str, second.shape))
    return f"{counted(n_rows, 'row', 'rows')} of {first.shape[-1]}, times {of_second}"


OPERATOR = Operator(
    name="matmul",
    file="cs336_kernels/practice/matmul.py",
    position=7,
    follows="flash_backward_triton",
    problems=(Problem("matmul", "Matrix product", "handout/matmul.md"),),
    functions=(Function(name="matmul", problem="matmul", inputs=("a", "b"), outputs=("c",), oracle="matmul"),),
    sized_by="a",
    count=count_products,
    say=in_words,
)
