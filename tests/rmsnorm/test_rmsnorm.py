"""RMSNorm: y = x · rstd · w, rstd = 1/√(mean(x²) + eps), and its gradients."""

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
from tests.inputs import cancelling, normal, repeated
from tests.rmsnorm import models, oracle
from tests.rows import batches_of_rows, long_matrix, row_inputs, wide_batches, wide_matrix

LARGE = 32  # times ordinary values: eps does not matter, so that a wrong one costs the check of eps, and no other


def with_rstd(grad_y, x, weight, eps=1e-5):
    """What a right forward pass hands to the backward one."""
    return grad_y, x, weight, oracle.rmsnorm_forward(x, weight, eps)[1].float()


def large_inputs(rng, shape, dtype=torch.float32):
    x, weight = row_inputs(rng, shape, dtype)
    return LARGE * x, weight


def large_backward_inputs(rng, shape, dtype=torch.float32):
    x, weight = large_inputs(rng, shape, dtype)
    return with_rstd(normal(rng, *x.shape, dtype=dtype), x, weight)


def backward_inputs(rng, shape, dtype=torch.float32, eps=1e-5):
    x, weight = row_inputs(rng, shape, dtype)
    return with_rstd(normal(rng, *x.shape, dtype=dtype), x, weight, eps)


def backward_model(*tensors, eps=1e-5):
    """eps is in rstd."""
    return models.rmsnorm_backward(*tensors)


def y_alone(x, weight, **options):
    return {"y": models.rmsnorm_forward(x, weight, **options)["y"]}


def small_rows(rng, shape, dtype, **options):
    x, weight = row_inputs(rng, shape, dtype)
    return rows.every_other_small(x), weight


def rows_of_all_sizes(rng, shape, dtype, **options):
    x, weight = row_inputs(rng, shape, dtype)
    return rows.of_all_sizes(x), weight


