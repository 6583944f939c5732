"""LayerNorm over the last dimension: y = (x − mean) · rstd · w + b (Ba, Kiros & Hinton 2016, "Layer Normalization")."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="layernorm",
    file="cs336_kernels/practice/layernorm.py",
    position=5,
    follows="rmsnorm",
    problems=(Problem("layernorm", "LayerNorm", "handout/layernorm.md"),),
    functions=(
        Function(
            name="layernorm_forward",
            problem="layernorm",
            inputs=("x", "weight", "bias"),
            outputs=("y", "mean", "rstd"),
            oracle="layernorm_forward",
        ),
        Function(
            name="layernorm_backward",
            problem="layernorm",
            inputs=("grad_y", "x", "weight", "mean", "rstd"),
            outputs=("grad_x", "grad_weight", "grad_bias"),
            oracle="layernorm_backward",
            is_backward=True,
            forward="layernorm_forward",
            unseen=(("bias", "weight"),),
        ),
        Function(
            name="layernorm",
            problem="layernorm",
            inputs=("x", "weight", "bias"),
            outputs=("y",),
            oracle="layernorm_forward",
            forward="layernorm_forward",
            gradients="layernorm_backward",
        ),
    ),
    sized_by="x",
    vectors=("weight", "bias"),
)
