"""Dropout, residual and LayerNorm: summed = residual + keep · x / (1 − p), y = LayerNorm(summed), and the gradients."""

import pytest
import torch

from tests import rows
from tests.compare import Mismatch, worst_margin
from tests.dropout_add_layernorm import models, oracle
from tests.families import Subject, built, gradients, shapes, values, with_options
from tests.inputs import cancelling, normal, repeated
from tests.rows import Pass, batches_of_rows, long_matrix, shifted_inputs, wide_batches, wide_matrix

LARGE = 32  # times ordinary values: eps does not matter, so that a wrong one costs the check of eps, and no other
USUAL = {"p = 0.25": {"p": 0.25, "seed": 1234}}
DROPPED = {
    "p = 0": {"p": 0.0, "seed": 5},
    "p = 0.5": {"p": 0.5, "seed": 0},
    "p near 1": {"p": 0.998, "seed": 99},
    "a seed of more than 32 bits": {"p": 0.25, "seed": (3 << 40) + 17},
}


def forward_inputs(rng, shape, dtype=torch.float32, **options):
    """x of other sizes than the residual, so that one in place of the other shows."""
    residual, weight, bias = shifted_inputs(rng, shape, dtype)
    return (2 * normal(rng, *residual.shape)).to(dtype), residual, weight, bias


def large_inputs(rng, shape, dtype=torch.float32, **options):
    x, residual, weight, bias = forward_inputs(rng, shape, dtype)
    return LARGE * x, LARGE * residual, weight, bias


def after_forward(grad_y, x, residual, weight, bias, **options):
    """What a right forward pass hands to the backward one."""
    _, summed, mean, rstd = oracle.dropout_add_layernorm_forward(x, residual, weight, bias, **options)
    return grad_y, summed.to(x.dtype), weight, mean.float(), rstd.float()


def large_backward_inputs(rng, shape, dtype=torch.float32, **options):
    inputs = large_inputs(rng, shape, dtype)
    return after_forward(normal(rng, *inputs[0].shape, dtype=dtype), *inputs, **options)


