"""LayerNorm: y = (x − mean) · rstd · w + b, rstd = 1/√(mean((x − mean)²) + eps), and its gradients."""

import torch

from tests import layouts, rows
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
)
from tests.inputs import between, cancelling, normal, repeated
from tests.layernorm import models, oracle
from tests.rows import batches_of_rows, long_matrix, shifted_inputs, wide_batches, wide_matrix

LARGE = 32  # times ordinary values: eps does not matter, so that a wrong one costs the check of eps, and no other


def left(x, weight, bias, eps=1e-5):
    """The mean and rstd of a right forward pass."""
    return [result.float() for result in oracle.layernorm_forward(x, weight, bias, eps)[1:]]


def after_forward(grad_y, x, weight, bias):
    """What the backward pass gets: all but the bias, which no gradient depends on."""
    return grad_y, x, weight, *left(x, weight, bias)


def large_inputs(rng, shape, dtype=torch.float32):
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return LARGE * x, weight, bias


def large_backward_inputs(rng, shape, dtype=torch.float32):
    x, weight, bias = large_inputs(rng, shape, dtype)
    return after_forward(normal(rng, *x.shape, dtype=dtype), x, weight, bias)


def backward_inputs(rng, shape, dtype=torch.float32):
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return after_forward(normal(rng, *x.shape, dtype=dtype), x, weight, bias)


def autograd_inputs(rng, shape, dtype, **options):
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, weight, bias


def autograd_model(grad_y, x, weight, bias, eps=1e-5):
    return models.layernorm_backward(grad_y, x, weight, *left(x, weight, bias, eps))


def y_alone(x, weight, bias, **options):
    return {"y": models.layernorm_forward(x, weight, bias, **options)["y"]}


def small_rows(rng, shape, dtype, **options):
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return rows.every_other_small(x), weight, bias


def rows_of_all_sizes(rng, shape, dtype, **options):
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return rows.of_all_sizes(x), weight, bias


def far_from_zero(rng, shape, dtype=torch.float32, mean=1e4):
    """Rows of deviation 1 about ± the mean: float32 hardly tells the mean square from the squared mean."""
    x, weight, bias = shifted_inputs(rng, shape, dtype)
    return x + mean * normal(rng, *x.shape[:-1], 1).sign(), weight, bias


FORWARD = Subject("layernorm_forward", large_inputs, models.layernorm_forward)
BACKWARD = Subject("layernorm_backward", large_backward_inputs, models.layernorm_backward)
PLAIN_FORWARD = Subject("layernorm_forward", shifted_inputs, models.layernorm_forward)
PLAIN_BACKWARD = Subject("layernorm_backward", backward_inputs, models.layernorm_backward)
CANCELLING = Subject("layernorm_forward", far_from_zero, models.layernorm_forward)
EPS = Subject("layernorm_forward", rows_of_all_sizes, models.layernorm_forward)
AUTOGRAD = Subject("layernorm", small_rows, y_alone)
GRADIENT = Subject("layernorm", autograd_inputs, autograd_model)

