"""What can go wrong in a LayerNorm, forward and backward, right by default: for all operators that have one."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, exact, padded_width
from assignment.operators.rows import WIDTHS, Round, Variants, lost_rows, mean_counts, summed_in

SIZES = [1 << i for i in range(8)]  # of tiles of rows
Statistic = Callable[[Tensor], Tensor]  # of rows, one number each, as a column
Outputs = Sequence[Tensor]


def usual_mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def usual_variance(x: Tensor, mean: Tensor) -> Tensor:
    return (x - mean).square().mean(-1, keepdim=True)


def usual_rstd(variance: Tensor, eps: float) -> Tensor:
    return (variance + eps).rsqrt()


@dataclass(frozen=True)
class Forward:
    """Each field is a thing that can be wrong."""

    mean: Statistic = usual_mean
    variance: Callable[[Tensor, Tensor], Tensor] = usual_variance
    rstd: Callable[[Tensor, float], Tensor] = usual_rstd
    y: Callable[..., Tensor] = lambda x, mean, rstd, weight, bias: (x - mean) * rstd * weight + bias
    used: Round = exact  # mean and rstd in y
    returned: Round = exact

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return (y, mean, rstd)."""
        x, weight, bias = x.double(), weight.double(), bias.double()
        mean = self.mean(x)
        rstd = self.rstd(self.variance(x, mean), eps)
        y = self.y(x, self.used(mean), self.used(rstd), weight, bias)
        return y, self.returned(mean).squeeze(-1), self.returned(rstd).squeeze(-1)


