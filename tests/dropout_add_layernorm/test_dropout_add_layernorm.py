"""Dropout, residual and LayerNorm: summed = residual + keep · x / (1 − p), y = LayerNorm(summed), and the gradients."""

import pytest
import torch

from tests import layouts, rows
from tests.compare import Mismatch, worst_margin
from tests.dropout_add_layernorm import models, oracle
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
    laid_out,
    mistakes,
    shapes,
    speed,
    traffic,
    values,
    with_options,
)
from tests.inputs import cancelling, normal, repeated
from tests.rows import batches_of_rows, long_matrix, shifted_inputs, wide_batches, wide_matrix

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


def expanded_inputs(tensors):
    """Every row of x and of the residual is the first, with stride 0."""
    return [*rows.expanded_x(tensors[:2]), *tensors[2:]]


def expanded_summed(tensors):
    grad_y, summed, *others = tensors
    return [grad_y, *rows.expanded_x([summed]), *others]


def rows_that_cancel(rng, dtype):
    """The shares of some 2,000 rows in grad_weight and grad_bias cancel."""
    x, residual, weight, bias = large_inputs(rng, rows.many_rows, dtype)
    grad_y = cancelling(rng, *x.shape, dtype=dtype)
    given = after_forward(grad_y, x, residual, weight, bias, **USUAL["p = 0.25"])
    return given[0], repeated(given[1]), given[2], *(repeated(each.unsqueeze(-1)).squeeze(-1) for each in given[3:])


