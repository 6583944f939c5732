"""Bias and GELU in one kernel, forward and backward, for practice."""

import torch

from tests import layouts, rows
from tests.bias_gelu import models
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    Case,
    Subject,
    built,
    compiles,
    contract,
    gradients,
    in_dtypes,
    mistakes,
    shapes,
    speed,
    traffic,
    values,
    with_options,
)
from tests.inputs import between, cancelling, normal, repeated
from tests.rows import long_matrix, many_rows, row_inputs, wide_matrix

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


WIDE = shapes({"wider than a block": lambda rng: (3, between(rng, 17_000, 20_000))})
N = 1 << 28  # elements of x: half a GB in bfloat16, so that a launch by Python takes less than what it launches
RACED = {f"{d}": Case((N // d, d), torch.bfloat16) for d in (1024, 4096, 16384)}

test_forward_values = values(4.5, "bias_gelu_forward returns gelu(x + bias) in float32", FORWARD, rows.PLAIN)
test_backward_values = values(
    3.5, "bias_gelu_backward returns the gradients of x and bias in float32", BACKWARD, rows.PLAIN
)
test_forward_tanh = values(
    1,
    "bias_gelu_forward has the tanh form, and keeps it apart from the other",
    FORWARD,
    with_options(shapes({"a matrix": wide_matrix}), WAYS),
)
test_backward_tanh = values(
    0.75,
    "bias_gelu_backward has the gradients of the tanh form",
    BACKWARD,
    with_options(shapes({"a matrix": long_matrix}), WAYS),
)
test_forward_ragged = values(1, "bias_gelu_forward is right for every shape", FORWARD, rows.RAGGED)
test_backward_ragged = values(
    0.75, "bias_gelu_backward is right for every shape, and adds up every row", BACKWARD, rows.RAGGED
)
test_forward_wide = values(0.25, "bias_gelu_forward takes rows wider than any block", FORWARD, WIDE)
test_backward_wide = values(0.25, "bias_gelu_backward takes rows wider than any block", BACKWARD, WIDE)
test_forward_tails = values(
    0.5, "bias_gelu_forward is right far from zero, in both forms", FORWARD, with_options(built([tails]), WAYS)
)
test_backward_tails = values(
    0.5,
    "bias_gelu_backward is right far from zero, in both forms",
    BACKWARD,
    with_options(built([backward_tails]), WAYS),
)
test_forward_16_bit = values(
    0.25,
    "bias_gelu_forward takes bfloat16 and float16 and returns the dtype of x",
    FORWARD,
    in_dtypes(with_options(shapes({"a matrix": wide_matrix}), WAYS), LOW_PRECISION),
)
test_backward_16_bit = values(
    0.25,
    "bias_gelu_backward takes bfloat16 and float16 and sums in float32",
    BACKWARD,
    in_dtypes(shapes({"a matrix": long_matrix}) | built([rows_that_cancel]), LOW_PRECISION),
)
test_forward_strides = values(
    0.25, "bias_gelu_forward reads x and bias through their strides", FORWARD, rows.FORWARD_STRIDES
)
test_backward_strides = values(
    0.25,
    "bias_gelu_backward reads its inputs through their strides, also of stride 0",
    BACKWARD,
    rows.BACKWARD_STRIDES,
)
test_forward_offsets = values(
    0.25,
    "bias_gelu_forward has 64-bit offsets, for x that reaches over 2³¹ elements",
    FORWARD,
    rows.FORWARD_OFFSETS,
)
test_backward_offsets = values(
    0.25,
    "bias_gelu_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    rows.backward_offsets(layouts.ROWS),
)
test_forward_contract = contract(
    0.25,
    "bias_gelu_forward leaves inputs and earlier results alone; an empty batch gives an empty result",
    FORWARD,
    rows.BATCHES,
)
test_backward_contract = contract(
    0.25,
    "bias_gelu_backward leaves inputs and earlier results alone; an empty batch gives a zero grad_bias",
    BACKWARD,
    rows.BATCHES,
)
test_forward_mistakes = mistakes(
    0.25,
    "bias_gelu_forward raises ValueError for a bias of another length than the rows of x",
    FORWARD,
    rows.MISTAKE_SHAPE,
    rows.FORWARD_MISTAKES,
)
test_backward_mistakes = mistakes(
    0.25,
    "bias_gelu_backward raises ValueError for a bias or a gradient that does not fit x",
    BACKWARD,
    rows.MISTAKE_SHAPE,
    rows.BACKWARD_MISTAKES,
)
test_value = values(
    0.25,
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
test_forward_traffic = traffic(
    0.75,
    "bias_gelu_forward reads x once and writes y once",
    FORWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["x"],
    written=["y"],
)
test_backward_traffic = traffic(
    0.75,
    "bias_gelu_backward reads grad_y and x once and writes grad_x once",
    BACKWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["grad_y", "x"],
    written=["grad_x"],
)
test_compiles = compiles(
    0.25,
    "bias_gelu's kernels compile and fit on A100, H100 and B200",
    [FORWARD, BACKWARD],
    with_options(in_dtypes(rows.COMPILED, DTYPES), WAYS),
)
test_forward_speed = speed(
    1, "bias_gelu_forward reads and writes memory at 80 % of a copy's speed", RACED, against="copying", reach=0.8
)
test_backward_speed = speed(
    1, "bias_gelu_backward reads and writes memory at 70 % of a copy's speed", RACED, against="copying", reach=0.7
)
