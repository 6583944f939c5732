"""What can go wrong in a softmax, forward and backward."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, Misconception, Models, exp, padded_width, rounded
from assignment.operators.rows import WIDTHS, Round, Variants
from tests.softmax.oracle import finite_max

FORMULA, GRADIENT = "handout/softmax.md#mathematics", "handout/softmax.md#the-gradient"
ALGORITHM, WRONG = "handout/softmax.md#algorithm", "handout/softmax.md#what-goes-wrong"


def of_x(y: Callable[[Tensor], Tensor]) -> Variants:
    return lambda call: iter([[y(call.tensors[0].double())]])


def divided(powers: Tensor, total: Tensor) -> Tensor:
    """By a sum that is 0 in a row of −∞ alone."""
    return powers / torch.where(total > 0, total, 1.0)


def with_max(top: Callable[[Tensor], Tensor | float]) -> Variants:
    """The softmax with something else in place of the maximum; 0/0 is NaN, or has been kept from it."""

    def variants(call: Call) -> Iterator[Sequence[Tensor]]:
        x = call.tensors[0].double()
        powers = exp(x - top(x))
        total = powers.sum(-1, keepdim=True)
        yield [powers / total]
        yield [divided(powers, total)]

    return variants


def powers_of(x: Tensor) -> Tensor:
    return (x - finite_max(x)).exp()


def narrower(x: Tensor) -> Iterator[int]:
    """Widths of tiles that a row does not fit in."""
    return (width for width in WIDTHS if width < x.shape[-1])


def padded(call: Call) -> Iterator[Sequence[Tensor]]:
    """What pads a row has been loaded as 0; it takes part in the sum, and in the maximum or not."""
    x = call.tensors[0].double()
    d = x.shape[-1]
    for width in sorted({padded_width(d), *(-(-d // w) * w for w in WIDTHS)} - {d}):
        for top in (finite_max(x).clamp(min=0), finite_max(x)):
            powers = exp(x - top)
            yield [powers / (powers.sum(-1, keepdim=True) + (width - d) * exp(-top))]


def padded_with_ones(call: Call) -> Iterator[Sequence[Tensor]]:
    """Each element that pads a row counts as the largest one does."""
    x = call.tensors[0].double()
    d = x.shape[-1]
    for width in sorted({padded_width(d), *(-(-d // w) * w for w in WIDTHS)} - {d}):
        yield [powers_of(x) / (powers_of(x).sum(-1, keepdim=True) + width - d)]


def tiles_of(x: Tensor, width: int) -> Tensor:
    """Return (…, tiles, width), with −∞ past the last column."""
    missing = -x.shape[-1] % width
    return torch.nn.functional.pad(x, (0, missing), value=-math.inf).unflatten(-1, (-1, width))


def not_rescaled(call: Call) -> Iterator[Sequence[Tensor]]:
    """What was summed under an older maximum is added to what came after it; as a scalar of the row, or by lane."""
    x = call.tensors[0].double()
    for width in narrower(x):
        tiles = tiles_of(x, width)
        tops = tiles.amax(-1).cummax(-1).values.nan_to_num(neginf=0.0)
        total = exp(tiles - tops.unsqueeze(-1)).sum((-1, -2))
        yield [divided(powers_of(x), total.unsqueeze(-1))]


def part_of_the_row(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum of the first tile, or of the last one, each under the maximum of the row or of the tile."""
    x = call.tensors[0].double()
    for width in narrower(x):
        tiles = tiles_of(x, width)
        for part in (tiles[..., 0, :], tiles[..., -1, :]):
            for top in (finite_max(x), finite_max(part)):
                yield [exp(x - top) / exp(part - top).sum(-1, keepdim=True)]


def tile_by_tile(call: Call) -> Iterator[Sequence[Tensor]]:
    """Every tile is a softmax of its own."""
    x = call.tensors[0].double()
    for width in narrower(x):
        powers = powers_of(tiles_of(x, width))
        yield [divided(powers, powers.sum(-1, keepdim=True)).flatten(-2)[..., : x.shape[-1]]]


