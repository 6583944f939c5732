"""Dropout, residual and LayerNorm in one pass: y = LayerNorm(residual + dropout(x))."""

from tests.operators import Function, Operator, Problem

OPERATOR = Operator(
    name="dropout_add_layernorm",
    file="cs336_kernels/practice/dropout_add_layernorm.py",
    position=6,
    follows="layernorm",
    problems=(Problem("dropout_add_layernorm", "Dropout, residual and LayerNorm", "handout/dropout_add_layernorm.md"),),
    functions=(
        Function(
            name="dropout_add_layernorm_forward",
            problem="dropout_add_layernorm",
            inputs=("x", "residual", "weight", "bias"),
            outputs=("y", "summed", "mean", "rstd"),
            oracle="dropout_add_layernorm_forward",
        ),
        Function(
            name="dropout_add_layernorm_backward",
            problem="dropout_add_layernorm",
            inputs=("grad_y", "summed", "weight", "mean", "rstd"),
            outputs=("grad_x", "grad_residual", "grad_weight", "grad_bias"),
            oracle="dropout_add_layernorm_backward",
            is_backward=True,
            forward="dropout_add_layernorm_forward",
            unseen=(("x", "summed"), ("residual", "summed"), ("bias", "weight")),
        ),
        Function(
            name="dropout_add_layernorm",
            problem="dropout_add_layernorm",
            inputs=("x", "residual", "weight", "bias"),
            outputs=("y",),
            oracle="dropout_add_layernorm_forward",
            forward="dropout_add_layernorm_forward",
            gradients="dropout_add_layernorm_backward",
        ),
    ),
    sized_by="x",
    vectors=("weight", "bias"),
)
