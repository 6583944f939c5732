"""Softmax over the last dimension, and its gradient, for practice."""

import math

import torch

from tests import rows
from tests.families import Subject, built, built_by, gradients, shapes, values
from tests.inputs import TILE, between, drawn, normal
from tests.rows import Pass, long_matrix, wide_matrix
from tests.softmax import models, oracle


def logits(rng, shape, dtype=torch.float32):
    return [(2 * normal(rng, *drawn(shape, rng))).to(dtype)]


def slopes(rng, shape, dtype=torch.float32):
    """The largest elements at the end of one row, at the beginning of the next: what was summed has to be rescaled."""
    (x,) = logits(rng, shape, dtype)
    rises = torch.arange(x.shape[:-1].numel()).view(*x.shape[:-1], 1) % 2 == 0
    slope = torch.linspace(0, 8, x.shape[-1])
    return [(x.float() + torch.where(rises, slope, slope.flip(-1))).to(dtype)]


def nearly_uniform(rng, dtype):
    """Every element of y is nearly 1/d: a sum in 16 bits stops growing before its end."""
    return [(0.1 * normal(rng, 1, 1 << 18)).to(dtype)]


def with_gradient(rng, x):
    """What a right forward pass hands to the backward one; the gradient has a mean, so that Σ dy·y is not small."""
    y = oracle.softmax_forward(x).to(x.dtype)
    return (normal(rng, *x.shape) + 1).to(x.dtype), y


def backward_inputs(rng, shape, dtype=torch.float32):
    return with_gradient(rng, *logits(rng, shape, dtype))


def backward_slopes(rng, shape, dtype=torch.float32):
    return with_gradient(rng, *slopes(rng, shape, dtype))


def gradient_and_x(rng, shape, dtype=torch.float32):
    (x,) = logits(rng, shape, dtype)
    return normal(rng, *x.shape, dtype=dtype), x


FORWARD = Subject("softmax_forward", logits, models.softmax_forward)
BACKWARD = Subject("softmax_backward", backward_inputs, models.softmax_backward)
AUTOGRAD = Subject("softmax", logits, models.softmax_forward)
GRADIENTS = Subject("softmax_backward", gradient_and_x, models.softmax_gradients)


def masked_rows(rng, dtype):
    """−∞ behind the diagonal, at random, in all of a row but one element, and in a whole row."""
    (x,) = logits(rng, wide_matrix, dtype)
    n_rows, d = x.shape
    x.masked_fill_(torch.ones(n_rows, d, dtype=torch.bool).triu(1), -math.inf)
    x[1::4] = logits(rng, (1, d), dtype)[0].masked_fill(torch.rand(d, generator=rng) < 0.5, -math.inf)
    x[between(rng, 0, n_rows - 1)] = -math.inf
    x[2] = -math.inf
    x[2, between(rng, 0, d - 1)] = 3
    return [x]


def wide_masked_rows(rng, dtype):
    """−∞ in whole blocks at the beginning, at the end, everywhere."""
    (x,) = slopes(rng, (4, between(rng, 17_000, 20_000)), dtype)
    x[0, :16_500] = -math.inf
    x[1, 300:] = -math.inf
    x[2] = -math.inf
    return [x]


def outlying_rows(rng, dtype):
    """Rows far above and far below zero, with one element that takes all, and of equal elements."""
    (x,) = logits(rng, wide_matrix, dtype)
    x[::5] += 1e4
    x[1::5] -= 1e4
    x[2::5, 5] = 1e3
    x[3::5] = -300
    return [x]


def outlying_wide_rows(rng, dtype):
    (x,) = slopes(rng, (4, between(rng, 17_000, 20_000)), dtype)
    x[:2] += torch.tensor([[1e4], [-1e4]])
    x[2, between(rng, 0, x.shape[-1] - 1)] = 1e3
    return [x]


