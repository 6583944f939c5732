"""FlashAttention-2's forward pass over tiles of keys, right by default; the sections that tell of it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import TILES, Call, exact, exp, rounded

CASTS = "casts"
Round = Callable[[Tensor], Tensor]
Variants = Callable[[Call], Iterator[Sequence[Tensor]]]


def is_causal(call: Call) -> bool:
    return bool(call.options.get("is_causal"))


def ways(call: Call) -> Sequence[str]:
    """P and dS may be rounded to the inputs' 16 bits before they are multiplied."""
    return ("",) if call.dtype == torch.float32 else (CASTS, "")


def operand(call: Call) -> Round:
    """What is done to P and dS before they are multiplied."""
    return rounded(call.dtype) if call.way == CASTS else exact


def default_scale(d: int) -> float:
    return 1 / math.sqrt(d)


def running(largest: Tensor, first: float) -> Tensor:
    """After each tile the maximum so far, from those of the tiles."""
    return largest.clamp(min=first).cummax(-1).values


def factor(old: Tensor, new: Tensor) -> Tensor:
    """What the old accumulator and sum are multiplied with."""
    return exp(old - new)


def past(queries: Tensor, keys: Tensor, tile: int, n_queries: int, n_keys: int) -> Tensor:
    """Which keys a causal query sees."""
    return keys <= queries


def in_the_future(queries: Tensor, keys: Tensor, rows: int, columns: int) -> Tensor:
    """Which keys are in tiles that a causal kernel does not visit for a tile of queries."""
    return keys // columns * columns >= (queries // rows + 1) * rows


def natural(m: Tensor, total: Tensor) -> Tensor:
    return m + total.log()


