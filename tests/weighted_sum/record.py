"""Weighted sum over the last dimension: y = x w."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="weighted_sum",
    file="cs336_kernels/weighted_sum.py",
    position=1,
    problems=(Problem("weighted_sum", "Weighted sum", "handout/weighted_sum.md"),),
    functions=(
        Function(
            name="weighted_sum_forward",
            problem="weighted_sum",
            inputs=("x", "weight"),
            outputs=("y",),
            oracle="weighted_sum_forward",
        ),
        Function(
            name="weighted_sum_backward",
            problem="weighted_sum",
            inputs=("grad_y", "x", "weight"),
            outputs=("grad_x", "grad_weight"),
            oracle="weighted_sum_backward",
            is_backward=True,
            forward="weighted_sum_forward",
        ),
        Function(
            name="weighted_sum",
            problem="weighted_sum",
            inputs=("x", "weight"),
            outputs=("y",),
            oracle="weighted_sum_forward",
            forward="weighted_sum_forward",
            gradients="weighted_sum_backward",
        ),
    ),
    sized_by="x",
    vectors=("weight",),
)
