"""What can go wrong in softmax, forward and backward."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from assignment.operators import rows
from assignment.operators.misconception import Models, exp, table
from tests.softmax.oracle import finite_max


def divided(powers: Tensor, total: Tensor) -> Tensor:
    """By a sum that is 0 in a row of −∞ alone."""
    return powers / torch.where(total > 0, total, 1.0)


def powers_of(x: Tensor) -> Tensor:
    return (x - finite_max(x)).exp()


def sum_of(terms: Tensor) -> Tensor:
    return terms.sum(-1, keepdim=True)


def with_max(top: Callable[[Tensor], Tensor | float]) -> rows.Variants:
    """The softmax with something else in place of the maximum; 0/0 is NaN, or has been kept from it."""

    def results(x: Tensor) -> Iterator[Tensor]:
        powers = exp(x - top(x))
        yield from (powers / sum_of(powers), divided(powers, sum_of(powers)))

    return rows.of_inputs(results)


def padded(x: Tensor) -> Iterator[Tensor]:
    """What pads a row has been loaded as 0; it takes part in the sum, and in the maximum or not."""
    for width in rows.padded_counts(d := x.shape[-1]):
        for top in (finite_max(x).clamp(min=0), finite_max(x)):
            powers = exp(x - top)
            yield powers / (sum_of(powers) + (width - d) * exp(-top))


def padded_with_ones(x: Tensor) -> Iterator[Tensor]:
    """Each element that pads a row counts as the largest one does."""
    d, powers = x.shape[-1], powers_of(x)
    return (powers / (sum_of(powers) + width - d) for width in rows.padded_counts(d))


def in_tiles(x: Tensor) -> Iterator[Tensor]:
    """Yield (…, tiles, width) for every width that a row does not fit in, with −∞ past the last column."""
    return (rows.tiles_of(x, width, -math.inf) for width in rows.narrower(x))


def not_rescaled(x: Tensor) -> Iterator[Tensor]:
    """What was summed under an older maximum is added to what came after it; as a scalar of the row, or by lane."""
    for tiles in in_tiles(x):
        tops = tiles.amax(-1).cummax(-1).values.nan_to_num(neginf=0.0)
        total = exp(tiles - tops.unsqueeze(-1)).sum((-1, -2))
        yield divided(powers_of(x), total.unsqueeze(-1))


def part_of_the_row(x: Tensor) -> Iterator[Tensor]:
    """The sum of the first tile, or of the last one, each under the maximum of the row or of the tile."""
    for tiles in in_tiles(x):
        for part in (tiles[..., 0, :], tiles[..., -1, :]):
            for top in (finite_max(x), finite_max(part)):
                yield exp(x - top) / sum_of(exp(part - top))


def tile_by_tile(x: Tensor) -> Iterator[Tensor]:
    """Every tile is a softmax of its own."""
    for powers in map(powers_of, in_tiles(x)):
        yield divided(powers, sum_of(powers)).flatten(-2)[..., : x.shape[-1]]


def max_of_a_tile(x: Tensor) -> Iterator[Tensor]:
    """The maximum is that of the first tile or of the last one; what is larger overflows."""
    for tiles in in_tiles(x):
        for part in (tiles[..., 0, :], tiles[..., -1, :]):
            powers = exp(x - part.amax(-1, keepdim=True))
            yield powers / sum_of(powers)


def begun_with_nan(x: Tensor) -> Iterator[Tensor]:
    """A sum that is NaN where the first tile has nothing but −∞, and what a comparison makes of it."""
    y = divided(powers_of(x), sum_of(powers_of(x)))
    for width in (*rows.narrower(x), x.shape[-1]):
        is_empty = (x[..., :width] == -math.inf).all(-1, keepdim=True)
        yield from (torch.where(is_empty, math.nan, y), torch.where(is_empty, powers_of(x), y))


def limited(x: Tensor) -> Iterator[Tensor]:
    """x is at least some number."""
    return (x.clamp(min=-digit * 10.0**power).softmax(-1) for power in range(1, 39) for digit in (1, 2, 3, 5))


def total_in_16_bits(cast: rows.Round, x: Tensor) -> Iterator[Tensor]:
    powers = powers_of(x)
    yield from (divided(powers, total) for total in rows.row_sums_in(cast, powers))
    yield divided(cast(powers), cast(sum_of(cast(powers))))


def with_dots(*dots: Callable[[Tensor, Tensor], Tensor]) -> rows.Variants:
    """The gradient with something else in place of Σ dy·y."""
    return rows.of_inputs(lambda grad_y, y: (y * (grad_y - dot(grad_y, y)) for dot in dots))


def dot_of_a_part(grad_y: Tensor, y: Tensor) -> Iterator[Tensor]:
    """The sum of the first tile, of the last one, or of each tile for itself."""
    for width in rows.narrower(y):
        by_tile = rows.tiles_of(grad_y * y, width).sum(-1)
        own = by_tile.repeat_interleave(width, -1)[..., : y.shape[-1]]
        yield from (y * (grad_y - dot) for dot in (by_tile[..., :1], by_tile[..., -1:], own))


def dot_in_16_bits(cast: rows.Round, grad_y: Tensor, y: Tensor) -> Iterator[Tensor]:
    for terms in (grad_y * y, cast(grad_y * y)):
        yield from (y * (grad_y - dot) for dot in rows.row_sums_in(cast, terms))
        yield y * (grad_y - cast(sum_of(terms)))


TOLD_FORWARD = """
begun-with-nan | what-goes-wrong | Your result is wrong in rows that begin with −∞, or have nothing else | −∞ − (−∞) is
    NaN: what is subtracted as long as nothing larger has come?