def max_of_a_tile(call: Call) -> Iterator[Sequence[Tensor]]:
    """The maximum is that of the first tile or of the last one; what is larger overflows."""
    x = call.tensors[0].double()
    for width in narrower(x):
        tiles = tiles_of(x, width)
        for part in (tiles[..., 0, :], tiles[..., -1, :]):
            powers = exp(x - part.amax(-1, keepdim=True))
            yield [powers / powers.sum(-1, keepdim=True)]


def begun_with_nan(call: Call) -> Iterator[Sequence[Tensor]]:
    """A sum that is NaN where the first tile has nothing but −∞, and what a comparison makes of it."""
    x = call.tensors[0].double()
    y = divided(powers_of(x), powers_of(x).sum(-1, keepdim=True))
    for width in (*narrower(x), x.shape[-1]):
        is_empty = (x[..., :width] == -math.inf).all(-1, keepdim=True)
        yield [torch.where(is_empty, math.nan, y)]
        yield [torch.where(is_empty, powers_of(x), y)]


def limited(call: Call) -> Iterator[Sequence[Tensor]]:
    """x is at least some number."""
    for power in range(1, 39):
        for digit in (1, 2, 3, 5):
            yield [call.tensors[0].double().clamp(min=-digit * 10.0**power).softmax(-1)]


def sums_in_16_bits(terms: Tensor, cast: Round) -> Iterator[Tensor]:
    """The sum over a row rounded after every tile, for all tiles, and for lanes that are added up at the end."""
    for width in WIDTHS:
        tiles = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % width)).unflatten(-1, (-1, width))
        if tiles.shape[-2] > 512:
            continue
        total, lanes = torch.zeros_like(tiles[..., 0, 0]), torch.zeros_like(tiles[..., 0, :])
        for tile in tiles.unbind(-2):
            total, lanes = cast(total + tile.sum(-1)), cast(lanes + tile)
        yield from (total.unsqueeze(-1), lanes.sum(-1, keepdim=True), cast(lanes.sum(-1, keepdim=True)))


def total_in_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    powers = powers_of(call.tensors[0].double())
    if call.dtype != torch.float32:
        cast = rounded(call.dtype)
        yield from ([divided(powers, total)] for total in sums_in_16_bits(powers, cast))
        yield [divided(cast(powers), cast(cast(powers).sum(-1, keepdim=True)))]


