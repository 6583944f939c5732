"""Weighted sum: y = x w over the last dimension, and its gradients."""

import pytest
import torch

from tests import inputs, models
from tests.inputs import normal, row_inputs

pytestmark = pytest.mark.problem("weighted_sum")


def backward_inputs(rng, shape, dtype=torch.float32):
    x, weight = row_inputs(rng, shape, dtype)
    return normal(rng, *shape[:-1], dtype=dtype), x, weight


@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ROWS)
def test_forward_values(check, rng, shape):
    """weighted_sum_forward returns Σ_j x_ij w_j in float32"""
    x, weight = row_inputs(rng, shape)
    check("weighted_sum_forward", x, weight, expected=models.weighted_sum_forward(x, weight))


@pytest.mark.points(2)
@inputs.cases(inputs.PLAIN_ROWS)
def test_backward_values(check, rng, shape):
    """weighted_sum_backward returns dy_i w_j and Σ_i dy_i x_ij in float32"""
    tensors = backward_inputs(rng, shape)
    check("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.5)
@inputs.cases(inputs.RAGGED_ROWS | inputs.WIDE_ROWS)
def test_forward_ragged(check, rng, shape):
    """weighted_sum_forward is right for every shape: no size is a multiple of a tile"""
    x, weight = row_inputs(rng, shape)
    check("weighted_sum_forward", x, weight, expected=models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@inputs.cases(inputs.RAGGED_ROWS | inputs.WIDE_ROWS)
def test_backward_ragged(check, rng, shape):
    """weighted_sum_backward is right for every shape: no size is a multiple of a tile"""
    tensors = backward_inputs(rng, shape)
    check("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("dtype", inputs.LOW_PRECISION)
def test_forward_16_bit(check, rng, dtype):
    """weighted_sum_forward takes bfloat16 and float16, adds in float32 and returns the input's dtype"""
    x, weight = row_inputs(rng, (65, 515), dtype)
    check("weighted_sum_forward", x, weight, expected=models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("dtype", inputs.LOW_PRECISION)
def test_backward_16_bit(check, rng, dtype):
    """weighted_sum_backward takes bfloat16 and float16, adds in float32 and returns the input's dtype"""
    tensors = backward_inputs(rng, (515, 65), dtype)
    check("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.5)
@inputs.layouts()
def test_forward_strides(check, rng, layout):
    """weighted_sum_forward reads x and weight through their strides"""
    x, weight = (layout(t) for t in row_inputs(rng, (3, 21, 40)))
    check("weighted_sum_forward", x, weight, expected=models.weighted_sum_forward(x, weight))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("layout", [*inputs.layouts().args[1], pytest.param(None, id="expanded")])
def test_backward_strides(check, rng, layout):
    """weighted_sum_backward reads every input through its strides, the stride 0 of an expanded gradient included"""
    grad_y, x, weight = backward_inputs(rng, (3, 21, 40))
    if layout is None:
        tensors = inputs.expanded(inputs.expanded(grad_y, 0), 1), inputs.expanded(x, 1), weight
    else:
        tensors = layout(grad_y), layout(x), layout(weight)
    check("weighted_sum_backward", *tensors, expected=models.weighted_sum_backward(*tensors))


@pytest.mark.points(0.5)
@pytest.mark.parametrize("scale", [pytest.param(1e15, id="large values"), pytest.param(1e-15, id="tiny values")])
def test_outliers(check, rng, scale):
    """weighted_sum_forward keeps small rows beside large ones, and terms that cancel"""
    x, weight = row_inputs(rng, (67, 130))
    weight[65:] = weight[:65]
    x[:, 65:] = -x[:, :65] + x[:, 65:] / 64
    x[::2] *= scale
    check("weighted_sum_forward", x, weight, expected=models.weighted_sum_forward(x, weight))


@pytest.mark.points(1)
@pytest.mark.parametrize("shape", [pytest.param((2, 9, 24), id="ordinary"), pytest.param((0, 24), id="empty batch")])
def test_contract(check_contract, rng, shape):
    """Both passes leave inputs and earlier results alone; an empty batch gives empty results"""
    first, second = backward_inputs(rng, shape), backward_inputs(rng, shape)
    for function, expected, start in (
        ("weighted_sum_forward", models.weighted_sum_forward, 1),
        ("weighted_sum_backward", models.weighted_sum_backward, 0),
    ):
        a, b = first[start:], second[start:]
        check_contract(function, a, b, expected(*a), expected(*b))


@pytest.mark.points(0.5)
def test_mistakes(run, rng):
    """Each function raises ValueError for a weight of another length than the rows of x"""
    grad_y, x, weight = backward_inputs(rng, (4, 24))
    run.raises(ValueError, "weighted_sum_forward", x, weight[:23])
    run.raises(ValueError, "weighted_sum_backward", grad_y, x, weight[:23])
    run.raises(ValueError, "weighted_sum", x[:, :23], weight)


@pytest.mark.points(1)
@pytest.mark.parametrize(
    "ask",
    [
        pytest.param({}, id=".sum().backward()"),
        pytest.param({"wrt": (0,)}, id="x only"),
        pytest.param({"wrt": (1,)}, id="weight only"),
        pytest.param({"times": 2}, id="twice with retain_graph"),
    ],
)
def test_autograd(check, check_gradients, rng, ask):
    """weighted_sum is differentiable, for all inputs or only some, as often as asked"""
    x, weight = row_inputs(rng, (3, 19, 40))
    check("weighted_sum", x, weight, expected=models.weighted_sum_forward(x, weight))
    expected = models.weighted_sum_backward(torch.ones(3, 19), x, weight)
    wanted = {name: e for i, (name, e) in enumerate(expected.items()) if i in ask.get("wrt", (0, 1))}
    check_gradients("weighted_sum", x, weight, expected=wanted, **ask)