@dataclass(frozen=True)
class Backward:
    """Each field is a thing that can be wrong."""

    h: Callable[[Tensor, Tensor], Tensor] = lambda grad_y, weight: grad_y * weight
    mean: Statistic = usual_mean  # over a row, of h and of h ∘ x̂
    h_sign: float = -1.0
    along_sign: float = -1.0
    in_means: Callable[[Tensor, Tensor], Tensor] | None = None  # what the means have in place of h
    x_hat: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda x, mean, rstd: (x - mean) * rstd
    outer: Callable[[Tensor], Tensor] = exact  # rstd in front
    rstd: Callable[[Tensor], Tensor] = exact
    weight_terms: Callable[..., Tensor] = lambda grad_y, x, mean, rstd: grad_y * (x - mean) * rstd
    bias_terms: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda grad_y, weight, x_hat: grad_y
    sum_rows: Callable[[Tensor], Tensor] = lambda terms: terms.sum(0)
    product: Round = exact

    def __call__(
        self, grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (grad_x, grad_weight, grad_bias)."""
        grad_y, x, weight = grad_y.double(), x.double(), weight.double()
        mean, rstd = mean.double().unsqueeze(-1), self.rstd(rstd.double().unsqueeze(-1))
        x_hat = self.product(self.x_hat(x, mean, rstd))
        h = self.product(self.h(grad_y, weight))
        in_means = h if self.in_means is None else self.in_means(grad_y, weight)
        along = self.mean(self.product(in_means * x_hat))
        grad_x = self.outer(rstd) * (h + self.h_sign * self.mean(in_means) + self.along_sign * x_hat * along)
        both = (self.weight_terms(grad_y, x, mean, rstd), self.bias_terms(grad_y, weight, x_hat))
        sums = (self.sum_rows(self.product(terms.expand_as(x)).reshape(-1, x.shape[-1])) for terms in both)
        return grad_x, *sums


def padded_variance(width: Callable[[int], int]) -> Callable[[Tensor, Tensor], Tensor]:
    """Columns past the end are zeros from which the mean was subtracted, too."""

    def variance(x: Tensor, mean: Tensor) -> Tensor:
        d = x.shape[-1]
        return ((x - mean).square().sum(-1, keepdim=True) + (width(d) - d) * mean.square()) / d

    return variance


def halved(x: Tensor) -> Tensor:
    """Sums of rows in float32 as a tree adds them up: the second half of a row to the first."""
    width = padded_width(x.shape[-1])
    x = torch.nn.functional.pad(x.float(), (0, width - x.shape[-1]))
    while (width := width // 2) > 0:
        x = x[..., :width] + x[..., width:]
    return x


def of_squares(total: Statistic, floor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """mean(x²) − mean(x)² in float32."""

    def variance(x: Tensor, mean: Tensor) -> Tensor:
        x, d = x.float(), x.shape[-1]
        return (total(x * x) / d - (total(x) / d).square()).clamp(min=floor).double()

    return variance


def mean_square(x: Tensor, mean: Tensor | None = None) -> Tensor:
    return x.square().mean(-1, keepdim=True)


def without_mean(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * rstd * weight + bias


def padded_counts(d: int) -> list[int]:
    return sorted({padded_width(d), *(-(-d // width) * width for width in WIDTHS)} - {d})


@dataclass(frozen=True)
class Told:
    """A misconception without its function: its name, what it says, where to look, the part of the chapter."""

    name: str
    says: str
    look: str
    part: str


def several_forward(*ways: Forward) -> Callable[[Tensor], Iterator[Forward]]:
    return lambda x: iter(ways)


def over_padded_rows(x: Tensor) -> Iterator[Forward]:
    """The sum of a mean, or of both, divided by another count."""
    for count in padded_counts(x.shape[-1]):

        def mean(x: Tensor, n: int = count) -> Tensor:
            return x.sum(-1, keepdim=True) / n

        def variance(x: Tensor, mean: Tensor, n: int = count) -> Tensor:
            return (x - mean).square().sum(-1, keepdim=True) / n

        yield from (Forward(mean=mean), Forward(variance=variance), Forward(mean=mean, variance=variance))


def of_first_columns(x: Tensor) -> Iterator[Forward]:
    """Mean and variance of one tile of columns, the first or the last."""
    d = x.shape[-1]
    for width in (width for width in WIDTHS if width < d):
        for part in (slice(0, width), slice((d - 1) // width * width, None)):

            def mean(x: Tensor, part: slice = part) -> Tensor:
                return x[..., part].mean(-1, keepdim=True)

            def variance(x: Tensor, mean: Tensor, part: slice = part) -> Tensor:
                return usual_variance(x[..., part], mean)

            def share(x: Tensor, mean: Tensor, part: slice = part) -> Tensor:
                return (x[..., part] - mean).square().sum(-1, keepdim=True) / x.shape[-1]

            yield from (Forward(variance=variance), Forward(variance=share), Forward(mean=mean, variance=variance))


def groups(d: int) -> Iterator[Tensor]:
    """Which columns are seen together: those of a tile, or those of a lane of all tiles."""
    for width in (width for width in WIDTHS if width < d):
        yield torch.arange(d) // width
        yield torch.arange(d) % width


def grouped_means(x: Tensor, group: Tensor) -> Tensor:
    sums = torch.zeros(*x.shape[:-1], int(group.max()) + 1, dtype=x.dtype).index_add(-1, group, x)
    return sums / group.bincount()


def merged_without_counts(x: Tensor) -> Iterator[Forward]:
    """The mean of means, some of which are of fewer columns."""
    for group in groups(x.shape[-1]):
        yield Forward(mean=lambda x, group=group: usual_mean(grouped_means(x, group)))


def merged_without_steps(x: Tensor) -> Iterator[Forward]:
    """The mean of the squared differences from the group's own mean."""
    for group in groups(x.shape[-1]):
        yield Forward(variance=lambda x, mean, group=group: mean_square(x - grouped_means(x, group)[..., group]))


def y_of_one_tile(x: Tensor) -> Iterator[Forward]:
    """Every tile of y computed from the columns of x in the last one."""
    d = x.shape[-1]
    for width in (width for width in WIDTHS if width < d):
        columns = (d - 1) // width * width + torch.arange(d) % width
        inside = columns < d

        def y(
            x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor,
            columns: Tensor = columns, inside: Tensor = inside,
        ) -> Tensor:  # fmt: skip
            return (x[..., columns.clamp(max=x.shape[-1] - 1)] * inside - mean) * rstd * weight + bias

        yield Forward(y=y)


MATH, BACK, ALGORITHM = "forward-mathematics", "backward-mathematics", "algorithm"
NUMBERS, INTERFACE = "what-goes-wrong", "interface"

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


def roundings_forward(cast: Round) -> Iterator[tuple[Told, Forward]]:
    """What is rounded to 16 bits too early."""
    statistics = Told(
        "statistics-in-16-bits",
        "Your result equals LayerNorm with mean and rstd rounded to the inputs' 16 bits",
        "They are float32 whatever the inputs are, in y and as results.",
        NUMBERS,
    )
    yield from ((statistics, Forward(used=a, returned=b)) for a, b in ((cast, exact), (exact, cast), (cast, cast)))
    yield statistics, Forward(rstd=lambda variance, eps: cast(usual_rstd(variance, eps)))
    squares = Told(
        "differences-in-16-bits",
        "Your result equals LayerNorm whose differences from the mean, or their squares, are rounded to 16 bits",
        "Cast x to float32 as it is loaded.",
        NUMBERS,
    )
    for inner, outer in ((cast, exact), (exact, cast), (cast, cast)):

        def variance(x: Tensor, mean: Tensor, inner: Round = inner, outer: Round = outer) -> Tensor:
            return outer(inner(x - mean).square()).mean(-1, keepdim=True)

        yield squares, Forward(variance=variance)


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
        *(_misconception(chapter, told, model(ways)) for told, ways in FORWARD),
        *(_misconception(chapter, told, in_16_bits(told.name)) for told in early),
    ]


