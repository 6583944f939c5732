"""What can go wrong with a row of RMSNorm's forward pass: its mean, its tiles, what is rounded or cut off."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, padded_width
from assignment.operators.rmsnorm.misconceptions.forward_model import (
    ALGORITHM,
    MATH,
    NUMBERS,
    Forward,
    usual_rstd,
    with_rstds,
)
from assignment.operators.rows import WIDTHS, Variants, in_dtype, several


def forward(**changes: Any) -> Variants:
    return lambda call: iter([Forward(**changes)(call)])


def mean_of(count: Callable[[int], float]) -> Callable[[Tensor, float], Tensor]:
    """The sum of squares over another number of elements."""
    return lambda x, eps: (x.square().sum(-1, keepdim=True) / count(x.shape[-1]) + eps).rsqrt()


def first_columns(call: Call) -> Iterator[Sequence[Tensor]]:
    """Sums of the first tile of columns, in all the ways that they can be divided; all of y, or that of the tile."""
    d = call.tensors[0].shape[-1]
    for width in (width for width in WIDTHS if width < d):
        for count in (width, d):
            yield Forward(
                rstd=lambda x, eps, w=width, n=count: (x[..., :w].square().sum(-1, keepdim=True) / n + eps).rsqrt()
            )(call)


def last_columns(call: Call) -> Iterator[Sequence[Tensor]]:
    d = call.tensors[0].shape[-1]
    for width in (width for width in WIDTHS if width < d):
        start = (d - 1) // width * width
        yield Forward(rstd=lambda x, eps, s=start: (x[..., s:].square().sum(-1, keepdim=True) / d + eps).rsqrt())(call)


def y_of_one_tile(call: Call) -> Iterator[Sequence[Tensor]]:
    """Every tile of y computed from the columns of x in the last one."""
    d = call.tensors[0].shape[-1]
    for width in (width for width in WIDTHS if width < d):
        last = (d - 1) // width * width

        def y(x: Tensor, rstd: Tensor, weight: Tensor, width: int = width, last: int = last) -> Tensor:
            columns = last + torch.arange(x.shape[-1]) % width
            inside = columns < x.shape[-1]
            return x[..., columns.clamp(max=x.shape[-1] - 1)] * inside * rstd * weight

        yield Forward(y=y)(call)


MISCONCEPTIONS = [
    Misconception(
        "mean-over-the-padded-row",
        "Your result equals RMSNorm with the mean over the padded row: the sum is divided by the tile's width",
        "A tile is wider than the row: how many elements does the mean have?",
        ALGORITHM,
        lambda call: (
            Forward(rstd=mean_of(count))(call)
            for count in (padded_width, *(lambda d, w=width: -(-d // w) * w for width in WIDTHS))
        ),
    ),
    Misconception(
        "sum-for-mean",
        "Your result equals RMSNorm with the sum of squares in place of their mean",
        "Root mean square: by what is the sum divided?",
        MATH,
        with_rstds(mean_of(lambda d: 1)),
    ),
    Misconception(
        "mean-over-d-minus-1",
        "Your result equals RMSNorm with the sum of squares divided by d − 1",
        "The mean of d squares is their sum divided by d.",
        MATH,
        lambda call: iter([Forward(rstd=mean_of(lambda d: d - 1))(call)] if call.tensors[0].shape[-1] > 1 else []),
    ),
    Misconception(
        "mean-subtracted",
        "Your result equals LayerNorm's: the row's mean is subtracted",
        "RMSNorm subtracts nothing.",
        MATH,
        several(
            lambda call: (
                Forward(rstd=rstd, y=y)(call)
                for rstd in (usual_rstd, lambda x, eps: usual_rstd(x - x.mean(-1, keepdim=True), eps))
                for y in (
                    lambda x, rstd, weight: (x - x.mean(-1, keepdim=True)) * rstd * weight,
                    lambda x, rstd, weight: x * rstd * weight,
                )
            )
        ),
    ),
    Misconception(
        "weight-forgotten",
        "Your y equals RMSNorm's without the weight",
        "y = x · rstd · w.",
        MATH,
        forward(y=lambda x, rstd, weight: x * rstd + 0 * weight),
    ),
    Misconception(
        "rstd-not-inverted",
        "Your rstd is the root itself, or its square, instead of one over the root",
        "rstd = 1/√(mean + eps): y multiplies with it.",
        MATH,
        several(
            *(
                several(
                    forward(rstd=way), lambda call, way=way: iter([(Forward()(call)[0], Forward(rstd=way)(call)[1])])
                )
                for way in (
                    lambda x, eps: 1 / usual_rstd(x, eps),
                    lambda x, eps: 1 / usual_rstd(x, eps) ** 2,
                    lambda x, eps: usual_rstd(x, eps) ** 2,
                )
            )
        ),
    ),
    Misconception(
        "one-tile-of-columns",
        "Your result equals RMSNorm with the squares of one tile of columns only",
        "Is the sum overwritten by every tile, or does the loop end after the first?",
        ALGORITHM,
        several(first_columns, last_columns),
    ),
    Misconception(
        "y-from-the-last-tile",
        "Your y is computed from the last tile of x, whatever its column",
        "Which tile of x is in registers when y is computed?",
        ALGORITHM,
        y_of_one_tile,
    ),
    Misconception(
        "squares-in-16-bits",
        "Your result equals RMSNorm whose squares, or their sum, are rounded to the inputs' 16 bits",
        "Cast x to float32 as it is loaded.",
        NUMBERS,
        in_dtype(
            lambda call, cast: Forward(rstd=lambda x, eps: (cast(x.square()).mean(-1, keepdim=True) + eps).rsqrt())(
                call
            )
        ),
    ),
    Misconception(
        "rstd-in-16-bits",
        "Your result equals RMSNorm with rstd rounded to the inputs' 16 bits",
        "rstd is float32 whatever the inputs are, in y and as a result.",
        NUMBERS,
        several(
            in_dtype(lambda call, cast: Forward(used=cast)(call)),
            in_dtype(lambda call, cast: Forward(returned=cast)(call)),
            in_dtype(lambda call, cast: Forward(used=cast, returned=cast)(call)),
        ),
    ),
    Misconception(
        "rstd-limited",
        "Your result equals RMSNorm in which small values of rstd, or large ones, are cut off",
        "Nothing needs a limit beside eps.",
        MATH,
        with_rstds(
            *(
                lambda x, eps, low=low, high=high: usual_rstd(x, eps).clamp(low, high)
                for low, high in (*((10.0**-i, math.inf) for i in range(1, 9)), *((0.0, 10.0**i) for i in range(1, 9)))
            ),
            *(
                lambda x, eps, most=most: (x.square().mean(-1, keepdim=True).clamp(max=most) + eps).rsqrt()
                for most in (10.0**i for i in range(1, 17))
            ),
        ),
    ),
]
