"""LayerNorm: y = (x − mean) · rstd · w + b, rstd = 1/√(mean((x − mean)²) + eps), and its gradients."""

import torch

from tests import rows
from tests.families import Subject, built, gradients, shapes, values
from tests.inputs import between, cancelling, normal, repeated
from tests.layernorm import models, oracle
from tests.rows import Pass, batches_of_rows, long_matrix, shifted_inputs, wide_batches, wide_matrix

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


test_forward_values = values(
    4, "layernorm_forward returns (x − mean) · rstd · w + b, mean and rstd in float32", FORWARD, rows.PLAIN
)
test_backward_values = values(
    4, "layernorm_backward returns the gradients of x, weight and bias in float32", BACKWARD, rows.PLAIN
)
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
test_forward_outliers = values(
    0.25, "layernorm_forward keeps very large, large and one-spike rows apart", FORWARD, built([outliers])
)
test_backward_outliers = values(
    0.25, "layernorm_backward keeps large, small and one-spike rows apart", BACKWARD, built([backward_outliers])
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
# In float16 the sum of the squares of large rows is beyond the largest value, 65,504.
globals().update(
    rows.checks(
        "layernorm",
        Pass(
            FORWARD,
            shapes({"large rows": wide_matrix}),
            ["x"],
            ["y", "mean", "rstd"],
            reach=0.75,
            plain=PLAIN_FORWARD,
        ),
        Pass(
            BACKWARD,
            shapes({"large rows": long_matrix}) | built([rows_that_cancel, gradient_along_x]),
            ["grad_y", "x"],
            ["grad_x"],
            reach=0.6,
            plain=PLAIN_BACKWARD,
        ),
    )
)