FORWARD = [
    Misconception(
        "no-max",
        "Your result equals exp(x) / Σ exp(x), which overflows, or divides 0 by 0",
        "Which number can be subtracted from a whole row without changing its softmax?",
        FORMULA,
        with_max(lambda x: 0.0),
    ),
    Misconception(
        "max-from-zero",
        "Your result equals the softmax whose maximum is at least 0",
        "With what does the maximum start? Rows may be negative everywhere, and 0 pads a row with something.",
        WRONG,
        with_max(lambda x: x.amax(-1, keepdim=True).clamp(min=0)),
    ),
    Misconception(
        "min-for-max",
        "Your result equals the softmax with the least element subtracted in place of the largest",
        "What is the largest power that can come up?",
        FORMULA,
        with_max(lambda x: x.amin(-1, keepdim=True)),
    ),
    Misconception(
        "not-divided",
        "Your result equals exp(x − max), not divided by its sum",
        "A row of y adds up to 1.",
        FORMULA,
        of_x(powers_of),
    ),
    Misconception(
        "the-logarithm",
        "Your result equals the logarithm of the softmax",
        "y is the power itself.",
        FORMULA,
        of_x(lambda x: x.log_softmax(-1)),
    ),
    Misconception(
        "base-2",
        "Your result equals the softmax to the base 2",
        "exp2(x) is 2 to the x: which factor makes it exp?",
        FORMULA,
        of_x(lambda x: (x * math.log(2)).softmax(-1)),
    ),
    Misconception(
        "negated",
        "Your result equals the softmax of −x",
        "Which sign has x in the exponent?",
        FORMULA,
        of_x(lambda x: (-x).softmax(-1)),
    ),
    Misconception(
        "mean-for-sum",
        "Your result equals exp(x − max) divided by its mean",
        "By what are the powers divided?",
        FORMULA,
        of_x(lambda x: divided(powers_of(x), powers_of(x).mean(-1, keepdim=True))),
    ),
    Misconception(
        "over-the-rows",
        "Your result equals the softmax over another dimension than the last one",
        "Along which axis are maximum and sum taken?",
        FORMULA,
        lambda call: ([call.tensors[0].double().softmax(dim)] for dim in range(call.tensors[0].ndim - 1)),
        is_by_batch=False,
    ),
    Misconception(
        "padding-in-the-sum",
        "Your result equals the softmax of rows that go on with zeros",
        "What does a masked load put in the place of what is not there, and what does exp make of it?",
        WRONG,
        padded,
    ),
    Misconception(
        "padding-as-large-as-the-max",
        "Your result equals the softmax of rows that go on with their largest element",
        "What does a masked load put in the place of what is not there, and what does exp make of it?",
        WRONG,
        padded_with_ones,
    ),
    Misconception(
        "sum-not-rescaled",
        "Your result equals the softmax whose sum is not rescaled when a later tile has a larger maximum",
        "What was added up under the old maximum is too large by a factor: which?",
        ALGORITHM,
        not_rescaled,
    ),
    Misconception(
        "a-part-of-the-row",
        "Your result is divided by the sum of one tile of the row",
        "A row may be wider than a tile: the sum is over all of them.",
        ALGORITHM,
        part_of_the_row,
    ),
    Misconception(
        "tile-by-tile",
        "Your result is a softmax of each tile of a row by itself",
        "All tiles of a row share one maximum and one sum.",
        ALGORITHM,
        tile_by_tile,
    ),
    Misconception(
        "max-of-a-tile",
        "Your result equals the softmax with the maximum of one tile in place of the row's",
        "A row may be wider than a tile: the maximum is over all of them.",
        ALGORITHM,
        max_of_a_tile,
    ),
    Misconception(
        "begun-with-nan",
        "Your result is wrong in rows that begin with −∞, or have nothing else",
        "−∞ − (−∞) is NaN: what is subtracted as long as nothing larger has come?",
        WRONG,
        begun_with_nan,
    ),
    Misconception(
        "limited",
        "Your result equals the softmax of numbers that are cut off from below, such as −∞",
        "A large negative number in place of −∞ is still a number, and counts where a row has no larger ones.",
        WRONG,
        limited,
    ),
    Misconception(
        "sum-in-16-bits",
        "Your result equals the softmax whose sum is kept in the inputs' 16 bits",
        "A sum in 16 bits stops growing early: keep it in float32.",
        WRONG,
        total_in_16_bits,
    ),
]


def of_both(grad_x: Callable[[Tensor, Tensor], Tensor]) -> Variants:
    return lambda call: iter([[grad_x(*(tensor.double() for tensor in call.tensors))]])


