"""Bias and GELU in one kernel, forward and backward, for practice."""

import torch

from tests import rows
from tests.bias_gelu import models
from tests.families import DTYPES, Subject, built, gradients, in_dtypes, shapes, values, with_options
from tests.inputs import cancelling, normal, repeated
from tests.rows import Pass, long_matrix, many_rows, row_inputs, wide_matrix

TANH = {"approximate": "tanh"}
WAYS = {"erf": {"approximate": "none"}, "tanh": TANH}


def forward_inputs(rng, shape, dtype=torch.float32, **options):
    return row_inputs(rng, shape, dtype)


def backward_inputs(rng, shape, dtype=torch.float32, **options):
    x, bias = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, bias


FORWARD = Subject("bias_gelu_forward", forward_inputs, models.bias_gelu_forward)
BACKWARD = Subject("bias_gelu_backward", backward_inputs, models.bias_gelu_backward)
AUTOGRAD = Subject("bias_gelu", forward_inputs, models.bias_gelu_forward)


def tails(rng, dtype):
    """Far below zero, where y is 0, and far above, where it is z; and near zero between."""
    x, bias = row_inputs(rng, wide_matrix, dtype)
    for i, scale in enumerate((10, 100, 1e3, 1e4)):
        x[i::5] *= scale
    return x, bias


def backward_tails(rng, dtype):
    x, bias = tails(rng, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, bias


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_bias cancel: far above zero the slope is 1."""
    x, bias = row_inputs(rng, many_rows, dtype)
    return cancelling(rng, *x.shape, dtype=dtype), repeated(x.abs() + 20), bias.abs()


test_forward_values = values(4, "bias_gelu_forward returns gelu(x + bias) in float32", FORWARD, rows.PLAIN)
test_backward_values = values(
    4, "bias_gelu_backward returns the gradients of x and bias in float32", BACKWARD, rows.PLAIN
)
test_forward_tanh = values(
    1,
    "bias_gelu_forward has the tanh form, and keeps it apart from the other",
    FORWARD,
    with_options(shapes({"a matrix": wide_matrix}), WAYS),
)
test_backward_tanh = values(
    1,
    "bias_gelu_backward has the gradients of the tanh form",
    BACKWARD,
    with_options(shapes({"a matrix": long_matrix}), WAYS),
)
test_forward_tails = values(
    0.5, "bias_gelu_forward is right far from zero, in both forms", FORWARD, with_options(built([tails]), WAYS)
)
test_backward_tails = values(
    0.5,
    "bias_gelu_backward is right far from zero, in both forms",
    BACKWARD,
    with_options(built([backward_tails]), WAYS),
)
test_value = values(
    0.5,
    "bias_gelu returns the y of bias_gelu_forward, and passes the form on",
    AUTOGRAD,
    with_options(shapes({"a matrix": wide_matrix}), WAYS),
)
test_gradients = gradients(
    0.5,
    "bias_gelu is differentiable, for both inputs or only one, as often as asked",
    BACKWARD,
    rows.USUAL_GRADIENT,
    rows.GRADIENTS | {"the tanh form": {"options": TANH}},
)
globals().update(
    rows.checks(
        "bias_gelu",
        Pass(FORWARD, with_options(shapes({"a matrix": wide_matrix}), WAYS), ["x"], ["y"], reach=0.8),
        Pass(
            BACKWARD,
            shapes({"a matrix": long_matrix}) | built([rows_that_cancel]),
            ["grad_y", "x"],
            ["grad_x"],
            reach=0.7,
        ),
        but={"forward_traffic": 0.25, "backward_traffic": 0.25, "forward_speed": 0.75, "backward_speed": 0.75},
        compiled=with_options(in_dtypes(rows.COMPILED, DTYPES), WAYS),
    )
)
