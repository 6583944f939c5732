"""RMSNorm over the last dimension: y = x · rstd · w (Zhang & Sennrich 2019, "Root Mean Square Layer Normalization")."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="rmsnorm",
    file="cs336_kernels/rmsnorm.py",
    position=2,
    problems=(Problem("rmsnorm", "RMSNorm", "handout/rmsnorm.md"),),
    functions=(
        Function(
            name="rmsnorm_forward",
            problem="rmsnorm",
            inputs=("x", "weight"),
            outputs=("y", "rstd"),
            oracle="rmsnorm_forward",
        ),
        Function(
            name="rmsnorm_backward",
            problem="rmsnorm",
            inputs=("grad_y", "x", "weight", "rstd"),
            outputs=("grad_x", "grad_weight"),
            oracle="rmsnorm_backward",
            is_backward=True,
            forward="rmsnorm_forward",
        ),
        Function(
            name="rmsnorm",
            problem="rmsnorm",
            inputs=("x", "weight"),
            outputs=("y",),
            oracle="rmsnorm_forward",
            forward="rmsnorm_forward",
            gradients="rmsnorm_backward",
        ),
    ),
    sized_by="x",
    vectors=("weight",),
)