def with_dots(dot: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The gradient with something else in place of Σ dy·y."""
    return lambda grad_y, y: y * (grad_y - dot(grad_y, y))


def dot_of_a_part(call: Call) -> Iterator[Sequence[Tensor]]:
    """The sum of the first tile, of the last one, or of each tile for itself."""
    grad_y, y = (tensor.double() for tensor in call.tensors)
    for width in narrower(y):
        terms = grad_y * y
        padded_terms = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % width))
        by_tile = padded_terms.unflatten(-1, (-1, width)).sum(-1)
        own = by_tile.repeat_interleave(width, -1)[..., : y.shape[-1]]
        for dot in (by_tile[..., :1], by_tile[..., -1:], own):
            yield [y * (grad_y - dot)]


def dot_in_16_bits(call: Call) -> Iterator[Sequence[Tensor]]:
    grad_y, y = (tensor.double() for tensor in call.tensors)
    if call.dtype != torch.float32:
        cast = rounded(call.dtype)
        for terms in (grad_y * y, cast(grad_y * y)):
            yield from ([y * (grad_y - dot)] for dot in sums_in_16_bits(terms, cast))
            yield [y * (grad_y - cast(terms.sum(-1, keepdim=True)))]


BACKWARD = [
    Misconception(
        "dot-missing",
        "Your grad_x equals y · grad_y, without the sum over the row",
        "Each x acts on all of its row: what does that add?",
        GRADIENT,
        of_both(lambda grad_y, y: y * grad_y),
    ),
    Misconception(
        "dot-added",
        "Your grad_x equals the one with Σ grad_y·y added instead of subtracted",
        "More of one x means less of all other y: check the sign.",
        GRADIENT,
        of_both(with_dots(lambda grad_y, y: -(grad_y * y).sum(-1, keepdim=True))),
    ),
    Misconception(
        "y-not-in-front",
        "Your grad_x equals grad_y − Σ grad_y·y, without y in front",
        "∂y_k/∂x_j = y_k (δ_jk − y_j).",
        GRADIENT,
        of_both(lambda grad_y, y: grad_y - (grad_y * y).sum(-1, keepdim=True)),
    ),
    Misconception(
        "the-diagonal-alone",
        "Your grad_x equals grad_y · y · (1 − y), as if each element were alone",
        "Each x acts on all of its row, not on its own y only.",
        GRADIENT,
        of_both(lambda grad_y, y: grad_y * y * (1 - y)),
    ),
    Misconception(
        "dot-without-y",
        "Your grad_x equals the one with Σ grad_y, or its mean, in place of Σ grad_y·y",
        "What is added up over the row?",
        GRADIENT,
        lambda call: (
            [y * (grad_y - dot)]
            for grad_y, y in [[tensor.double() for tensor in call.tensors]]
            for dot in (grad_y.sum(-1, keepdim=True), grad_y.mean(-1, keepdim=True))
        ),
    ),
    Misconception(
        "mean-for-dot",
        "Your grad_x equals the one with the mean of grad_y·y in place of the sum",
        "The weights y add up to 1 already.",
        GRADIENT,
        of_both(with_dots(lambda grad_y, y: (grad_y * y).mean(-1, keepdim=True))),
    ),
    Misconception(
        "of-the-logarithm",
        "Your grad_x equals that of the softmax's logarithm, grad_y − y · Σ grad_y",
        "y is the power itself: what is its gradient?",
        GRADIENT,
        of_both(lambda grad_y, y: grad_y - y * grad_y.sum(-1, keepdim=True)),
    ),
    Misconception(
        "dot-of-a-part",
        "Your grad_x equals the one with Σ grad_y·y over one tile of the row",
        "A row may be wider than a tile: the sum is over all of them.",
        ALGORITHM,
        dot_of_a_part,
    ),
    Misconception(
        "dot-over-the-rows",
        "Your grad_x equals the one with Σ grad_y·y over another dimension than the last one",
        "Along which axis is the sum taken?",
        GRADIENT,
        lambda call: (
            [y * (grad_y - (grad_y * y).sum(dim, keepdim=True))]
            for grad_y, y in [[tensor.double() for tensor in call.tensors]]
            for dim in range(y.ndim - 1)
        ),
        is_by_batch=False,
    ),
    Misconception(
        "dot-in-16-bits",
        "Your grad_x equals the one with Σ grad_y·y kept in the inputs' 16 bits",
        "Cast what is loaded to float32 before it is multiplied, and keep the sum in it.",
        WRONG,
        dot_in_16_bits,
    ),
]

MODELS = {"softmax_forward": Models(FORWARD, WRONG), "softmax_backward": Models(BACKWARD, WRONG)}
