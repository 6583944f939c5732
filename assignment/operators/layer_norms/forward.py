"""What can go wrong in a LayerNorm's forward pass."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from assignment.operators.layer_norms.forward_ways import (
    halved,
    mean_square,
    merged_without_counts,
    merged_without_steps,
    of_first_columns,
    of_squares,
    over_padded_rows,
    padded_variance,
    roundings_forward,
    several_forward,
    without_mean,
    y_of_one_tile,
)
from assignment.operators.layer_norms.model import (
    ALGORITHM,
    INTERFACE,
    MATH,
    NUMBERS,
    Forward,
    Outputs,
    Told,
    of_chapter,
    rounding,
    usual_rstd,
)
from assignment.operators.misconception import Call, Misconception, exact
from assignment.operators.rows import Variants, padded_counts

FORWARD: list[tuple[Told, Callable[[Tensor], Iterator[Forward]]]] = [
    (
        Told(
            "eps-missing",
            "Your result equals LayerNorm without eps",
            "What keeps the root of a constant row's variance from being 0?",
            MATH,
        ),
        several_forward(Forward(rstd=lambda variance, eps: variance.rsqrt())),
    ),
    (
        Told(
            "eps-outside-the-root",
            "Your result equals LayerNorm with eps added outside of the root",
            "rstd = 1/√(variance + eps): what stands under the root?",
            MATH,
        ),
        several_forward(
            Forward(rstd=lambda variance, eps: 1 / (variance.sqrt() + eps)),
            Forward(rstd=lambda variance, eps: variance.rsqrt() + eps),
        ),
    ),
    (
        Told(
            "eps-fixed",
            "Your result equals LayerNorm with an eps of its own, whatever the argument is",
            "eps is an argument with a default: does it reach the kernel?",
            INTERFACE,
        ),
        several_forward(
            *(
                Forward(rstd=lambda variance, eps, own=own: usual_rstd(variance, own))
                for own in (1e-5, 1e-6, 1e-8, 1e-12, 1e-4, 1e-3)
            )
        ),
    ),
    (
        Told(
            "mean-over-the-padded-row",
            "Your result equals LayerNorm with a mean over the padded row: a sum is divided by the tile's width",
            "A tile is wider than the row: how many elements does a mean have?",
            ALGORITHM,
        ),
        over_padded_rows,
    ),
    (
        Told(
            "padding-in-the-variance",
            "Your result equals LayerNorm with the padding in the variance: there x is 0, and x − mean is not",
            "Mask the differences, not only the load.",
            ALGORITHM,
        ),
        lambda x: (Forward(variance=padded_variance(lambda d, n=count: n)) for count in padded_counts(x.shape[-1])),
    ),
    (
        Told(
            "variance-from-squares",
            "Your result equals LayerNorm with mean(x²) − mean(x)² as the variance: nearly all digits cancel where "
            "the mean is large",
            "Subtract the mean before you square.",
            NUMBERS,
        ),
        several_forward(
            *(
                Forward(variance=of_squares(total, floor))
                for total in (halved, lambda x: x.sum(-1, keepdim=True))
                for floor in (-math.inf, 0.0)
            )
        ),
    ),
    (
        Told(
            "sum-for-mean",
            "Your result equals LayerNorm with a sum over the row in place of a mean",
            "By what is each sum over the row divided?",
            MATH,
        ),
        several_forward(
            Forward(variance=lambda x, mean: (x - mean).square().sum(-1, keepdim=True)),
            Forward(mean=lambda x: x.sum(-1, keepdim=True)),
        ),
    ),
    (
        Told(
            "variance-over-d-minus-1",
            "Your result equals LayerNorm with the variance divided by d − 1",
            "LayerNorm's variance is the mean of d squares: their sum divided by d.",
            MATH,
        ),
        lambda x: iter([Forward(variance=lambda x, mean: x.var(-1, keepdim=True))] if x.shape[-1] > 1 else []),
    ),
    (
        Told(
            "mean-not-subtracted",
            "Your result equals the one without the mean subtracted, in y, in the variance or in both",
            "RMSNorm subtracts nothing, LayerNorm the mean: in the variance, and in y.",
            MATH,
        ),
        several_forward(
            Forward(y=without_mean),
            Forward(variance=mean_square),
            Forward(y=without_mean, variance=mean_square),
        ),
    ),
    (
        Told("weight-forgotten", "Your y equals LayerNorm's without the weight", "y = x̂ · w + b.", MATH),
        several_forward(Forward(y=lambda x, mean, rstd, weight, bias: (x - mean) * rstd + bias)),
    ),
    (
        Told("bias-forgotten", "Your y equals LayerNorm's without the bias", "y = x̂ · w + b.", MATH),
        several_forward(Forward(y=lambda x, mean, rstd, weight, bias: (x - mean) * rstd * weight)),
    ),
    (
        Told(
            "bias-times-the-weight",
            "Your y equals (x̂ + b) · w",
            "y = x̂ · w + b: what is multiplied first?",
            MATH,
        ),
        several_forward(Forward(y=lambda x, mean, rstd, weight, bias: ((x - mean) * rstd + bias) * weight)),
    ),
    (
        Told(
            "weight-and-bias-swapped",
            "Your y equals x̂ · b + w: weight and bias have changed places",
            "Which pointer is which?",
            INTERFACE,
        ),
        several_forward(Forward(y=lambda x, mean, rstd, weight, bias: (x - mean) * rstd * bias + weight)),
    ),
    (
        Told(
            "one-tile-of-columns",
            "Your result equals LayerNorm with mean or variance from one tile of columns only",
            "Is the sum overwritten by every tile, or does the loop end after the first?",
            ALGORITHM,
        ),
        of_first_columns,
    ),
    (
        Told(
            "merged-without-counts",
            "Your mean is a mean of tiles' or lanes' means, all of one weight",
            "Some have fewer columns than others: by what is each mean multiplied when they are merged?",
            NUMBERS,
        ),
        merged_without_counts,
    ),
    (
        Told(
            "merged-without-steps",
            "Your variance is that within tiles, or lanes, alone",
            "What do tiles add whose own means differ from the row's?",
            NUMBERS,
        ),
        merged_without_steps,
    ),
    (
        Told(
            "y-from-the-last-tile",
            "Your y is computed from the last tile of x, whatever its column",
            "Which tile of x is in registers when y is computed?",
            ALGORITHM,
        ),
        y_of_one_tile,
    ),
]


def told_forward(
    chapter: str, apply: Callable[[Call, Forward], Outputs], normalized: Callable[[Call], Tensor]
) -> list[Misconception]:
    """Return the misconceptions of a forward pass.

    Args:
        chapter: the operator's, "layernorm": also before the names, which are unique.
        apply: the results of a call with a LayerNorm like this.
        normalized: what a call normalizes.
    """

    def model(ways: Callable[[Tensor], Iterator[Forward]]) -> Variants:
        return lambda call: (apply(call, way) for way in ways(normalized(call)))

    def in_16_bits(name: str) -> Variants:
        def results(call: Call) -> Iterator[Outputs]:
            if call.dtype != torch.float32:
                cast = rounding(call)
                yield from (apply(call, way) for told, way in roundings_forward(cast) if told.name == name)

        return results

    early = {told.name: told for told, _ in roundings_forward(exact)}.values()
    return [
        *(of_chapter(chapter, told, model(ways)) for told, ways in FORWARD),
        *(of_chapter(chapter, told, in_16_bits(told.name)) for told in early),
    ]
