"""Ways in which a LayerNorm's statistics and result come out wrong."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from assignment.operators.layer_norms.model import (
    NUMBERS,
    Forward,
    Statistic,
    Told,
    usual_mean,
    usual_rstd,
    usual_variance,
)
from assignment.operators.misconception import exact, padded_width
from assignment.operators.rows import WIDTHS, Round, padded_counts


def padded_variance(width: Callable[[int], int]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a variance with columns past the end, zeros from which the mean was subtracted too."""

    def variance(x: Tensor, mean: Tensor) -> Tensor:
        d = x.shape[-1]
        return ((x - mean).square().sum(-1, keepdim=True) + (width(d) - d) * mean.square()) / d

    return variance


def halved(x: Tensor) -> Tensor:
    """Return sums of rows in float32 as a tree adds them up: the second half of a row to the first."""
    width = padded_width(x.shape[-1])
    x = torch.nn.functional.pad(x.float(), (0, width - x.shape[-1]))
    while (width := width // 2) > 0:
        x = x[..., :width] + x[..., width:]
    return x


def of_squares(total: Statistic, floor: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return mean(x²) − mean(x)² in float32."""

    def variance(x: Tensor, mean: Tensor) -> Tensor:
        x, d = x.float(), x.shape[-1]
        return (total(x * x) / d - (total(x) / d).square()).clamp(min=floor).double()

    return variance


def mean_square(x: Tensor, mean: Tensor | None = None) -> Tensor:
    return x.square().mean(-1, keepdim=True)


def without_mean(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * rstd * weight + bias


def several_forward(*ways: Forward) -> Callable[[Tensor], Iterator[Forward]]:
    return lambda x: iter(ways)


def over_padded_rows(x: Tensor) -> Iterator[Forward]:
    """Yield the sum of a mean, or of both, divided by another count."""
    for count in padded_counts(x.shape[-1]):

        def mean(x: Tensor, n: int = count) -> Tensor:
            return x.sum(-1, keepdim=True) / n

        def variance(x: Tensor, mean: Tensor, n: int = count) -> Tensor:
            return (x - mean).square().sum(-1, keepdim=True) / n

        yield from (Forward(mean=mean), Forward(variance=variance), Forward(mean=mean, variance=variance))


def of_first_columns(x: Tensor) -> Iterator[Forward]:
    """Yield LayerNorms with mean and variance of one tile of columns, the first or the last."""
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
    """Yield which columns are seen together: those of a tile, or those of a lane of all tiles."""
    for width in (width for width in WIDTHS if width < d):
        yield torch.arange(d) // width
        yield torch.arange(d) % width


def grouped_means(x: Tensor, group: Tensor) -> Tensor:
    sums = torch.zeros(*x.shape[:-1], int(group.max()) + 1, dtype=x.dtype).index_add(-1, group, x)
    return sums / group.bincount()


def merged_without_counts(x: Tensor) -> Iterator[Forward]:
    """Yield the mean of means, some of which are of fewer columns."""
    for group in groups(x.shape[-1]):
        yield Forward(mean=lambda x, group=group: usual_mean(grouped_means(x, group)))


def merged_without_steps(x: Tensor) -> Iterator[Forward]:
    """Yield the mean of the squared differences from the group's own mean."""
    for group in groups(x.shape[-1]):
        yield Forward(variance=lambda x, mean, group=group: mean_square(x - grouped_means(x, group)[..., group]))


def y_of_one_tile(x: Tensor) -> Iterator[Forward]:
    """Yield every tile of y computed from the columns of x in the last one."""
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


def roundings_forward(cast: Round) -> Iterator[tuple[Told, Forward]]:
    """Yield what is rounded to 16 bits too early."""
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