@dataclass(frozen=True)
class Tiled:
    """What tiled attention returns; each field is a thing that can be wrong."""

    scale: Callable[[int], float] = default_scale
    base: float = 1.0  # what the logits are multiplied with before exp
    maximum: Callable[[Tensor, float], Tensor] = running
    first_maximum: float = -math.inf
    keep_acc: Callable[[Tensor, Tensor], Tensor] = factor
    keep_sum: Callable[[Tensor, Tensor], Tensor] = factor
    seen: Callable[[Tensor, Tensor, int, int, int], Tensor] | None = past  # None: is_causal is ignored
    hidden: float = -math.inf
    last_key: Callable[[int, int, int], int] = lambda n_queries, n_keys, tile: n_keys
    first_key: Callable[[int, int], int] = lambda n_keys, tile: 0
    padded: bool = False  # the keys past the end take part as zeros
    padding: float = 0.0  # their logits, then
    lse: Callable[[Tensor, Tensor], Tensor] = natural
    divided: bool = True
    operands: Round = exact  # of q kᵀ
    logits: Round = exact
    p: Round = exact
    p_for_v: Round = exact  # beside p
    v: Round = exact
    added: Round = exact  # each product with v
    acc: Round = exact
    total: Round = exact
    clamp: float = math.inf
    guarded: bool = False  # −∞ − −∞ is taken for −∞
    visited: tuple[int, int] | None = None  # where causal: rows and columns of tiles; those of the future are left out

    def __call__(self, call: Call, tile: int) -> tuple[Tensor, Tensor]:
        """o and lse. All logits at once: what happens tile by tile is in the maxima and in the factors of each tile."""
        q, k, v = (tensor.double() for tensor in call.tensors)
        n_queries, n_keys = q.shape[-2], k.shape[-2]
        first, stop = self.first_key(n_keys, tile), min(n_keys, self.last_key(n_queries, n_keys, tile))
        n_padded = max(1, -(-(stop - first) // tile)) * tile
        queries, keys = torch.arange(n_queries)[:, None], first + torch.arange(n_padded)
        s = self.logits(self.operands(q) @ self.operands(k).mT * self.scale(q.shape[-1]))
        s, values = (x[..., first:stop] for x in (s, self.v(v).mT))
        s, values = (torch.nn.functional.pad(x, (0, n_padded - x.shape[-1])) for x in (s, values))
        s = torch.where(keys < stop, s, self.padding) if self.padding else s
        if is_causal(call) and self.seen:
            s = torch.where(self.seen(queries, keys, tile, n_queries, n_keys), s, self.hidden)
        s = (s * self.base).clamp(max=self.clamp)
        visited = keys < (keys[-1] + 1 if self.padded and stop == n_keys else stop)
        if self.visited and is_causal(call):
            visited = visited & ~in_the_future(queries, keys, *self.visited)
        return self.over_tiles(s, values.mT, visited.expand(n_queries, n_padded), tile, call)

    def over_tiles(self, s: Tensor, values: Tensor, visited: Tensor, tile: int, call: Call) -> tuple[Tensor, Tensor]:
        """From logits (…, n_queries, keys), and whether they are looked at."""
        s, visited = (x.unflatten(-1, (-1, tile)) for x in (s, visited))  # (…, queries, tiles, keys)
        m = self.maximum(torch.where(visited, s, -math.inf).amax(-1), self.first_maximum)  # (…, queries, tiles)
        last = visited.any(-1).sum(-1, keepdim=True).sub(1).clamp(min=0).expand(*m.shape[:-1], 1)
        m = torch.where(visited.any(-1), m, m.gather(-1, last))  # what is not visited changes nothing
        p = exp(s - m.unsqueeze(-1))
        p = torch.where(s == -math.inf, 0.0, p) if self.guarded else p
        p = self.p(torch.where(visited, p, 0.0))
        unchanged = ~visited.any(-1)[..., 1:] | (self.guarded & (m[..., :-1] == m[..., 1:]))
        keep_acc, keep_sum = (
            torch.where(unchanged, 1.0, keep(m[..., :-1], m[..., 1:])) for keep in (self.keep_acc, self.keep_sum)
        )
        weights = operand(call)(self.p_for_v(p))
        if {self.acc, self.added, self.total} == {exact}:
            acc = (weights * later(keep_acc).unsqueeze(-1)).flatten(-2) @ values
            total = (p.sum(-1) * later(keep_sum)).sum(-1)
        else:
            parts = self.added(weights.transpose(-3, -2) @ values.unflatten(-2, (-1, tile)))  # (…, tiles, queries, d)
            acc = rounded_sum(parts.unbind(-3), keep_acc.unsqueeze(-1).unbind(-2), self.acc)
            total = rounded_sum(p.sum(-1).unbind(-1), keep_sum.unbind(-1), self.total)
        o = acc / total.unsqueeze(-1) if self.divided else acc
        return o, self.lse(m[..., -1], total)


def later(keep: Tensor) -> Tensor:
    """For each tile the product of all factors that come after it."""
    ones = torch.ones_like(keep[..., :1]) if keep.shape[-1] else keep.new_ones(*keep.shape[:-1], 1)
    return torch.cat([keep.flip(-1).cumprod(-1).flip(-1), ones], -1)


def rounded_sum(parts: Sequence[Tensor], keep: Sequence[Tensor], cast: Round) -> Tensor:
    """What is added up tile by tile, rounded each time."""
    total = cast(parts[0])
    for part, factor in zip(parts[1:], keep, strict=True):
        total = cast(total * factor + part)
    return total


def each(**changes: Any) -> Variants:
    """A model for every tile size."""
    return lambda call: (Tiled(**changes)(call, tile) for tile in TILES)


def once(**changes: Any) -> Variants:
    """A model that tiles make no difference to."""
    return lambda call: iter([Tiled(**changes)(call, call.tensors[1].shape[-2])])


def several(*models: Variants) -> Variants:
    return lambda call: (variant for model in models for variant in model(call))


def n_keys_of(call: Call) -> int:
    return call.tensors[1].shape[-2]


ATTENTION = "handout/flash_attention.md#attention"
ONLINE = "handout/flash_attention.md#online-softmax"
MASKS = ALGORITHM = "handout/flash_attention.md#forward-algorithm"
NUMBERS = "handout/flash_attention.md#forward-what-goes-wrong"
