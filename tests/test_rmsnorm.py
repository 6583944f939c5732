"""RMSNorm: y = x · rstd · w, rstd = 1/√(mean(x²) + eps), and its gradients."""

import pytest
import torch

from tests import inputs, layouts, models, oracle, precision
from tests.inputs import batches_of_rows, drawn, normal, row_inputs, wide_batches, wide_matrix

pytestmark = pytest.mark.problem("rmsnorm")


def large_inputs(rng, shape, dtype=torch.float32):
    """x so large that eps does not matter: a wrong eps costs the check of eps, and no other."""
    x, weight = row_inputs(rng, shape, dtype)
    return 32 * x, weight


def backward_inputs(rng, shape, dtype=torch.float32, eps=1e-5):
    """grad_y, x, weight and the rstd of a correct forward pass."""
    x, weight = large_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, weight, oracle.rmsnorm_forward(x, weight, eps)[1].float()


@pytest.mark.points(4)
@inputs.cases(inputs.PLAIN_ROWS)
def test_forward_values(check, rng, shape):
    """rmsnorm_forward returns x · rstd · w and rstd in float32"""
    x, weight = large_inputs(rng, shape)
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(4)
@inputs.cases(inputs.PLAIN_ROWS)
def test_backward_values(check, rng, shape):
    """rmsnorm_backward returns the gradients of x and weight in float32"""
    tensors = backward_inputs(rng, shape)
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(1)
@inputs.cases(inputs.RAGGED_ROWS)
def test_forward_ragged(check, rng, shape):
    """rmsnorm_forward is right for every shape; the mean is over d, not over a padded tile"""
    x, weight = large_inputs(rng, shape)
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(1)
@inputs.cases(inputs.RAGGED_ROWS)
def test_backward_ragged(check, rng, shape):
    """rmsnorm_backward is right for every shape; the mean is over d, not over a padded tile"""
    tensors = backward_inputs(rng, shape)
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.5)
@inputs.cases(inputs.WIDE_ROWS)
def test_forward_wide(check, rng, shape):
    """rmsnorm_forward takes rows wider than any block"""
    x, weight = large_inputs(rng, shape)
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(0.5)
@inputs.cases(inputs.WIDE_ROWS)
def test_backward_wide(check, rng, shape):
    """rmsnorm_backward takes rows wider than any block"""
    tensors = backward_inputs(rng, shape)
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.5)
@pytest.mark.parametrize(
    "options", [pytest.param({}, id="default"), *(pytest.param({"eps": eps}, id=f"{eps}") for eps in (1e-5, 1e-2, 0.5))]
)
def test_eps(check, rng, options):
    """rmsnorm_forward adds eps to the mean of the squares, under the root; rows range from tiny to large"""
    x, weight = row_inputs(rng, (128, 128) if "eps" in options else wide_matrix)
    x *= torch.logspace(-5, 2, len(x)).unsqueeze(-1)
    x[7] = 0
    check("rmsnorm_forward", x, weight, **options, expected=lambda: models.rmsnorm_forward(x, weight, **options))


@pytest.mark.points(0.5)
@precision.LOW_PRECISION
def test_forward_16_bit(check, rng, dtype):
    """rmsnorm_forward takes bfloat16 and float16, sums in float32 and returns rstd in float32"""
    # The sum of the squares is beyond float16, whose largest value is 65,504.
    x, weight = large_inputs(rng, wide_matrix, dtype)
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(0.5)
@precision.rmsnorm_backward
@precision.LOW_PRECISION
def test_backward_16_bit(check, rng, dtype, build):
    """rmsnorm_backward takes bfloat16 and float16 and sums in float32"""
    tensors = build(rng, dtype)
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.5)
@layouts.rows_forward
@layouts.rows
def test_forward_strides(check, rng, shape, layout):
    """rmsnorm_forward reads x and weight through their strides"""
    x, weight = layout(large_inputs(rng, shape))
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(0.5)
@layouts.rows_backward
@layouts.rows
def test_backward_strides(check, rng, shape, layout):
    """rmsnorm_backward reads its inputs through their strides, also of stride 0"""
    tensors = layout(backward_inputs(rng, shape))
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.25)
@layouts.rows_forward_offsets
@layouts.rows
def test_forward_offsets(check, rng, memory_bytes, shape, layout):
    """rmsnorm_forward has 64-bit offsets, for x that reaches over 2³¹ elements"""
    x, weight = layout(large_inputs(rng, shape), memory_bytes)
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(0.25)
@layouts.rmsnorm_backward_offsets
@layouts.rows
def test_backward_offsets(check, rng, memory_bytes, shape, layout):
    """rmsnorm_backward has 64-bit offsets, for inputs that reach over 2³¹ elements"""
    tensors = layout(backward_inputs(rng, shape), memory_bytes)
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.5)
def test_forward_outliers(check, rng):
    """rmsnorm_forward keeps very large, large and one-spike rows apart"""
    x, weight = row_inputs(rng, wide_matrix)
    x[::4] *= 1e8
    x[1::4] *= 1e4
    x[2::4, 5] = 1e6
    check("rmsnorm_forward", x, weight, expected=lambda: models.rmsnorm_forward(x, weight))


