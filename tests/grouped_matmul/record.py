"""Products in groups: the rows of each group times the matrix of its expert, as in a mixture of experts."""

from typing import Any

from tests.matmul.record import count_products
from tests.operators import Function, Operator, Problem, counted


def in_words(tensors: dict[str, Any]) -> str:
    """ "77 rows of 40, 8 experts" """
    x, weight = tensors["x"], tensors["weight"]
    return f"{counted(x.shape[0], 'row', 'rows')} of {x.shape[-1]}, {counted(weight.shape[0], 'expert', 'experts')}"


OPERATOR = Operator(
    name="grouped_matmul",
    file="cs336_kernels/practice/grouped_matmul.py",
    position=9,
    follows="matmul",
    problems=(Problem("grouped_matmul", "Products in groups", "handout/grouped_matmul.md"),),
    functions=(
        Function(
            name="grouped_matmul",
            problem="grouped_matmul",
            inputs=("x", "weight", "group_sizes"),
            outputs=("y",),
            oracle="grouped_matmul",
        ),
        Function(
            name="grouped_matmul_backward",
            problem="grouped_matmul",
            inputs=("grad_y", "x", "weight", "group_sizes"),
            outputs=("grad_x", "grad_weight"),
            oracle="grouped_matmul_backward",
            is_backward=True,
            forward="grouped_matmul",
        ),
    ),
    sized_by="x",
    structure=("group_sizes",),
    count=count_products,
    say=in_words,
)
