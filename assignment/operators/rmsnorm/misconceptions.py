"""What can go wrong in RMSNorm, forward and backward, right by default."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models, exact, padded_width
from assignment.operators.rows import WIDTHS, Round, Variants, in_dtype, lost_rows, mean_counts, several, summed_in

DEFAULT_EPS = 1e-5


def usual_rstd(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).rsqrt()


@dataclass(frozen=True)
class Forward:
    """Each field is a thing that can be wrong."""

    rstd: Callable[[Tensor, float], Tensor] = usual_rstd
    y: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, rstd, weight: x * rstd * weight
    used: Round = exact  # rstd in y
    returned: Round = exact

    def __call__(self, call: Call) -> tuple[Tensor, Tensor]:
        x, weight = (tensor.double() for tensor in call.tensors[:2])
        rstd = self.rstd(x, call.options.get("eps", DEFAULT_EPS))
        return self.y(x, self.used(rstd), weight), self.returned(rstd).squeeze(-1)


def forward(**changes: Any) -> Variants:
    return lambda call: iter([Forward(**changes)(call)])


def with_rstds(*ways: Callable[[Tensor, float], Tensor]) -> Variants:
    return lambda call: (Forward(rstd=way)(call) for way in ways)


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


MATH, BACK = "handout/rmsnorm.md#forward-mathematics", "handout/rmsnorm.md#backward-mathematics"
ALGORITHM, NUMBERS = "handout/rmsnorm.md#algorithm", "handout/rmsnorm.md#what-goes-wrong"
INTERFACE = "handout/rmsnorm.md#interface"

FORWARD = [
    Misconception(
        "eps-missing",
        "Your result equals RMSNorm without eps",
        "What keeps the root of a row of zeros from being 0?",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, 0.0)),
    ),
    Misconception(
        "eps-outside-the-root",
        "Your result equals RMSNorm with eps added outside of the root",
        "rstd = 1/√(mean + eps): what stands under the root?",
        MATH,
        with_rstds(
            lambda x, eps: 1 / (x.square().mean(-1, keepdim=True).sqrt() + eps),
            lambda x, eps: x.square().mean(-1, keepdim=True).rsqrt() + eps,
        ),
    ),
    Misconception(
        "eps-added-to-the-sum",
        "Your result equals RMSNorm with eps added to the sum of squares before it is divided by d",
        "rstd = 1/√(mean + eps): divide first.",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, eps / x.shape[-1])),
    ),
    Misconception(
        "eps-as-a-limit",
        "Your result equals RMSNorm with eps as the least mean instead of added to it",
        "rstd = 1/√(mean + eps).",
        MATH,
        with_rstds(lambda x, eps: x.square().mean(-1, keepdim=True).clamp(min=eps).rsqrt()),
    ),
    Misconception(
        "eps-fixed",
        "Your result equals RMSNorm with an eps of its own, whatever the argument is",
        "eps is an argument with a default: does it reach the kernel?",
        INTERFACE,
        with_rstds(
            *(
                lambda x, eps, own=own: usual_rstd(x, own)
                for own in (1e-5, 1e-6, 1e-8, 1e-12, 1e-4, 1e-3, torch.finfo(torch.float32).eps)
            )
        ),
    ),
    Misconception(
        "eps-limited",
        "Your result equals RMSNorm with an eps that is cut off where it is large",
        "eps is whatever the caller says.",
        INTERFACE,
        with_rstds(
            *(
                lambda x, eps, most=most: usual_rstd(x, min(eps, most))
                for most in (by * 10.0**-i for i in range(1, 7) for by in (1, 2, 3, 5))
            )
        ),
    ),
    Misconception(
        "eps-squared",
        "Your result equals RMSNorm with eps² in place of eps",
        "rstd = 1/√(mean + eps).",
        MATH,
        with_rstds(lambda x, eps: usual_rstd(x, eps * eps)),
    ),
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


BACKWARD = [
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


def y_of(call: Call) -> Tensor:
    _, x, weight, rstd = (tensor.double() for tensor in call.tensors)
    return x * rstd.unsqueeze(-1) * weight


MODELS = {"rmsnorm_forward": Models(FORWARD, NUMBERS), "rmsnorm_backward": Models(BACKWARD, NUMBERS)}