SHAPES = rows.SHAPES
FORWARD_STRIDES = layouts.each({"x and residual expanded": expanded_inputs})
BACKWARD_STRIDES = layouts.each({"expanded gradient": layouts.expanded_gradient, "summed expanded": expanded_summed})
FORWARD_OFFSETS = layouts.far({"x": (0, layouts.ROWS), "the residual": (1, layouts.ROWS)})
BACKWARD_OFFSETS = layouts.far({"the gradient": (0, layouts.ROWS), "summed": (1, layouts.ROWS)})
FORWARD_MISTAKES = {
    "residual of fewer rows": lambda x, residual, *vectors: (x, residual[:-1], *vectors),
    "weight too short": lambda x, residual, weight, bias: (x, residual, weight[:-1], bias),
    "bias too short": lambda x, residual, weight, bias: (x, residual, weight, bias[:-1]),
}
BACKWARD_MISTAKES = {
    "weight too short": lambda grad, summed, weight, *left: (grad, summed, weight[:-1], *left),
    "rows too short": lambda grad, summed, *others: (grad, summed[:, :-1], *others),
}
GRADIENTS = rows.GRADIENTS | {
    "weight only": {"wrt": (2,)},
    "residual only": {"wrt": (1,)},
    "another p, seed and eps": {"options": {"p": 0.5, "seed": 77, "eps": 0.25}},
}
N = 1 << 27  # elements of x: a quarter of a GB in bfloat16, of four such tensors
RACED = {f"{d}": Case((N // d, d), torch.bfloat16) for d in (1024, 4096, 8192)}

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
    with_options(SHAPES, DROPPED),
)
test_backward_mask = values(
    0.5,
    "dropout_add_layernorm_backward drops what the forward pass with this seed has dropped",
    BACKWARD,
    with_options(SHAPES, DROPPED),
)
test_forward_ragged = values(
    0.5,
    "dropout_add_layernorm_forward is right for every shape: i counts the elements of x, not of padded tiles",
    FORWARD,
    with_options(rows.RAGGED, USUAL),
)
test_backward_ragged = values(
    0.5,
    "dropout_add_layernorm_backward is right for every shape: i counts the elements of x, not of padded tiles",
    BACKWARD,
    with_options(rows.RAGGED, USUAL),
)
test_forward_wide = values(
    0.5, "dropout_add_layernorm_forward takes rows wider than any block", FORWARD, with_options(rows.WIDE, USUAL)
)
test_backward_wide = values(
    0.5, "dropout_add_layernorm_backward takes rows wider than any block", BACKWARD, with_options(rows.WIDE, USUAL)
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
# The sum of the squares is beyond float16, whose largest value is 65,504.
test_forward_16_bit = values(
    0.5,
    "dropout_add_layernorm_forward takes bfloat16 and float16 and sums in float32",
    FORWARD,
    with_options(in_dtypes(shapes({"large rows": wide_matrix}), LOW_PRECISION), USUAL),
)
test_backward_16_bit = values(
    0.5,
    "dropout_add_layernorm_backward takes bfloat16 and float16 and sums in float32",
    BACKWARD,
    with_options(in_dtypes(shapes({"large rows": long_matrix}) | built([rows_that_cancel]), LOW_PRECISION), USUAL),
)
test_forward_strides = values(
    0.5,
    "dropout_add_layernorm_forward reads its inputs through their strides; i is the index in x, not in memory",
    FORWARD,
    with_options(laid_out(SHAPES, FORWARD_STRIDES), USUAL),
)
test_backward_strides = values(
    0.5,
    "dropout_add_layernorm_backward reads its inputs through their strides, also of stride 0",
    BACKWARD,
    with_options(laid_out(SHAPES, BACKWARD_STRIDES), USUAL),
)
test_forward_offsets = values(
    0.25,
    "dropout_add_layernorm_forward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    FORWARD,
    with_options(laid_out(SHAPES, FORWARD_OFFSETS), USUAL),
)
test_backward_offsets = values(
    0.25,
    "dropout_add_layernorm_backward has 64-bit offsets, for inputs that reach over 2³¹ elements",
    BACKWARD,
    with_options(laid_out(SHAPES, BACKWARD_OFFSETS), USUAL),
)
test_forward_contract = contract(
    0.25,
    "dropout_add_layernorm_forward leaves inputs and earlier results alone; an empty batch gives empty results",
    FORWARD,
    with_options(rows.BATCHES, USUAL),
)
test_backward_contract = contract(
    0.25,
    "dropout_add_layernorm_backward leaves inputs and earlier results alone; an empty batch gives zero gradients",
    BACKWARD,
    with_options(rows.BATCHES, USUAL),
)
test_forward_mistakes = mistakes(
    0.25,
    "dropout_add_layernorm_forward raises ValueError where the shapes do not fit together",
    FORWARD,
    rows.MISTAKE_SHAPE,
    FORWARD_MISTAKES,
)
test_backward_mistakes = mistakes(
    0.25,
    "dropout_add_layernorm_backward raises ValueError where the shapes do not fit together",
    BACKWARD,
    rows.MISTAKE_SHAPE,
    BACKWARD_MISTAKES,
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
test_forward_traffic = traffic(
    0.5,
    "dropout_add_layernorm_forward reads x and residual once and writes y and summed once",
    PLAIN_FORWARD,
    with_options(in_dtypes(rows.COSTLY, DTYPES), USUAL),
    read=["x", "residual"],
    written=["y", "summed"],
)
test_backward_traffic = traffic(
    0.5,
    "dropout_add_layernorm_backward reads grad_y and summed once and writes grad_x and grad_residual once",
    BACKWARD,
    with_options(in_dtypes(rows.COSTLY, DTYPES), USUAL),
    read=["grad_y", "summed"],
    written=["grad_x", "grad_residual"],
)


@pytest.mark.points(0.5)
@pytest.mark.problem("dropout_add_layernorm")
def test_nothing_of_the_mask_is_kept(run, rng, record_property):
    """dropout_add_layernorm keeps summed and two numbers a row for its backward pass, and no mask"""
    inputs = forward_inputs(rng, wide_matrix)
    nbytes, got = run.kept_bytes(FUNCTION, *inputs, p=0.25, seed=1234)
    expected = autograd_model(torch.ones_like(inputs[0]), *inputs, p=0.25, seed=1234)
    record_property("margin", worst_margin(got, expected))
    x = inputs[0]
    allowed = x.numel() * x.itemsize + 2 * 4 * len(x) + x.numel() // 16
    if nbytes > allowed:
        raise Mismatch(
            f"{nbytes:,} bytes are kept for the backward pass beside the inputs and y, and {allowed:,} may be: a sum, "
            "two numbers a row, and half a bit an element\n  the seed tells the mask again"
        )


test_compiles = compiles(
    0.5,
    "dropout_add_layernorm's kernels compile and fit on A100, H100 and B200",
    [PLAIN_FORWARD, BACKWARD],
    with_options(in_dtypes(rows.COMPILED, DTYPES), USUAL),
)
test_forward_speed = speed(
    0.75,
    "dropout_add_layernorm_forward reads and writes memory at 35 % of a copy's speed",
    RACED,
    against="copying",
    reach=0.35,
)
test_backward_speed = speed(
    0.75,
    "dropout_add_layernorm_backward reads and writes memory at 30 % of a copy's speed",
    RACED,
    against="copying",
    reach=0.3,
)
