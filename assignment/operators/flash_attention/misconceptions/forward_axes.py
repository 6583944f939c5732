"""What can go wrong with the axes of a tile in the forward pass: of k, of a sum, of a maximum, of what rescales acc."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.forward_model import (
    ALGORITHM,
    Variants,
    default_scale,
    is_causal,
    natural,
    operand,
)
from assignment.operators.misconception import TILES, Call, Misconception, exp, padded_width

BROADCAST = "handout/triton.md#shapes-in-a-tile"


def transposed(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


def untransposed(q: Tensor, k: Tensor) -> Tensor:
    """q times each square tile of k as it lies, with zeros up to whole tiles."""
    n_keys, width = k.shape[-2], width_of(q)
    n_tiles = -(-n_keys // width)
    tiles = padded(k, n_tiles * width, width).unflatten(-2, (n_tiles, width))
    products = padded(q, q.shape[-2], width).unsqueeze(-3) @ tiles  # (…, tiles, queries, width)
    return products.transpose(-2, -3).flatten(-2)[..., :n_keys]


def padded(x: Tensor, rows: int, columns: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, columns - x.shape[-1], 0, rows - x.shape[-2]))


def width_of(x: Tensor) -> int:
    """Return how many columns a tile of x has."""
    return max(16, padded_width(x.shape[-1]))


def by_row(keep: Tensor) -> Tensor:
    return keep.unsqueeze(-1)


def by_column(keep: Tensor) -> Tensor:
    return keep.unsqueeze(-2)


@dataclass(frozen=True)
class Loop:
    """Attention as its loop over tiles computes it, for all tiles of queries at once; the fields are what differs."""

    product: Callable[[Tensor, Tensor], Tensor] = transposed
    maximum: Callable[[Tensor], Tensor] = lambda s: s.amax(-1)
    total: Callable[[Tensor], Tensor] = lambda p: p.sum(-1)
    rescaled: Callable[[Tensor], Tensor] = by_row

    def __call__(self, call: Call, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Return o and lse, for tiles of so many queries and keys."""
        q, k, v = (tensor.double() for tensor in call.tensors)
        n_queries, n_keys, width = q.shape[-2], k.shape[-2], width_of(q)
        n_tiles, n_padded = -(-n_queries // rows), -(-n_keys // columns) * columns
        s = self.product(q, k) * default_scale(q.shape[-1])
        s = padded(s, n_tiles * rows, n_padded).unflatten(-2, (n_tiles, rows))
        queries, keys = torch.arange(n_tiles * rows).unflatten(0, (n_tiles, rows)), torch.arange(n_padded)
        values = padded(v, n_padded, width).unsqueeze(-3)
        acc = torch.zeros(*s.shape[:-1], width, dtype=s.dtype)
        row_max, row_sum = torch.full_like(acc[..., 0], -math.inf), torch.zeros_like(acc[..., 0])
        for first in range(0, n_padded, columns):
            tile = slice(first, first + columns)
            visible = (keys[tile] < n_keys).expand(n_tiles, rows, columns)
            if is_causal(call):
                visible = visible & (keys[tile] <= queries.unsqueeze(-1))
            hidden = torch.where(visible, s[..., tile], -math.inf)
            new_max = torch.maximum(row_max, self.maximum(hidden))
            p, keep = exp(hidden - new_max.unsqueeze(-1)), exp(row_max - new_max)
            is_visited = ~(is_causal(call) & (first > queries[:, -1:]))
            row_sum = torch.where(is_visited, row_sum * keep + self.total(p), row_sum)
            added = acc * self.rescaled(keep) + operand(call)(p) @ values[..., tile, :]
            acc = torch.where(is_visited.unsqueeze(-1), added, acc)
            row_max = torch.where(is_visited, new_max, row_max)
        o = (acc / row_sum.unsqueeze(-1)).flatten(-3, -2)[..., :n_queries, : q.shape[-1]]
        return o, natural(row_max, row_sum).flatten(-2)[..., :n_queries]


def looped(loop: Loop, shapes: Callable[[Call], Iterable[tuple[int, int]]]) -> Variants:
    """Return a model: a loop over tiles of these shapes."""
    return lambda call: (loop(call, *shape) for shape in shapes(call))


def any_shape(call: Call) -> Iterator[tuple[int, int]]:
    """Yield tiles of queries and keys, square ones first."""
    yield from ((tile, tile) for tile in reversed(TILES))
    yield from ((rows, columns) for rows in TILES for columns in TILES if rows != columns)


def square(call: Call) -> list[tuple[int, int]]:
    return [(tile, tile) for tile in reversed(TILES)]


def as_wide_as_d(call: Call) -> list[tuple[int, int]]:
    """Return tiles with as many queries as acc has columns."""
    return [(width_of(call.tensors[0]), tile) for tile in reversed(TILES)]


def keys_as_wide_as_d(call: Call) -> list[tuple[int, int]]:
    """Return tiles with as many keys as k has columns: only then can k be multiplied as it lies."""
    return [(max(TILES), width_of(call.tensors[0]))]


MISCONCEPTIONS = [
    Misconception(
        "k-not-transposed",
        "Your result equals attention with q k in place of q kᵀ, tile by tile",
        "A logit is the product of two rows, one of q and one of k: along which axis of k's tile does d run?",
        ALGORITHM,
        looped(Loop(product=untransposed), keys_as_wide_as_d),
    ),
    Misconception(
        "acc-rescaled-along-the-columns",
        "Your o equals attention in which the rescaling factor of a query multiplies a column of acc",
        "The factor belongs to a query, and queries are acc's rows: [:, None] or [None, :]?",
        BROADCAST,
        looped(Loop(rescaled=by_column), as_wide_as_d),
    ),
    Misconception(
        "sum-of-the-whole-tile",
        "Your o and lse equal attention in which each query's sum is that of the whole tile of P",
        "tl.sum without an axis adds up all of a tile: a query's sum is that of its row.",
        BROADCAST,
        looped(Loop(total=lambda p: p.sum((-2, -1)).unsqueeze(-1).expand(p.shape[:-1])), any_shape),
    ),
    Misconception(
        "sum-along-the-queries",
        "Your o and lse equal attention in which P is summed along the queries of a tile",
        "A query's sum runs over its keys: which axis of P's tile are they?",
        BROADCAST,
        looped(Loop(total=lambda p: p.sum(-2)), square),
    ),
    Misconception(
        "maximum-along-the-queries",
        "Your result equals attention whose maxima are taken along the queries of a tile",
        "A query's maximum is that over its keys: which axis of S's tile are they?",
        BROADCAST,
        looped(Loop(maximum=lambda s: s.amax(-2)), square),
        is_rare=True,
    ),
]
