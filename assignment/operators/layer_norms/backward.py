"""What can go wrong in a LayerNorm's backward pass."""

from collections.abc import Callable, Iterator

import torch

from assignment.operators.layer_norms.backward_ways import (
    of_means,
    of_one_tile_backward,
    of_some_rows,
    over_padded_rows_backward,
    rounded_early,
    several_backward,
    statistics_rounded,
)
from assignment.operators.layer_norms.model import (
    ALGORITHM,
    BACK,
    NUMBERS,
    Backward,
    Outputs,
    Told,
    of_chapter,
)
from assignment.operators.misconception import Call, Misconception, exact
from assignment.operators.rows import Variants, summed_in

BACKWARD: list[tuple[Told, Callable[[Call], Iterator[Backward]]]] = [
    (
        Told(
            "mean-of-h-missing",
            "Your grad_x equals the one without mean(h)",
            "The mean depends on x too: what does the chain rule subtract for it?",
            BACK,
        ),
        several_backward({"h_sign": 0.0}),
    ),
    (
        Told(
            "projection-missing",
            "Your grad_x equals the one without x̂ · mean(h∘x̂)",
            "rstd depends on x too: what does the chain rule subtract for it?",
            BACK,
        ),
        several_backward({"along_sign": 0.0}, {"along_sign": 0.0, "h_sign": 0.0}),
    ),
    (
        Told(
            "correction-added",
            "Your grad_x equals the one with a term added instead of subtracted",
            "Both means are subtracted from h.",
            BACK,
        ),
        several_backward({"along_sign": 1.0}, {"h_sign": 1.0}, {"along_sign": 1.0, "h_sign": 1.0}),
    ),
    (
        Told(
            "backward-mean-over-the-padded-row",
            "Your grad_x equals the one with means over the padded row",
            "A tile is wider than the row: how many elements does a mean have?",
            ALGORITHM,
        ),
        over_padded_rows_backward,
    ),
    (
        Told(
            "backward-sum-for-mean",
            "Your grad_x equals the one with sums over the row in place of means",
            "By what is each sum over the row divided?",
            BACK,
        ),
        several_backward({"mean": lambda terms: terms.sum(-1, keepdim=True)}),
    ),
    (
        Told(
            "means-without-the-weight",
            "Your grad_x equals the one whose means leave the weight out",
            "The means are of h = w∘dy, and of h∘x̂.",
            BACK,
        ),
        several_backward({"in_means": lambda grad_y, weight: grad_y}),
    ),
    (
        Told(
            "backward-weight-forgotten",
            "Your grad_x equals the one without the weight",
            "y = x̂ · w + b: the gradient of x̂ is w∘dy.",
            BACK,
        ),
        several_backward({"h": lambda grad_y, weight: grad_y + 0 * weight}),
    ),
    (
        Told(
            "outer-rstd-missing",
            "Your grad_x equals the one without rstd in front, or with its square",
            "x̂ = (x − mean) · rstd: how often does the chain rule multiply with rstd?",
            BACK,
        ),
        several_backward({"outer": torch.ones_like}, {"outer": torch.square}),
    ),
    (
        Told(
            "backward-mean-not-subtracted",
            "Your gradients equal those with x · rstd in the place of x̂",
            "x̂ = (x − mean) · rstd, in both gradients.",
            BACK,
        ),
        several_backward(
            {"x_hat": lambda x, mean, rstd: x * rstd, "weight_terms": lambda dy, x, mean, rstd: dy * x * rstd},
            {"x_hat": lambda x, mean, rstd: x * rstd},
            {"weight_terms": lambda dy, x, mean, rstd: dy * x * rstd},
        ),
    ),
    (
        Told(
            "x-for-x-hat",
            "Your grad_weight equals Σ dy∘(x − mean) or Σ dy∘x, without rstd",
            "y = x̂ · w + b: what does w multiply?",
            BACK,
        ),
        several_backward(
            {"weight_terms": lambda dy, x, mean, rstd: dy * (x - mean)},
            {"weight_terms": lambda dy, x, mean, rstd: dy * x},
        ),
    ),
    (
        Told(
            "grad-bias-with-a-factor",
            "Your grad_bias has a factor too many, w or x̂",
            "The bias is added: its gradient is dy, summed over the rows.",
            BACK,
        ),
        several_backward(
            {"bias_terms": lambda dy, weight, x_hat: dy * weight},
            {"bias_terms": lambda dy, weight, x_hat: dy * x_hat},
        ),
    ),
    (
        Told(
            "backward-wide-rows-cut",
            "Your gradients equal those of rows that end after one tile of columns",
            "Rows may be wider than a tile.",
            ALGORITHM,
        ),
        of_one_tile_backward,
    ),
    (
        Told(
            "rows-lost",
            "Your grad_weight and grad_bias are sums over some of the rows only",
            "Each program adds up its rows, and all partial sums are added: which are lost, or overwritten?",
            ALGORITHM,
        ),
        of_some_rows,
    ),
    (
        Told(
            "gradients-the-mean",
            "Your grad_weight and grad_bias are means over rows, or over tiles of rows, in place of sums",
            "They are sums over all rows.",
            BACK,
        ),
        of_means,
    ),
    (
        Told(
            "backward-products-in-16-bits",
            "Your gradients equal those whose products are rounded to the inputs' 16 bits",
            "Cast what is loaded to float32 before it is multiplied.",
            NUMBERS,
        ),
        rounded_early,
    ),
    (
        Told(
            "backward-statistics-in-16-bits",
            "Your gradients equal those with mean or rstd rounded to the inputs' 16 bits",
            "Both are float32: what do they become after the load?",
            NUMBERS,
        ),
        statistics_rounded,
    ),
]


SUMMED_IN_16_BITS = Told(
    "summed-over-rows-in-16-bits",
    "Your grad_weight or grad_bias is added up in the inputs' 16 bits",
    "Partial sums are float32; the cast comes once, at the end.",
    NUMBERS,
)


def told_backward(chapter: str, apply: Callable[[Call, Backward], Outputs]) -> list[Misconception]:
    """Return the misconceptions of a backward pass.

    Args:
        chapter: as of told_forward.
        apply: the results of a call with a LayerNorm like this; the last two are grad_weight and grad_bias.
    """

    def model(ways: Callable[[Call], Iterator[Backward]]) -> Variants:
        return lambda call: (apply(call, way) for way in ways(call))

    def summed(call: Call) -> Iterator[Outputs]:
        """Yield the results with both gradients wrong, or one of them."""
        if call.dtype == torch.float32:
            return
        *first, grad_weight, grad_bias = apply(call, Backward())
        *_, weight_terms, bias_terms = apply(call, Backward(sum_rows=exact))
        for size in (1, 2, 4, 8, 16, 32, 64, 128):
            pairs = zip(summed_in(call.dtype, weight_terms, size), summed_in(call.dtype, bias_terms, size), strict=True)
            for own_weight, own_bias in pairs:
                yield [*first, own_weight, own_bias]
                yield [*first, own_weight, grad_bias]
                yield [*first, grad_weight, own_bias]

    return [
        *(of_chapter(chapter, told, model(ways)) for told, ways in BACKWARD),
        of_chapter(chapter, SUMMED_IN_16_BITS, summed),
    ]