@pytest.mark.points(0.5)
def test_backward_outliers(check, rng):
    """rmsnorm_backward keeps large, small and one-spike rows apart"""
    x, weight = row_inputs(rng, wide_matrix)
    x[::4] *= 1e3
    x[1::4] *= 1e-2
    x[2::4, 5] = 1e3
    rstd = oracle.rmsnorm_forward(x, weight)[1].float()
    tensors = normal(rng, *x.shape), x, weight, rstd
    check("rmsnorm_backward", *tensors, expected=lambda: models.rmsnorm_backward(*tensors))


@pytest.mark.points(0.5)
@inputs.row_batches()
def test_forward_contract(check_contract, rng, shape):
    """rmsnorm_forward leaves inputs and earlier results alone; an empty batch gives empty results"""
    shape = drawn(shape, rng)
    first, second = large_inputs(rng, shape), large_inputs(rng, shape)
    expected = models.rmsnorm_forward(*first), models.rmsnorm_forward(*second)
    check_contract("rmsnorm_forward", first, second, *expected)


@pytest.mark.points(0.5)
@inputs.row_batches()
def test_backward_contract(check_contract, rng, shape):
    """rmsnorm_backward leaves inputs and earlier results alone; an empty batch gives a zero grad_weight"""
    shape = drawn(shape, rng)
    first, second = backward_inputs(rng, shape), backward_inputs(rng, shape)
    expected = models.rmsnorm_backward(*first), models.rmsnorm_backward(*second)
    check_contract("rmsnorm_backward", first, second, *expected)


@pytest.mark.points(0.25)
def test_forward_mistakes(run, rng):
    """rmsnorm_forward raises ValueError for a weight of another length than the rows of x"""
    x, weight = row_inputs(rng, (4, 24))
    run.raises(ValueError, "rmsnorm_forward", x, weight[:23])
    run.raises(ValueError, "rmsnorm_forward", x[:, :23], weight)


@pytest.mark.points(0.25)
def test_backward_mistakes(run, rng):
    """rmsnorm_backward raises ValueError for a weight of another length than the rows of x"""
    grad_y, x, weight, rstd = backward_inputs(rng, (4, 24))
    run.raises(ValueError, "rmsnorm_backward", grad_y, x, weight[:23], rstd)
    run.raises(ValueError, "rmsnorm_backward", grad_y, x[:, :23], weight, rstd)


@pytest.mark.points(0.5)
@pytest.mark.parametrize(
    "options", [pytest.param({}, id="default"), *(pytest.param({"eps": eps}, id=f"{eps}") for eps in (1e-5, 0.25))]
)
def test_value(check, rng, options):
    """rmsnorm returns the y of rmsnorm_forward, and passes eps on"""
    x, weight = row_inputs(rng, batches_of_rows if options else wide_batches)
    x[::2] *= 1e-3  # where the default eps shows
    check("rmsnorm", x, weight, **options, expected=lambda: {"y": models.rmsnorm_forward(x, weight, **options)["y"]})


@pytest.mark.points(0.5)
@pytest.mark.parametrize("ask", [*inputs.ROW_GRADIENTS, pytest.param({"options": {"eps": 0.25}}, id="another eps")])
def test_gradients(check_gradients, rng, ask):
    """rmsnorm is differentiable, for all inputs or only some, as often as asked"""
    shape, ask = inputs.shape_of(ask, batches_of_rows)
    x, weight = row_inputs(rng, shape)
    grad_y = inputs.incoming(normal(rng, *x.shape), ask)
    rstd = oracle.rmsnorm_forward(x, weight, **ask.get("options", {}))[1].float()
    expected = models.rmsnorm_backward(grad_y, x, weight, rstd)
    check_gradients("rmsnorm", x, weight, grad=grad_y, expected=expected, **ask)
