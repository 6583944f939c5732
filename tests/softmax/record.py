"""Softmax over the last dimension: y_j = exp(x_j − max x) / Σ_k exp(x_k − max x)."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="softmax",
    file="cs336_kernels/practice/softmax.py",
    position=3,
    follows="flash_forward_pytorch",
    problems=(Problem("softmax", "Softmax", "handout/softmax.md"),),
    functions=(
        Function(
            name="softmax_forward",
            problem="softmax",
            inputs=("x",),
            outputs=("y",),
            oracle="softmax_forward",
        ),
        Function(
            name="softmax_backward",
            problem="softmax",
            inputs=("grad_y", "y"),
            outputs=("grad_x",),
            oracle="softmax_backward",
            is_backward=True,
            forward="softmax_forward",
            unseen=(("x", "y"),),
        ),
        Function(
            name="softmax",
            problem="softmax",
            inputs=("x",),
            outputs=("y",),
            oracle="softmax_forward",
            forward="softmax_forward",
            gradients="softmax_backward",
        ),
    ),
)