FORWARD = Subject("rmsnorm_forward", large_inputs, models.rmsnorm_forward)
BACKWARD = Subject("rmsnorm_backward", large_backward_inputs, models.rmsnorm_backward)
PLAIN_FORWARD = Subject("rmsnorm_forward", row_inputs, models.rmsnorm_forward)
PLAIN_BACKWARD = Subject("rmsnorm_backward", backward_inputs, backward_model)
EPS = Subject("rmsnorm_forward", rows_of_all_sizes, models.rmsnorm_forward)
AUTOGRAD = Subject("rmsnorm", small_rows, y_alone)


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_weight cancel."""
    x, weight = row_inputs(rng, rows.many_rows, dtype)
    return with_rstd(cancelling(rng, *x.shape, dtype=dtype), repeated(LARGE * x), weight)


def gradient_along_x(rng, dtype):
    """grad_y ∘ w is nearly x: the two terms of grad_x cancel."""
    x, weight = row_inputs(rng, wide_matrix, dtype)
    weight = torch.where(weight < 0, weight - 0.5, weight + 0.5)
    return with_rstd((x.float() / weight.float()).to(dtype), x, weight)


def outliers(rng, dtype):
    x, weight = row_inputs(rng, wide_matrix, dtype)
    return rows.with_outliers(x, large=1e4, larger=1e8, spike=1e6), weight


def backward_outliers(rng, dtype):
    x, weight = row_inputs(rng, wide_matrix, dtype)
    x = rows.with_outliers(x, large=1e-2, larger=1e3, spike=1e3)
    return with_rstd(normal(rng, *x.shape), x, weight)


N = 1 << 28  # elements of x: half a GB in bfloat16, so that a launch by Python takes less than what it launches
RACED = {f"{d}": Case((N // d, d), torch.bfloat16) for d in (1024, 4096, 8192)}

test_forward_values = values(4, "rmsnorm_forward returns x · rstd · w and rstd in float32", FORWARD, rows.PLAIN)
test_backward_values = values(
    4, "rmsnorm_backward returns the gradients of x and weight in float32", BACKWARD, rows.PLAIN
)
test_forward_ragged = values(
    1,
    "rmsnorm_forward is right for every shape; the mean is over d, not over a padded tile",
    FORWARD,
    rows.RAGGED,
)
test_backward_ragged = values(
    1,
    "rmsnorm_backward is right for every shape; the mean is over d, not over a padded tile",
    BACKWARD,
    rows.RAGGED,
)
test_forward_wide = values(0.5, "rmsnorm_forward takes rows of up to 20,000 columns", FORWARD, rows.WIDE)
test_backward_wide = values(0.5, "rmsnorm_backward takes rows of up to 20,000 columns", BACKWARD, rows.WIDE)
test_eps = values(
    0.5,
    "rmsnorm_forward adds eps to the mean of the squares, under the root; rows range from tiny to large",
    EPS,
    rows.of_eps((128, 128), wide_matrix, 1e-5, 1e-2, 0.5),
)
# The sum of the squares is beyond float16, whose largest value is 65,504.
test_forward_16_bit = values(
    0.5,
    "rmsnorm_forward takes bfloat16 and float16, sums in float32 and returns rstd in float32",
    FORWARD,
    in_dtypes(shapes({"large rows": wide_matrix}), LOW_PRECISION),
)
test_backward_16_bit = values(
    0.5,
    "rmsnorm_backward takes bfloat16 and float16 and sums in float32",
    BACKWARD,
    in_dtypes(shapes({"large rows": long_matrix}) | built([rows_that_cancel, gradient_along_x]), LOW_PRECISION),
)
test_forward_strides = values(
    0.5, "rmsnorm_forward reads x and weight through their strides", FORWARD, rows.FORWARD_STRIDES
)
test_backward_strides = values(
    0.5,
    "rmsnorm_backward reads its inputs through their strides, also of stride 0",
    BACKWARD,
    rows.BACKWARD_STRIDES,
)
test_forward_offsets = values(
    0.25,
    "rmsnorm_forward has 64-bit offsets, for x that reaches over 2³¹ elements",
    FORWARD,
    rows.FORWARD_OFFSETS,
)
test_backward_offsets = values(
    0.25,
    "rmsnorm_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    rows.backward_offsets(layouts.ROWS),
)
test_forward_outliers = values(
    0.5,
    "rmsnorm_forward keeps very large, large and one-spike rows apart",
    FORWARD,
    built([outliers]),
)
test_backward_outliers = values(
    0.5,
    "rmsnorm_backward keeps large, small and one-spike rows apart",
    BACKWARD,
    built([backward_outliers]),
)
test_forward_contract = contract(
    0.5,
    "rmsnorm_forward leaves inputs and earlier results alone; an empty batch gives empty results",
    FORWARD,
    rows.BATCHES,
    has_rows=True,
)
test_backward_contract = contract(
    0.5,
    "rmsnorm_backward leaves inputs and earlier results alone; an empty batch gives a zero grad_weight",
    BACKWARD,
    rows.BATCHES,
)
test_forward_mistakes = mistakes(
    0.25,
    "rmsnorm_forward raises ValueError for a weight of another length than the rows of x",
    FORWARD,
    rows.MISTAKE_SHAPE,
    rows.FORWARD_MISTAKES,
)
test_backward_mistakes = mistakes(
    0.25,
    "rmsnorm_backward raises ValueError for a weight of another length than the rows of x",
    BACKWARD,
    rows.MISTAKE_SHAPE,
    rows.BACKWARD_MISTAKES,
)
test_value = values(
    0.5,
    "rmsnorm returns the y of rmsnorm_forward, and passes eps on",
    AUTOGRAD,
    rows.of_eps(batches_of_rows, wide_batches, 1e-5, 0.25),
)
test_gradients = gradients(
    0.5,
    "rmsnorm is differentiable, for all inputs or only some, as often as asked",
    PLAIN_BACKWARD,
    rows.USUAL_GRADIENT,
    rows.GRADIENTS | {"another eps": {"options": {"eps": 0.25}}},
)
test_forward_traffic = traffic(
    1,
    "rmsnorm_forward reads x once and writes y once",
    PLAIN_FORWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["x"],
    written=["y", "rstd"],
)
test_backward_traffic = traffic(
    1,
    "rmsnorm_backward reads x and grad_y once and writes grad_x once",
    PLAIN_BACKWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["grad_y", "x"],
    written=["grad_x"],
)
test_compiles = compiles(
    0.5,
    "rmsnorm's kernels compile and fit on A100, H100 and B200",
    [PLAIN_FORWARD, PLAIN_BACKWARD],
    in_dtypes(rows.COMPILED, DTYPES),
)
test_forward_speed = speed(
    3, "rmsnorm_forward reads and writes memory at 75 % of a copy's speed", RACED, against="copying", reach=0.75
)
test_backward_speed = speed(
    3, "rmsnorm_backward reads and writes memory at 60 % of a copy's speed", RACED, against="copying", reach=0.6
)
