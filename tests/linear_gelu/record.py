"""A linear layer with its GELU in one kernel: y = gelu(x weightᵀ + bias)."""

from tests.matmul.record import count_products, in_words
from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="linear_gelu",
    file="cs336_kernels/practice/linear_gelu.py",
    position=8,
    follows="matmul",
    problems=(Problem("linear_gelu", "Linear layer and GELU", "handout/linear_gelu.md"),),
    functions=(
        Function(
            name="linear_gelu",
            problem="linear_gelu",
            inputs=("x", "weight", "bias"),
            outputs=("y",),
            oracle="linear_gelu",
        ),
    ),
    sized_by="x",
    count=count_products,
    say=in_words,
)
