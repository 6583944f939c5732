"""Weighted sum: y = x w over the last dimension, and its gradients."""

import pytest
import torch

from tests import inputs, layouts, models, precision
from tests.inputs import batches_of_rows, drawn, normal, row_inputs, wide_batches, wide_matrix

pytestmark = pytest.mark.problem("weighted_sum")


def backward_inputs(rng, shape, dtype=torch.float32):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *x.shape[:-1], dtype=dtype), x, weight


@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ROWS)
def test_forward_values(check, rng, shape):
    """weighted_sum_forward returns Σ_j x_ij w_j in float32"""
    x, weight = row_inputs(rng, shape)
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ROWS)
def test_backward_values(check, rng, shape):
    """weighted_sum_backward returns dy_i w_j and Σ_i dy_i x_ij in float32"""
    tensors = backward_inputs(rng, shape)
    check("weighted_sum_backward", *tensors, expected=lambda: models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.5)
@inputs.cases(inputs.RAGGED_ROWS | inputs.WIDE_ROWS)
def test_forward_ragged(check, rng, shape):
    """weighted_sum_forward is right for every shape: no size is a multiple of a tile"""
    x, weight = row_inputs(rng, shape)
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@inputs.cases(inputs.RAGGED_ROWS | inputs.WIDE_ROWS)
def test_backward_ragged(check, rng, shape):
    """weighted_sum_backward is right for every shape: no size is a multiple of a tile"""
    tensors = backward_inputs(rng, shape)
    check("weighted_sum_backward", *tensors, expected=lambda: models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.25)
@precision.weighted_sum_forward
@precision.LOW_PRECISION
def test_forward_16_bit(check, rng, dtype, build):
    """weighted_sum_forward takes bfloat16 and float16, adds in float32 and returns the input's dtype"""
    x, weight = build(rng, dtype)
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.25)
@precision.weighted_sum_backward
@precision.LOW_PRECISION
def test_backward_16_bit(check, rng, dtype, build):
    """weighted_sum_backward takes bfloat16 and float16, adds in float32 and returns the input's dtype"""
    tensors = build(rng, dtype)
    check("weighted_sum_backward", *tensors, expected=lambda: models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.25)
@layouts.rows_forward
@layouts.rows
def test_forward_strides(check, rng, shape, layout):
    """weighted_sum_forward reads x and weight through their strides"""
    x, weight = layout(row_inputs(rng, shape))
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.25)
@layouts.rows_backward
@layouts.rows
def test_backward_strides(check, rng, shape, layout):
    """weighted_sum_backward reads its inputs through their strides, also of stride 0"""
    tensors = layout(backward_inputs(rng, shape))
    check("weighted_sum_backward", *tensors, expected=lambda: models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.25)
@layouts.rows_forward_offsets
@layouts.rows
def test_forward_offsets(check, rng, memory_bytes, shape, layout):
    """weighted_sum_forward has 64-bit offsets, for x that reaches over 2³¹ elements"""
    x, weight = layout(row_inputs(rng, shape), memory_bytes)
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.25)
@layouts.weighted_sum_backward_offsets
@layouts.rows
def test_backward_offsets(check, rng, memory_bytes, shape, layout):
    """weighted_sum_backward has 64-bit offsets, for inputs that reach over 2³¹ elements"""
    tensors = layout(backward_inputs(rng, shape), memory_bytes)
    check("weighted_sum_backward", *tensors, expected=lambda: models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.25)
@pytest.mark.parametrize("scale", [pytest.param(1e15, id="large values"), pytest.param(1e-15, id="tiny values")])
def test_outliers(check, rng, scale):
    """weighted_sum_forward keeps small rows beside large ones, and terms that cancel"""
    x, weight = row_inputs(rng, wide_matrix)
    half = len(weight) // 2
    weight[half:] = weight[:half]
    x[:, half:] = -x[:, :half] + x[:, half:] / 64
    x[::2] *= scale
    check("weighted_sum_forward", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@inputs.row_batches()
def test_forward_contract(check_contract, rng, shape):
    """weighted_sum_forward leaves inputs and earlier results alone; an empty batch gives an empty result"""
    shape = drawn(shape, rng)
    first, second = row_inputs(rng, shape), row_inputs(rng, shape)
    expected = models.weighted_sum_forward(*first), models.weighted_sum_forward(*second)
    check_contract("weighted_sum_forward", first, second, *expected)


@pytest.mark.points(0.25)
@inputs.row_batches()
def test_backward_contract(check_contract, rng, shape):
    """weighted_sum_backward leaves inputs and earlier results alone; an empty batch gives a zero grad_weight"""
    shape = drawn(shape, rng)
    first, second = backward_inputs(rng, shape), backward_inputs(rng, shape)
    expected = models.weighted_sum_backward(*first), models.weighted_sum_backward(*second)
    check_contract("weighted_sum_backward", first, second, *expected)


@pytest.mark.points(0.25)
def test_forward_mistakes(run, rng):
    """weighted_sum_forward raises ValueError for a weight of another length than the rows of x"""
    x, weight = row_inputs(rng, (4, 24))
    run.raises(ValueError, "weighted_sum_forward", x, weight[:23])
    run.raises(ValueError, "weighted_sum_forward", x[:, :23], weight)


@pytest.mark.points(0.25)
def test_backward_mistakes(run, rng):
    """weighted_sum_backward raises ValueError for a weight of another length than the rows of x"""
    grad_y, x, weight = backward_inputs(rng, (4, 24))
    run.raises(ValueError, "weighted_sum_backward", grad_y, x, weight[:23])
    run.raises(ValueError, "weighted_sum_backward", grad_y, x[:, :23], weight)


@pytest.mark.points(0.25)
def test_value(check, rng):
    """weighted_sum returns what weighted_sum_forward does"""
    x, weight = row_inputs(rng, wide_batches)
    check("weighted_sum", x, weight, expected=lambda: models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("ask", inputs.ROW_GRADIENTS)
def test_gradients(check_gradients, rng, ask):
    """weighted_sum is differentiable, for all inputs or only some, as often as asked"""
    shape, ask = inputs.shape_of(ask, batches_of_rows)
    grad_y, x, weight = backward_inputs(rng, shape)
    grad_y = inputs.incoming(grad_y, ask)
    expected = models.weighted_sum_backward(grad_y, x, weight)
    check_gradients("weighted_sum", x, weight, grad=grad_y, expected=expected, **ask)
