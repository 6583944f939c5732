"""What models of the operators on rows share: tiles of columns, rows that are left, sums in 16 bits."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import Call, padded_width, rounded

Round = Callable[[Tensor], Tensor]
Variants = Callable[[Call], Iterator[Sequence[Tensor]]]
WIDTHS = [1 << i for i in range(4, 16)]  # of tiles of columns
MOST_TILES = 512  # of a row, that are looked at one by one


def of_inputs(results: Callable[..., Iterable[Tensor]]) -> Variants:
    """Return a model of an operator with one result, of all that may come out for its inputs in float64."""
    return lambda call: ([result] for result in results(*(tensor.double() for tensor in call.tensors)))


def of_inputs_in_16_bits(results: Callable[..., Iterable[Tensor]]) -> Variants:
    """Return the same for inputs of 16 bits alone: `results` is given the rounding to them first."""
    return lambda call: (
        of_inputs(functools.partial(results, rounded(call.dtype)))(call) if call.dtype != torch.float32 else iter([])
    )


def narrower(x: Tensor) -> Iterator[int]:
    """Yield widths of tiles that a row does not fit in."""
    return (width for width in WIDTHS if width < x.shape[-1])


def padded_counts(d: int) -> list[int]:
    """Return how wide a row may be once it is padded."""
    return sorted({padded_width(d), *(-(-d // width) * width for width in WIDTHS)} - {d})


def tiles_of(x: Tensor, width: int, past_the_end: float = 0.0) -> Tensor:
    """Return (…, tiles, width), with some value past the last column."""
    return torch.nn.functional.pad(x, (0, -x.shape[-1] % width), value=past_the_end).unflatten(-1, (-1, width))


def row_sums_in(cast: Round, terms: Tensor) -> Iterator[Tensor]:
    """Yield sums over a row rounded after every tile, for all tiles, and for lanes that are added up at the end."""
    for width in WIDTHS:
        tiles = tiles_of(terms, width)
        if tiles.shape[-2] > MOST_TILES:
            continue
        total, lanes = torch.zeros_like(tiles[..., 0, 0]), torch.zeros_like(tiles[..., 0, :])
        for tile in tiles.unbind(-2):
            total, lanes = cast(total + tile.sum(-1)), cast(lanes + tile)
        yield from (total.unsqueeze(-1), lanes.sum(-1, keepdim=True), cast(lanes.sum(-1, keepdim=True)))


def in_dtype(model: Callable[[Call, Round], Sequence[Tensor]]) -> Variants:
    """Return a model for inputs of 16 bits, which is given the rounding to them."""
    return lambda call: iter([model(call, rounded(call.dtype))] if call.dtype != torch.float32 else [])


def several(*models: Variants) -> Variants:
    return lambda call: (variant for model in models for variant in model(call))


def lost_rows(n: int) -> Iterator[Any]:
    """Yield which rows may be left: the first or the last so many, tiles of rows, or every so many."""
    for size in (1 << i for i in range(11)):
        if size < n:
            yield slice(0, size)
            yield slice((n - 1) // size * size, None)
            yield slice(0, n // size * size)
            yield slice(0, None, size) if size > 1 else slice(0, 0)
            yield slice(n - size, None)
            yield slice(size - 1, None, size) if size > 1 else slice(0, 0)
            yield torch.arange(n) // size % 2 == 0
            yield slice(0, n // 2 // size * size)
            yield slice(0, -(-n // size) // 2 * size)


def mean_counts(x: Tensor) -> list[float]:
    n = math.prod(x.shape[:-1])
    return sorted({float(n), *(float(-(-n // size)) for size in (1 << i for i in range(8)))} - {0.0, 1.0})


def summed_in(dtype: torch.dtype, terms: Tensor, size: int) -> Iterator[Tensor]:
    """Yield sums of rounded partial sums of so many rows: exact, rounded after each, or row by row in each."""
    cast = rounded(dtype)
    parts = [cast(part.sum(0)) for part in terms.split(size)]
    yield torch.stack(parts).sum(0)
    yield functools.reduce(lambda total, part: cast(total + part), parts)
    if len(terms) % size == 0:
        together = terms.unflatten(0, (-1, size))
        for rows in (together, together.transpose(0, 1)):
            yield functools.reduce(lambda total, part: cast(total + part), rows, torch.zeros_like(rows[0])).sum(0)
        yield functools.reduce(lambda total, part: cast(total + cast(part)), together).sum(0)
        yield functools.reduce(lambda total, part: cast(total + cast(part)), together.transpose(0, 1)).sum(0)