def rounding(call: Call) -> Round:
    dtype = call.dtype
    return lambda x: x.to(dtype).double()


def _misconception(chapter: str, told: Told, model: Variants) -> Misconception:
    return Misconception(f"{chapter}-{told.name}", told.says, told.look, f"handout/{chapter}.md#{told.part}", model)


def in_parts(dtype: torch.dtype, terms: Tensor) -> Iterator[Tensor]:
    """Sums over rows whose parts are rounded: of rows in a row, and of tiles that programs stride over."""
    for size in SIZES:
        yield from summed_in(dtype, terms, size)
    for tile, share in itertools.product(SIZES, (64, 128)):
        n_programs = -(-len(terms) // share)
        program = torch.arange(len(terms)) // tile % n_programs
        parts = torch.zeros(n_programs, terms.shape[1], dtype=terms.dtype).index_add(0, program, terms)
        yield parts.to(dtype).double().sum(0)


def several_backward(*ways: dict[str, Any]) -> Callable[[Call], Iterator[Backward]]:
    return lambda call: (Backward(**way) for way in ways)


def over_padded_rows_backward(call: Call) -> Iterator[Backward]:
    for count in padded_counts(call.tensors[0].shape[-1]):
        yield Backward(mean=lambda terms, n=count: terms.sum(-1, keepdim=True) / n)


def of_one_tile_backward(call: Call) -> Iterator[Backward]:
    for width in (width for width in WIDTHS if width < call.tensors[0].shape[-1]):
        yield Backward(mean=lambda terms, w=width: terms[..., :w].sum(-1, keepdim=True) / terms.shape[-1])


def of_some_rows(call: Call) -> Iterator[Backward]:
    for rows in lost_rows(math.prod(call.tensors[0].shape[:-1])):
        yield Backward(sum_rows=lambda terms, rows=rows: terms[rows].sum(0))


def of_means(call: Call) -> Iterator[Backward]:
    for count in mean_counts(call.tensors[0]):
        yield Backward(sum_rows=lambda terms, n=count: terms.sum(0) / n)


def x_hat_of(x: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    """In float32: what is rounded to 16 bits next should come to lie on the same side."""
    return (x.float() - mean.float()) * rstd.float()


def rounded_early(call: Call) -> Iterator[Backward]:
    if call.dtype != torch.float32:
        cast = rounding(call)
        yield Backward(product=cast)
        yield Backward(weight_terms=lambda dy, x, mean, rstd: cast(dy.float() * x_hat_of(x, mean, rstd)))
        yield Backward(weight_terms=lambda dy, x, mean, rstd: cast(dy * cast(x_hat_of(x, mean, rstd))))
        yield Backward(h=lambda grad_y, weight: cast(grad_y * weight))


def statistics_rounded(call: Call) -> Iterator[Backward]:
    if call.dtype != torch.float32:
        cast = rounding(call)
        own = (lambda x, mean, rstd: (x - cast(mean)) * rstd, lambda dy, x, mean, rstd: dy * (x - cast(mean)) * rstd)
        yield Backward(rstd=cast)
        yield Backward(x_hat=own[0], weight_terms=own[1])
        yield Backward(rstd=cast, x_hat=own[0], weight_terms=own[1])


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
        """Both gradients, or one of them."""
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
        *(_misconception(chapter, told, model(ways)) for told, ways in BACKWARD),
        _misconception(chapter, SUMMED_IN_16_BITS, summed),
    ]