FORWARD_MISTAKES = rows.FORWARD_MISTAKES | {"bias too short": lambda x, weight, bias: (x, weight, bias[:-1])}
GRADIENTS = rows.GRADIENTS | {"bias only": {"wrt": (2,)}, "another eps": {"options": {"eps": 0.25}}}


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_weight and grad_bias cancel."""
    x, weight, bias = shifted_inputs(rng, rows.many_rows, dtype)
    return after_forward(cancelling(rng, *x.shape, dtype=dtype), repeated(LARGE * x), weight, bias)


def gradient_along_x(rng, dtype):
    """grad_y ∘ w is nearly x: the terms of grad_x cancel."""
    x, weight, bias = shifted_inputs(rng, wide_matrix, dtype)
    weight = torch.where(weight < 0, weight - 0.5, weight + 0.5)
    return after_forward((x.float() / weight.float()).to(dtype), x, weight, bias)


def rows_far_from_zero(rng, dtype):
    return far_from_zero(rng, wide_matrix, dtype)


def wide_rows_not_so_far(rng, dtype):
    """About ±10³: a sum of 20,000 numbers of 10⁴ loses their deviations, if it is added up one after the other."""
    return far_from_zero(rng, (3, between(rng, 17_000, 20_000)), dtype, mean=1e3)


def outliers(rng, dtype):
    x, weight, bias = shifted_inputs(rng, wide_matrix, dtype)
    return rows.with_outliers(x, large=1e4, larger=1e8, spike=1e6), weight, bias


def backward_outliers(rng, dtype):
    x, weight, bias = shifted_inputs(rng, wide_matrix, dtype)
    x = rows.with_outliers(x, large=1e-2, larger=1e3, spike=1e3)
    return after_forward(normal(rng, *x.shape), x, weight, bias)


N = 1 << 28  # elements of x: half a GB in bfloat16, so that a launch by Python takes less than what it launches
RACED = {f"{d}": Case((N // d, d), torch.bfloat16) for d in (1024, 4096, 8192)}

test_forward_values = values(
    4, "layernorm_forward returns (x − mean) · rstd · w + b, mean and rstd in float32", FORWARD, rows.PLAIN
)
test_backward_values = values(
    4, "layernorm_backward returns the gradients of x, weight and bias in float32", BACKWARD, rows.PLAIN
)
test_forward_ragged = values(
    0.5,
    "layernorm_forward is right for every shape; mean and variance are over d, not over a padded tile",
    FORWARD,
    rows.RAGGED,
)
test_backward_ragged = values(
    0.5,
    "layernorm_backward is right for every shape; the means are over d, not over a padded tile",
    BACKWARD,
    rows.RAGGED,
)
test_forward_wide = values(0.5, "layernorm_forward takes rows wider than any block", FORWARD, rows.WIDE)
test_backward_wide = values(0.5, "layernorm_backward takes rows wider than any block", BACKWARD, rows.WIDE)
test_forward_eps = values(
    0.5,
    "layernorm_forward adds eps to the variance, under the root; rows range from tiny to large",
    EPS,
    rows.of_eps((128, 128), wide_matrix, 1e-5, 1e-2, 0.5),
)
test_forward_variance = values(
    1,
    "layernorm_forward finds the variance of rows whose mean is 10⁴ times their deviation",
    CANCELLING,
    built([rows_far_from_zero, wide_rows_not_so_far]),
)
# The sum of the squares is beyond float16, whose largest value is 65,504.
test_forward_16_bit = values(
    0.5,
    "layernorm_forward takes bfloat16 and float16, sums in float32 and returns mean and rstd in float32",
    FORWARD,
    in_dtypes(shapes({"large rows": wide_matrix}), LOW_PRECISION),
)
test_backward_16_bit = values(
    0.5,
    "layernorm_backward takes bfloat16 and float16 and sums in float32",
    BACKWARD,
    in_dtypes(shapes({"large rows": long_matrix}) | built([rows_that_cancel, gradient_along_x]), LOW_PRECISION),
)
test_forward_strides = values(
    0.5, "layernorm_forward reads x, weight and bias through their strides", FORWARD, rows.FORWARD_STRIDES
)
test_backward_strides = values(
    0.5,
    "layernorm_backward reads its inputs through their strides, also of stride 0",
    BACKWARD,
    rows.BACKWARD_STRIDES,
)
test_forward_offsets = values(
    0.25,
    "layernorm_forward has 64-bit offsets, for x that reaches over 2³¹ elements",
    FORWARD,
    rows.FORWARD_OFFSETS,
)
test_backward_offsets = values(
    0.25,
    "layernorm_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    rows.backward_offsets(layouts.ROWS),
)
test_forward_outliers = values(
    0.25, "layernorm_forward keeps very large, large and one-spike rows apart", FORWARD, built([outliers])
)
test_backward_outliers = values(
    0.25, "layernorm_backward keeps large, small and one-spike rows apart", BACKWARD, built([backward_outliers])
)
test_forward_contract = contract(
    0.25,
    "layernorm_forward leaves inputs and earlier results alone; an empty batch gives empty results",
    FORWARD,
    rows.BATCHES,
)
test_backward_contract = contract(
    0.25,
    "layernorm_backward leaves inputs and earlier results alone; an empty batch gives zero gradients of the vectors",
    BACKWARD,
    rows.BATCHES,
)
test_forward_mistakes = mistakes(
    0.25,
    "layernorm_forward raises ValueError for a weight or bias of another length than the rows of x",
    FORWARD,
    rows.MISTAKE_SHAPE,
    FORWARD_MISTAKES,
)
test_backward_mistakes = mistakes(
    0.25,
    "layernorm_backward raises ValueError for a weight of another length than the rows of x",
    BACKWARD,
    rows.MISTAKE_SHAPE,
    rows.BACKWARD_MISTAKES,
)
test_value = values(
    0.5,
    "layernorm returns the y of layernorm_forward, and passes eps on",
    AUTOGRAD,
    rows.of_eps(batches_of_rows, wide_batches, 1e-5, 0.25),
)
test_gradients = gradients(
    0.5,
    "layernorm is differentiable, for all inputs or only some, as often as asked",
    GRADIENT,
    rows.USUAL_GRADIENT,
    GRADIENTS,
)
test_forward_traffic = traffic(
    0.5,
    "layernorm_forward reads x once and writes y once",
    PLAIN_FORWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["x"],
    written=["y", "mean", "rstd"],
)
test_backward_traffic = traffic(
    0.5,
    "layernorm_backward reads x and grad_y once and writes grad_x once",
    PLAIN_BACKWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["grad_y", "x"],
    written=["grad_x"],
)
test_compiles = compiles(
    0.5,
    "layernorm's kernels compile and fit on A100, H100 and B200",
    [PLAIN_FORWARD, PLAIN_BACKWARD],
    in_dtypes(rows.COMPILED, DTYPES),
)
test_forward_speed = speed(
    1, "layernorm_forward reads and writes memory at 75 % of a copy's speed", RACED, against="copying", reach=0.75
)
test_backward_speed = speed(
    1, "layernorm_backward reads and writes memory at 60 % of a copy's speed", RACED, against="copying", reach=0.6
)