no-max | mathematics | Your result equals exp(x) / Σ exp(x), which overflows, or divides 0 by 0 | Which number can be
    subtracted from a whole row without changing its softmax?
max-from-zero | what-goes-wrong | Your result equals the softmax whose maximum is at least 0 | With what does the
    maximum start? Rows may be negative everywhere, and 0 pads a row with something.
min-for-max | mathematics | Your result equals the softmax with the least element subtracted in place of the largest |
    What is the largest power that can come up?
softmax-not-divided | mathematics | Your result equals exp(x − max), not divided by its sum | A row of y adds up to 1.
the-logarithm | mathematics | Your result equals the logarithm of the softmax | y is the power itself.
softmax-base-2 | mathematics | Your result equals the softmax to the base 2 | exp2(x) is 2ˣ: which factor makes it exp?
negated | mathematics | Your result equals the softmax of −x | Which sign has x in the exponent?
mean-for-sum | mathematics | Your result equals exp(x − max) divided by its mean | By what are the powers divided?
over-the-rows | mathematics | Your result equals the softmax over another dimension than the last one | Along which axis
    are maximum and sum taken?
padding-in-the-sum | what-goes-wrong | Your result equals the softmax of rows that go on with zeros | What does a masked
    load put in the place of what is not there, and what does exp make of it?
padding-as-large-as-the-max | what-goes-wrong | Your result equals the softmax of rows that go on with their largest
    element | What does a masked load put in the place of what is not there, and what does exp make of it?
softmax-sum-not-rescaled | algorithm | Your result equals the softmax whose sum is not rescaled when a later tile has a
    larger maximum | What was added up under the old maximum is too large by a factor: which?
a-part-of-the-row | algorithm | Your result is divided by the sum of one tile of the row | A row may be wider than a
    tile: the sum is over all of them.
tile-by-tile | algorithm | Your result is a softmax of each tile of a row by itself | They share one maximum and sum.
max-of-a-tile | algorithm | Your result equals the softmax with the maximum of one tile in place of the row's | A row
    may be wider than a tile: the maximum is over all of them.
limited | what-goes-wrong | Your result equals the softmax of numbers that are cut off from below, such as −∞ | A large
    negative number in place of −∞ is still a number, and counts where a row has no larger ones.
softmax-sum-in-16-bits | what-goes-wrong | Your result equals the softmax whose sum is kept in the inputs' 16 bits | A
    sum in 16 bits stops growing early: keep it in float32.
