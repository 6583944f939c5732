"""Ways in which a softmax comes out wrong."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from assignment.operators.misconception import Call, exp, padded_width, rounded
from assignment.operators.rows import WIDTHS, Round, Variants
from tests.softmax.oracle import finite_max


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