def autograd_inputs(rng, shape, dtype=torch.float32, **options):
    x, residual, weight, bias = forward_inputs(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x, residual, weight, bias


def autograd_model(grad_y, x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    given = after_forward(grad_y, x, residual, weight, bias, p=p, seed=seed, eps=eps)
    return models.dropout_add_layernorm_backward(*given, p=p, seed=seed)


def y_alone(*tensors, **options):
    return {"y": models.dropout_add_layernorm_forward(*tensors, **options)["y"]}


def small_rows(rng, shape, dtype=torch.float32, **options):
    x, residual, weight, bias = forward_inputs(rng, shape, dtype)
    return rows.every_other_small(x), rows.every_other_small(residual), weight, bias


def rows_of_all_sizes(rng, shape, dtype=torch.float32, **options):
    x, residual, weight, bias = forward_inputs(rng, shape, dtype)
    return rows.of_all_sizes(x), rows.of_all_sizes(residual), weight, bias


def far_from_zero(rng, shape, dtype=torch.float32, **options):
    """Sums of deviation 3 about ±10⁴."""
    x, residual, weight, bias = forward_inputs(rng, shape, dtype)
    return x, residual + 1e4 * normal(rng, *x.shape[:-1], 1).sign(), weight, bias


FUNCTION = "dropout_add_layernorm"
FORWARD = Subject(f"{FUNCTION}_forward", large_inputs, models.dropout_add_layernorm_forward)
BACKWARD = Subject(f"{FUNCTION}_backward", large_backward_inputs, models.dropout_add_layernorm_backward)
PLAIN_FORWARD = Subject(f"{FUNCTION}_forward", forward_inputs, models.dropout_add_layernorm_forward)
EPS = Subject(f"{FUNCTION}_forward", rows_of_all_sizes, models.dropout_add_layernorm_forward)
CANCELLING = Subject(f"{FUNCTION}_forward", far_from_zero, models.dropout_add_layernorm_forward)
AUTOGRAD = Subject(FUNCTION, small_rows, y_alone)
GRADIENT = Subject(FUNCTION, autograd_inputs, autograd_model)


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_weight and grad_bias cancel."""
    x, residual, weight, bias = large_inputs(rng, rows.many_rows, dtype)
    grad_y = cancelling(rng, *x.shape, dtype=dtype)
    given = after_forward(grad_y, x, residual, weight, bias, **USUAL["p = 0.25"])
    return given[0], repeated(given[1]), given[2], *(repeated(each.unsqueeze(-1)).squeeze(-1) for each in given[3:])


GRADIENTS = rows.GRADIENTS | {
    "weight only": {"wrt": (2,)},
    "residual only": {"wrt": (1,)},
    "another p, seed and eps": {"options": {"p": 0.5, "seed": 77, "eps": 0.25}},
}

test_forward_values = values(
    4,
    "dropout_add_layernorm_forward returns y, summed, mean and rstd in float32",
    FORWARD,
    with_options(rows.PLAIN, USUAL),
)
test_backward_values = values(
    4,
    "dropout_add_layernorm_backward returns the gradients of x, residual, weight and bias in float32",
    BACKWARD,
    with_options(rows.PLAIN, USUAL),
)
test_forward_mask = values(
    0.5,
    "dropout_add_layernorm_forward keeps element i where tl.rand(seed, i) ≥ p, from p = 0 to p near 1",
    FORWARD,
    with_options(rows.SHAPES, DROPPED),
)
test_backward_mask = values(
    0.5,
    "dropout_add_layernorm_backward drops what the forward pass with this seed has dropped",
    BACKWARD,
    with_options(rows.SHAPES, DROPPED),
)
test_forward_rstd = values(
    0.5,
    "dropout_add_layernorm_forward adds eps to the variance, under the root; rows range from tiny to large",
    EPS,
    rows.of_eps((128, 128), wide_matrix, 1e-5, 1e-2, 0.5),
)
test_forward_far = values(
    0.5,
    "dropout_add_layernorm_forward finds the variance of rows whose mean is thousands of times their deviation",
    CANCELLING,
    with_options(shapes({"a matrix": wide_matrix}), USUAL),
)
test_value = values(
    0.5,
    "dropout_add_layernorm returns the y of its forward pass, and passes eps on",
    AUTOGRAD,
    rows.of_eps(batches_of_rows, wide_batches, 1e-5, 0.25),
)
test_gradients = gradients(
    0.5,
    "dropout_add_layernorm is differentiable, for all inputs or only some, as often as asked",
    GRADIENT,
    rows.USUAL_GRADIENT,
    GRADIENTS,
)
# In float16 the sum of the squares of large rows is beyond the largest value, 65,504.
globals().update(
    rows.checks(
        "dropout_add_layernorm",
        Pass(
            FORWARD,
            shapes({"large rows": wide_matrix}),
            ["x", "residual"],
            ["y", "summed"],
            reach=0.35,
            plain=PLAIN_FORWARD,
            ways=USUAL,
        ),
        Pass(
            BACKWARD,
            shapes({"large rows": long_matrix}) | built([rows_that_cancel]),
            ["grad_y", "summed"],
            ["grad_x", "grad_residual"],
            reach=0.3,
            ways=USUAL,
        ),
        elements=1 << 27,  # of four such tensors
        but={
            "forward_speed": (0.75, "reads and writes memory at a third of a copy's speed, for all its random numbers"),
            "backward_speed": (0.75, "reads and writes memory at 30 % of a copy's speed, for all its random numbers"),
        },
    )
)


@pytest.mark.points(0.5)
@pytest.mark.problem("dropout_add_layernorm")
def test_nothing_of_the_mask_is_kept(run, rng, record_property):
    """dropout_add_layernorm keeps summed and two numbers a row for its backward pass, and no mask"""
    inputs = forward_inputs(rng, wide_matrix)
    nbytes, got = run.kept_bytes(FUNCTION, *inputs, p=0.25, seed=1234)
    expected = autograd_model(torch.ones_like(inputs[0]), *inputs, p=0.25, seed=1234)
    record_property("margin", worst_margin(got, expected, run.has_exact_margins))
    x = inputs[0]
    allowed = x.numel() * x.itemsize + 2 * 4 * len(x) + x.numel() // 16
    if nbytes > allowed:
        raise Mismatch(
            f"{nbytes:,} bytes are kept for the backward pass beside the inputs and y, and {allowed:,} may be: a sum, "
            "two numbers a row, and half a bit an element\n  the seed tells the mask again"
        )
