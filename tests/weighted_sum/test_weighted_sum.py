"""Weighted sum: y = x w over the last dimension, and its gradients."""

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
from tests.rows import row_inputs, wide_matrix
from tests.weighted_sum import models


def backward_inputs(rng, shape, dtype=torch.float32):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape[:-1], dtype=dtype), x, weight


FORWARD = Subject("weighted_sum_forward", row_inputs, models.weighted_sum_forward)
BACKWARD = Subject("weighted_sum_backward", backward_inputs, models.weighted_sum_backward)
AUTOGRAD = Subject("weighted_sum", row_inputs, models.weighted_sum_forward)


def terms_that_cancel(rng, dtype):
    """A row's terms add up to next to nothing, on the way to which they are beyond float16."""
    x, _ = row_inputs(rng, wide_matrix, dtype)
    return repeated(x.abs().mT).mT, cancelling(rng, x.shape[-1], 1, dtype=dtype).squeeze(-1)


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_weight cancel."""
    x, weight = row_inputs(rng, rows.many_rows, dtype)
    return cancelling(rng, len(x), 1, dtype=dtype).squeeze(-1), repeated(x), weight


def outliers(scale):
    """Small rows beside rows as large as `scale`, of terms that cancel."""

    def build(rng, dtype):
        x, weight = row_inputs(rng, wide_matrix, dtype)
        half = len(weight) // 2
        weight[half:] = weight[:half]
        x[:, half:] = -x[:, :half] + x[:, half:] / 64
        x[::2] *= scale
        return x, weight

    return Case(build=build)


ORDINARY = shapes({"ordinary rows": wide_matrix})
N = 1 << 28  # elements of x: half a GB in bfloat16, so that a launch by Python takes less than what it launches
RACED = {name: Case((N // 4096, 4096), dtype) for name, dtype in DTYPES.items()}

test_forward_values = values(2, "weighted_sum_forward returns Σ_j x_ij w_j in float32", FORWARD, rows.PLAIN)
test_backward_values = values(
    2, "weighted_sum_backward returns dy_i w_j and Σ_i dy_i x_ij in float32", BACKWARD, rows.PLAIN
)
test_forward_ragged = values(
    1,
    "weighted_sum_forward is right for every shape: no size is a multiple of a tile",
    FORWARD,
    rows.RAGGED | rows.WIDE,
)
test_backward_ragged = values(
    1,
    "weighted_sum_backward is right for every shape: no size is a multiple of a tile",
    BACKWARD,
    rows.RAGGED | rows.WIDE,
)
test_forward_16_bit = values(
    0.25,
    "weighted_sum_forward takes bfloat16 and float16, adds in float32 and returns the input's dtype",
    FORWARD,
    in_dtypes(ORDINARY | built([terms_that_cancel]), LOW_PRECISION),
)
test_backward_16_bit = values(
    0.25,
    "weighted_sum_backward takes bfloat16 and float16, adds in float32 and returns the input's dtype",
    BACKWARD,
    in_dtypes(ORDINARY | built([rows_that_cancel]), LOW_PRECISION),
)
test_forward_strides = values(
    0.25, "weighted_sum_forward reads x and weight through their strides", FORWARD, rows.FORWARD_STRIDES
)
test_backward_strides = values(
    0.25,
    "weighted_sum_backward reads its inputs through their strides, also of stride 0",
    BACKWARD,
    rows.BACKWARD_STRIDES,
)
test_forward_offsets = values(
    0.25,
    "weighted_sum_forward has 64-bit offsets, for x that reaches over 2³¹ elements",
    FORWARD,
    rows.FORWARD_OFFSETS,
)
test_backward_offsets = values(
    0.25,
    "weighted_sum_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    rows.backward_offsets(layouts.ELEMENTS),
)
test_outliers = values(
    0.25,
    "weighted_sum_forward keeps small rows beside large ones, and terms that cancel",
    FORWARD,
    {"large values": outliers(1e15), "tiny values": outliers(1e-15)},
)
test_forward_contract = contract(
    0.25,
    "weighted_sum_forward leaves inputs and earlier results alone; an empty batch gives an empty result",
    FORWARD,
    rows.BATCHES,
    has_rows=True,
)
test_backward_contract = contract(
    0.25,
    "weighted_sum_backward leaves inputs and earlier results alone; an empty batch gives a zero grad_weight",
    BACKWARD,
    rows.BATCHES,
)
test_forward_mistakes = mistakes(
    0.25,
    "weighted_sum_forward raises ValueError for a weight of another length than the rows of x",
    FORWARD,
    rows.MISTAKE_SHAPE,
    rows.FORWARD_MISTAKES,
)
test_backward_mistakes = mistakes(
    0.25,
    "weighted_sum_backward raises ValueError for a weight of another length than the rows of x",
    BACKWARD,
    rows.MISTAKE_SHAPE,
    rows.BACKWARD_MISTAKES,
)
test_value = values(
    0.25, "weighted_sum returns what weighted_sum_forward does", AUTOGRAD, shapes({"rows": rows.wide_batches})
)
test_gradients = gradients(
    0.25,
    "weighted_sum is differentiable, for all inputs or only some, as often as asked",
    BACKWARD,
    rows.USUAL_GRADIENT,
    rows.GRADIENTS,
)
test_forward_traffic = traffic(
    0.25,
    "weighted_sum_forward reads x once and writes y once",
    FORWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["x"],
    written=["y"],
)
test_backward_traffic = traffic(
    0.25,
    "weighted_sum_backward reads x and grad_y once and writes grad_x once",
    BACKWARD,
    in_dtypes(rows.COSTLY, DTYPES),
    read=["grad_y", "x"],
    written=["grad_x"],
)
test_compiles = compiles(
    0.25,
    "weighted_sum's kernels compile and fit on A100, H100 and B200",
    [FORWARD, BACKWARD],
    in_dtypes(rows.COMPILED, DTYPES),
)
test_forward_speed = speed(
    2, "weighted_sum_forward reads memory at 80 % of a copy's speed", RACED, against="copying", reach=0.8
)
test_backward_speed = speed(
    2, "weighted_sum_backward reads and writes memory at 75 % of a copy's speed", RACED, against="copying", reach=0.75
)
