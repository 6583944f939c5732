"""What can go wrong in RMSNorm's backward pass, right by default."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, exact, padded_width
from assignment.operators.rmsnorm.misconceptions.forward_model import ALGORITHM, BACK, INTERFACE, NUMBERS, usual_rstd
from assignment.operators.rows import WIDTHS, Round, Variants, in_dtype, lost_rows, mean_counts, several, summed_in


@dataclass(frozen=True)
class Backward:
    """Each field is a thing that can be wrong."""

    rstd: Callable[[Tensor], Tensor] = exact
    g: Callable[[Tensor, Tensor], Tensor] = lambda grad_y, weight: grad_y * weight
    mean: Callable[[Tensor], Tensor] = lambda terms: terms.mean(-1, keepdim=True)
    mean_g: Callable[[Tensor, Tensor], Tensor] | None = None  # what the mean has in place of g
    correction: float = -1.0
    outer: Callable[[Tensor], Tensor] = exact  # rstd in front
    weight_terms: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda grad_y, x, rstd: grad_y * x * rstd
    sum_rows: Callable[[Tensor], Tensor] = lambda terms: terms.sum(0)
    product: Round = exact

    def __call__(self, call: Call) -> tuple[Tensor, Tensor]:
        grad_y, x, weight, rstd = (tensor.double() for tensor in call.tensors)
        rstd = self.rstd(rstd.unsqueeze(-1))
        x_hat = self.product(x * rstd)
        g = self.product(self.g(grad_y, weight))
        in_mean = g if self.mean_g is None else self.mean_g(grad_y, weight)
        mean = self.mean(self.product(in_mean * x_hat))
        grad_x = self.outer(rstd) * (g + self.correction * x_hat * mean)
        terms = self.product(self.weight_terms(grad_y, x, rstd).expand_as(x))
        return grad_x, self.sum_rows(terms.reshape(-1, x.shape[-1]))


def backward(**changes: Any) -> Variants:
    return lambda call: iter([Backward(**changes)(call)])


def some_rows(call: Call) -> Iterator[Sequence[Tensor]]:
    """grad_weight from some of the rows."""
    n = math.prod(call.tensors[1].shape[:-1])
    for rows in lost_rows(n):
        yield Backward(sum_rows=lambda terms, rows=rows: terms[rows].sum(0))(call)


def y_of(call: Call) -> Tensor:
    _, x, weight, rstd = (tensor.double() for tensor in call.tensors)
    return x * rstd.unsqueeze(-1) * weight


MISCONCEPTIONS = [
    Misconception(
        "correction-missing",
        "Your grad_x equals the one without its second term, x̂ · mean(w∘dy∘x̂)",
        "rstd depends on x too: what does the chain rule add for it?",
        BACK,
        backward(correction=0.0),
    ),
    Misconception(
        "correction-added",
        "Your grad_x equals the one with the second term added instead of subtracted",
        "rstd falls where x grows: check the sign.",
        BACK,
        backward(correction=1.0),
    ),
    Misconception(
        "backward-mean-over-the-padded-row",
        "Your grad_x equals the one with the mean over the padded row",
        "A tile is wider than the row: how many elements does the mean have?",
        ALGORITHM,
        lambda call: (
            Backward(mean=lambda terms, w=width: terms.sum(-1, keepdim=True) / w)(call)
            for width in sorted(
                {padded_width(call.tensors[1].shape[-1]), *(-(-call.tensors[1].shape[-1] // w) * w for w in WIDTHS)}
            )
        ),
    ),
    Misconception(
        "backward-sum-for-mean",
        "Your grad_x equals the one with the sum over the row in place of the mean",
        "By what is the sum over the row divided?",
        BACK,
        backward(mean=lambda terms: terms.sum(-1, keepdim=True)),
    ),
    Misconception(
        "mean-without-the-weight",
        "Your grad_x equals the one whose mean leaves the weight out",
        "The mean is of w∘dy∘x̂.",
        BACK,
        backward(mean_g=lambda grad_y, weight: grad_y),
    ),
    Misconception(
        "backward-weight-forgotten",
        "Your grad_x equals the one without the weight",
        "y = x̂ · w: the gradient of x̂ is w∘dy.",
        BACK,
        backward(g=lambda grad_y, weight: grad_y + 0 * weight),
    ),
    Misconception(
        "outer-rstd-missing",
        "Your grad_x equals the one without rstd in front, or with its square",
        "x̂ = x · rstd: how often does the chain rule multiply with rstd?",
        BACK,
        several(backward(outer=lambda rstd: torch.ones_like(rstd)), backward(outer=lambda rstd: rstd * rstd)),
    ),
    Misconception(
        "y-for-x",
        "Your gradients equal those with y in the place of x",
        "Which tensors does the forward pass save for the backward pass?",
        INTERFACE,
        lambda call: iter([Backward()(replace(call, tensors=[*call.tensors[:1], y_of(call), *call.tensors[2:]]))]),
    ),
    Misconception(
        "x-for-x-hat",
        "Your grad_weight equals Σ dy∘x, with x in place of x̂",
        "y = x̂ · w: what does w multiply?",
        BACK,
        backward(weight_terms=lambda grad_y, x, rstd: grad_y * x),
    ),
    Misconception(
        "grad-weight-with-the-weight",
        "Your grad_weight has a factor w too many",
        "y = x̂ · w: the gradient of w is dy∘x̂, summed over the rows.",
        BACK,
        lambda call: ([grad_x, grad_weight * call.tensors[2].double()] for grad_x, grad_weight in [Backward()(call)]),
    ),
    Misconception(
        "backward-wide-rows-cut",
        "Your gradients equal those of rows that end after one tile of columns",
        "Rows may be wider than a tile.",
        ALGORITHM,
        lambda call: (
            Backward(mean=lambda terms, w=width: terms[..., :w].sum(-1, keepdim=True) / terms.shape[-1])(call)
            for width in WIDTHS
            if width < call.tensors[1].shape[-1]
        ),
    ),
    Misconception(
        "rows-lost-in-grad-weight",
        "Your grad_weight is the sum over some of the rows only",
        "Each program adds up its rows, and all partial sums are added: which of them are lost, or overwritten?",
        ALGORITHM,
        some_rows,
    ),
    Misconception(
        "grad-weight-the-mean",
        "Your grad_weight is a mean over the rows, or over tiles of rows, in place of the sum",
        "grad_weight is a sum over all rows.",
        BACK,
        lambda call: (
            [grad_x, grad_weight / count]
            for grad_x, grad_weight in [Backward()(call)]
            for count in mean_counts(call.tensors[1])
        ),
    ),
    Misconception(
        "rstd-recomputed-with-another-eps",
        "Your gradients equal those with rstd recomputed, with an eps of its own",
        "The forward pass hands rstd on, with the eps that it was given.",
        INTERFACE,
        lambda call: (
            Backward(rstd=lambda _, own=own: usual_rstd(call.tensors[1].double(), own))(call)
            for own in (1e-5, 1e-6, 1e-8, 0.0)
        ),
    ),
    Misconception(
        "backward-rstd-in-16-bits",
        "Your gradients equal those with rstd rounded to the inputs' 16 bits",
        "rstd is float32: what does it become after the load?",
        NUMBERS,
        in_dtype(lambda call, cast: Backward(rstd=cast)(call)),
    ),
    Misconception(
        "backward-rstd-limited",
        "Your gradients equal those in which large values of rstd, or small ones, are cut off",
        "Nothing needs a limit.",
        BACK,
        lambda call: (
            Backward(rstd=lambda rstd, low=low, high=high: rstd.clamp(low, high))(call)
            for low, high in (
                *((0.0, by * 10.0**i) for i in range(1, 9) for by in (1, 2, 5)),
                *((by * 10.0**-i, math.inf) for i in range(1, 9) for by in (1, 2, 5)),
            )
        ),
    ),
    Misconception(
        "backward-products-in-16-bits",
        "Your gradients equal those whose products are rounded to the inputs' 16 bits",
        "Cast what is loaded to float32 before it is multiplied.",
        NUMBERS,
        several(
            in_dtype(lambda call, cast: Backward(product=cast)(call)),
            in_dtype(
                lambda call, cast: Backward(
                    weight_terms=lambda grad_y, x, rstd: cast(grad_y * x) * rstd, g=lambda dy, w: cast(dy * w)
                )(call)
            ),
            in_dtype(lambda call, cast: Backward(g=lambda dy, w: cast(dy * w))(call)),
            in_dtype(lambda call, cast: Backward(weight_terms=lambda dy, x, rstd: cast(dy * cast(x * rstd)))(call)),
            in_dtype(lambda call, cast: Backward(weight_terms=lambda dy, x, rstd: cast(dy * x * rstd))(call)),
            in_dtype(lambda call, cast: Backward(weight_terms=lambda dy, x, rstd: cast(dy * x) * rstd)(call)),
            in_dtype(
                lambda call, cast: Backward(
                    weight_terms=lambda dy, x, rstd: cast(dy * cast(x * cast(rstd))), rstd=cast, product=cast
                )(call)
            ),
        ),
    ),
    Misconception(
        "grad-weight-summed-in-16-bits",
        "Your grad_weight is added up in the inputs' 16 bits",
        "Partial sums are float32; the cast comes once, at the end.",
        NUMBERS,
        lambda call: (
            [grad_x, total]
            for size in (1, 2, 4, 8, 16, 32, 64, 128)
            if call.dtype != torch.float32
            for grad_x, terms in [Backward(sum_rows=exact)(call)]
            for total in summed_in(call.dtype, terms, size)
        ),
    ),
]
