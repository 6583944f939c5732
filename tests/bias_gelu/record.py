"""Bias and GELU in one kernel: y = gelu(x + bias) (Hendrycks & Gimpel 2016, "Gaussian Error Linear Units")."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="bias_gelu",
    file="cs336_kernels/practice/bias_gelu.py",
    position=4,
    follows="weighted_sum",
    problems=(Problem("bias_gelu", "Bias and GELU", "handout/bias_gelu.md"),),
    functions=(
        Function(
            name="bias_gelu_forward",
            problem="bias_gelu",
            inputs=("x", "bias"),
            outputs=("y",),
            oracle="bias_gelu_forward",
        ),
        Function(
            name="bias_gelu_backward",
            problem="bias_gelu",
            inputs=("grad_y", "x", "bias"),
            outputs=("grad_x", "grad_bias"),
            oracle="bias_gelu_backward",
            is_backward=True,
            forward="bias_gelu_forward",
        ),
        Function(
            name="bias_gelu",
            problem="bias_gelu",
            inputs=("x", "bias"),
            outputs=("y",),
            oracle="bias_gelu_forward",
            forward="bias_gelu_forward",
            gradients="bias_gelu_backward",
        ),
    ),
    sized_by="x",
    vectors=("bias",),
)