def one_hot_rows(rng, dtype):
    """y is 1 in one place of a row and 0 elsewhere; gradients from tiny to large."""
    x = torch.zeros(TILE, 3 * TILE)
    x[torch.arange(TILE), torch.randint(3 * TILE, (TILE,), generator=rng)] = 1e3
    x[::2] = logits(rng, (TILE // 2, 3 * TILE))[0]
    grad_y, y = with_gradient(rng, x)
    return grad_y * torch.logspace(-6, 6, TILE).unsqueeze(-1), y


def gradient_far_from_zero(rng, dtype):
    """grad_y − Σ dy·y is small beside both: a sum in 16 bits is off by as much."""
    grad_y, y = backward_inputs(rng, wide_matrix, dtype)
    return (grad_y.float() + 500).to(dtype), y


WIDE = rows.WIDE | shapes({"2^20 columns": (1, 1 << 20)})
FITTING = rows.COSTLY | shapes({"8192 columns": (TILE // 8, 8192)})
BEYOND = shapes({"wider than a block": lambda rng: (2, between(rng, 40_000, 50_000))})
DIFFERENT = {
    "fewer rows of the gradient": lambda grad, y: (grad[1:], y),
    "a gradient of another dtype": lambda grad, y: (grad.bfloat16(), y),
}
ASKS = {"ordinary": {}} | {name: ask for name, ask in rows.GRADIENTS.items() if "wrt" not in ask}

test_forward_values = values(4, "softmax_forward returns softmax(x) in float32", FORWARD, rows.PLAIN)
test_backward_values = values(4, "softmax_backward returns the gradient of x in float32", BACKWARD, rows.PLAIN)
test_forward_infinity = values(
    0.5,
    "softmax_forward gives 0 for −∞, also in a row that begins with it, and in a row of nothing else",
    FORWARD,
    built([masked_rows, wide_masked_rows]),
)
test_value = values(0.5, "softmax returns the y of softmax_forward", AUTOGRAD, shapes({"a matrix": wide_matrix}))
test_gradients = gradients(0.5, "softmax is differentiable, as often as asked", GRADIENTS, rows.USUAL_GRADIENT, ASKS)
globals().update(
    rows.checks(
        "softmax",
        Pass(
            FORWARD,
            shapes({"a matrix": wide_matrix}) | built([nearly_uniform]),
            ["x"],
            ["y"],
            reach=0.8,
            wide=built_by(slopes, WIDE),
            costly=FITTING,
            changes={"no dimension": lambda x: (x[0, 0],), "no columns": lambda x: (x[:, :0],)},
            outliers=[outlying_rows, outlying_wide_rows],
            twice=(built_by(slopes, BEYOND), 0.6),
        ),
        Pass(
            BACKWARD,
            shapes({"a matrix": long_matrix}) | built([gradient_far_from_zero]),
            ["grad_y", "y"],
            ["grad_x"],
            reach=0.75,
            wide=built_by(backward_slopes, WIDE),
            costly=FITTING,
            changes=DIFFERENT,
            outliers=[one_hot_rows],
            twice=(built_by(backward_slopes, BEYOND), 0.55),
        ),
        but={
            "forward_strides": 0.25,
            "backward_strides": 0.25,
            "backward_wide": 0.25,
            "forward_speed": 0.75,
            "forward_traffic": (0.25, "reads x once and writes y once, up to 8,192 columns"),
            "backward_traffic": (0.25, "reads grad_y and y once and writes grad_x once, up to 8,192 columns"),
            "backward_speed": (0.5, "reads and writes memory at 75 % of a copy's speed"),
            "forward_outliers": (2, "is right for rows far above and below zero, and where one element takes all"),
            "backward_outliers": (0.25, "is right for one-hot rows, and for gradients from tiny to large"),
            "forward_wide_traffic": (0.25, "reads wider rows at most twice, and writes y once"),
            "backward_wide_traffic": (0.25, "reads wider rows at most twice, and writes grad_x once"),
            "forward_wide_speed": (0.5, "reaches 60 % of a copy's speed for 32,768 columns"),
            "backward_wide_speed": (0.25, "reaches 55 % of a copy's speed for 32,768 columns"),
        },
    )
)