"""
FORWARD = {
    "begun-with-nan": rows.of_inputs(begun_with_nan),
    "no-max": with_max(lambda x: 0.0),
    "max-from-zero": with_max(lambda x: x.amax(-1, keepdim=True).clamp(min=0)),
    "min-for-max": with_max(lambda x: x.amin(-1, keepdim=True)),
    "softmax-not-divided": rows.of_inputs(lambda x: [powers_of(x)]),
    "the-logarithm": rows.of_inputs(lambda x: [x.log_softmax(-1)]),
    "softmax-base-2": rows.of_inputs(lambda x: [(x * math.log(2)).softmax(-1)]),
    "negated": rows.of_inputs(lambda x: [(-x).softmax(-1)]),
    "mean-for-sum": rows.of_inputs(lambda x: [divided(powers_of(x), powers_of(x).mean(-1, keepdim=True))]),
    "over-the-rows": rows.of_inputs(lambda x: (x.softmax(dim) for dim in range(x.ndim - 1))),
    "padding-in-the-sum": rows.of_inputs(padded),
    "padding-as-large-as-the-max": rows.of_inputs(padded_with_ones),
    "softmax-sum-not-rescaled": rows.of_inputs(not_rescaled),
    "a-part-of-the-row": rows.of_inputs(part_of_the_row),
    "tile-by-tile": rows.of_inputs(tile_by_tile),
    "max-of-a-tile": rows.of_inputs(max_of_a_tile),
    "limited": rows.of_inputs(limited),
    "softmax-sum-in-16-bits": rows.of_inputs_in_16_bits(total_in_16_bits),
}
TOLD_BACKWARD = """
dot-missing | the-gradient | Your grad_x equals y · grad_y, without the sum over the row | Each x acts on all of its
    row: what does that add?
dot-added | the-gradient | Your grad_x equals the one with Σ grad_y·y added instead of subtracted | More of one x means
    less of all other y: check the sign.
y-not-in-front | the-gradient | Your grad_x is grad_y − Σ grad_y·y, without y in front | ∂y_k/∂x_j = y_k (δ_jk−y_j).
the-diagonal-alone | the-gradient | Your grad_x equals grad_y · y · (1 − y), as if each element were alone | Each x acts
    on all of its row, not on its own y only.
dot-without-y | the-gradient | Your grad_x equals the one with Σ grad_y, or its mean, in place of Σ grad_y·y | What is
    added up over the row?
mean-for-dot | the-gradient | Your grad_x equals the one with the mean of grad_y·y in place of the sum | y adds up to 1.
of-the-logarithm | the-gradient | Your grad_x equals that of the softmax's logarithm, grad_y − y · Σ grad_y | y is the
    power itself: what is its gradient?
dot-of-a-part | algorithm | Your grad_x equals the one with Σ grad_y·y over one tile of the row | A row may be wider
    than a tile: the sum is over all of them.
dot-over-the-rows | the-gradient | Your grad_x equals the one with Σ grad_y·y over another dimension than the last one |
    Along which axis is the sum taken?
dot-in-16-bits | what-goes-wrong | Your grad_x equals the one with Σ grad_y·y kept in the inputs' 16 bits | Cast what is
    loaded to float32 before it is multiplied, and keep the sum in it.
"""
BACKWARD = {
    "dot-missing": with_dots(lambda grad_y, y: 0 * y),
    "dot-added": with_dots(lambda grad_y, y: -sum_of(grad_y * y)),
    "y-not-in-front": rows.of_inputs(lambda grad_y, y: [grad_y - sum_of(grad_y * y)]),
    "the-diagonal-alone": with_dots(lambda grad_y, y: grad_y * y),
    "dot-without-y": with_dots(lambda grad_y, y: sum_of(grad_y), lambda grad_y, y: grad_y.mean(-1, keepdim=True)),
    "mean-for-dot": with_dots(lambda grad_y, y: (grad_y * y).mean(-1, keepdim=True)),
    "of-the-logarithm": rows.of_inputs(lambda grad_y, y: [grad_y - y * sum_of(grad_y)]),
    "dot-of-a-part": rows.of_inputs(dot_of_a_part),
    "dot-over-the-rows": rows.of_inputs(
        lambda g, y: (y * (g - (g * y).sum(dim, keepdim=True)) for dim in range(y.ndim - 1))
    ),
    "dot-in-16-bits": rows.of_inputs_in_16_bits(dot_in_16_bits),
}
WRONG = "handout/softmax.md#what-goes-wrong"
MODELS = {
    "softmax_forward": Models(table("softmax", TOLD_FORWARD, FORWARD, across=("over-the-rows",)), WRONG),
    "softmax_backward": Models(table("softmax", TOLD_BACKWARD, BACKWARD, across=("dot-over-the-rows",)), WRONG),
}
