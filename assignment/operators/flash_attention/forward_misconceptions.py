"""What can go wrong in FlashAttention-2's forward pass: attention over tiles of keys, right by default."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from assignment.operators.misconception import TILES, Call, Misconception, exact, exp, padded_width, rounded

Round = Callable[[Tensor], Tensor]
Variants = Callable[[Call], Iterator[Sequence[Tensor]]]
PAIRS = ((16, 16), (32, 32), (64, 64), (128, 128), (64, 32), (128, 64), (32, 64), (64, 128))  # of queries and keys
LOG2E = math.log2(math.e)


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
        if call.is_causal and self.seen:
            s = torch.where(self.seen(queries, keys, tile, n_queries, n_keys), s, self.hidden)
        s = (s * self.base).clamp(max=self.clamp)
        visited = keys < (keys[-1] + 1 if self.padded and stop == n_keys else stop)
        if self.visited and call.is_causal:
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
        weights = call.operand(self.p_for_v(p))
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


def local(largest: Tensor, first: float) -> Tensor:
    return largest


def ones(old: Tensor, new: Tensor) -> Tensor:
    return torch.ones_like(old)


def inverse(old: Tensor, new: Tensor) -> Tensor:
    return exp(new - old)


def none(largest: Tensor, first: float) -> Tensor:
    return torch.zeros_like(largest)


def of_all_rows(largest: Tensor, first: float, tile: int) -> Tensor:
    """One maximum for each tile of rows."""
    together = [part.amax(-2, keepdim=True).expand_as(part) for part in largest.split(tile, -2)]
    return running(torch.cat(together, -2), first)


def each(**changes: Any) -> Variants:
    """A model for every tile size."""
    return lambda call: (Tiled(**changes)(call, tile) for tile in TILES)


def once(**changes: Any) -> Variants:
    """A model that tiles make no difference to."""
    return lambda call: iter([Tiled(**changes)(call, call.tensors[1].shape[-2])])


def masked(**changes: Any) -> Variants:
    """A causal model: in one tile, or tile by tile up to the diagonal's; −∞ − −∞ as it comes, or taken for −∞."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        n_keys = n_keys_of(call)
        for pair in (None, *PAIRS) if call.is_causal else ():
            tile = pair[1] if pair else n_keys
            if "padding" in changes and n_keys % tile == 0:
                continue
            yield (came := Tiled(visited=pair, **changes)(call, tile))
            if not came[0].isfinite().all():
                yield Tiled(visited=pair, guarded=True, **changes)(call, tile)
        hides_rows = call.is_causal and "hidden" not in changes  # all of them in a tile: −∞ − −∞ if it comes first
        for tile in TILES if hides_rows else ():
            came = Tiled(**changes)(call, tile)
            if not came[0].isfinite().all():
                yield came

    return model


def in_dtype(*fields: str, tiled: bool = False, **changes: Any) -> Variants:
    """Something is rounded to the inputs' 16 bits."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        if call.dtype == torch.float32:
            return
        how = dict.fromkeys(fields, rounded(call.dtype)) | changes
        yield from (each if tiled else once)(**how)(call)

    return model


def as_16_bits(*fields: str) -> Variants:
    """Something is rounded to 16 bits whatever the inputs are."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for dtype in (torch.bfloat16, torch.float16):
            if dtype != call.dtype:
                yield from once(**dict.fromkeys(fields, rounded(dtype)))(call)

    return model


def n_keys_of(call: Call) -> int:
    return call.tensors[1].shape[-2]


def several(*models: Variants) -> Variants:
    return lambda call: (variant for model in models for variant in model(call))


def one_maximum(call: Call) -> Iterator[Sequence[Tensor]]:
    for tile in TILES:
        for rows in TILES:
            yield Tiled(maximum=functools.partial(of_all_rows, tile=rows))(call, tile)


ATTENTION = "handout/flash_attention.md#attention"
ONLINE = "handout/flash_attention.md#online-softmax"
MASKS = ALGORITHM = "handout/flash_attention.md#forward-algorithm"
NUMBERS = "handout/flash_attention.md#forward-what-goes-wrong"

MISCONCEPTIONS = [
    Misconception(
        "acc-not-rescaled",
        "Your o equals attention in which the old accumulator is not rescaled when the running maximum grows",
        "Look at what multiplies acc before you add to it.",
        ONLINE,
        each(keep_acc=ones),
    ),
    Misconception(
        "sum-not-rescaled",
        "Your o and lse equal attention in which the old sum is not rescaled when the running maximum grows",
        "Look at what multiplies the running sum before you add to it.",
        ONLINE,
        each(keep_sum=ones),
    ),
    Misconception(
        "nothing-rescaled",
        "Your result equals attention in which neither accumulator nor sum is rescaled when the running maximum grows",
        "What was summed under the old maximum is too large, or too small, under the new one: by which factor?",
        ONLINE,
        each(keep_acc=ones, keep_sum=ones),
    ),
    Misconception(
        "rescaled-by-the-inverse",
        "Your result equals attention in which old sums are multiplied by exp(m_new − m_old)",
        "The new maximum is at least the old one: should what is old grow or shrink?",
        ONLINE,
        several(each(keep_acc=inverse, keep_sum=inverse), each(keep_acc=inverse), each(keep_sum=inverse)),
    ),
    Misconception(
        "maximum-starts-at-0",
        "Your result equals attention whose running maximum starts at a number, such as 0",
        "A row whose logits are all far below 0 never sees a maximum of its own: with what does m begin?",
        ONLINE,
        several(each(first_maximum=0.0), once(first_maximum=0.0)),
    ),
    Misconception(
        "maximum-of-the-tile",
        "Your result equals attention in which the maximum of the last tile replaces the running one",
        "The running maximum never falls: what has it to be compared with?",
        ONLINE,
        several(each(maximum=local), each(maximum=local, keep_acc=ones, keep_sum=ones)),
    ),
    Misconception(
        "no-maximum",
        "Your result equals attention without a maximum subtracted: large logits overflow, small ones vanish",
        "exp(89) is infinite in float32. What is subtracted from a row's logits, and added back to lse?",
        ONLINE,
        once(maximum=none, first_maximum=0.0),
    ),
    Misconception(
        "one-maximum-for-all-rows",
        "Your result equals attention with one maximum for all queries of a tile",
        "Each query has a maximum of its own: along which axis is it taken?",
        ONLINE,
        one_maximum,
    ),
    Misconception(
        "logits-clamped",
        "Your result equals attention whose logits are clamped instead of shifted by a maximum",
        "Clamping changes the larger logits: subtract the row's maximum instead.",
        ONLINE,
        lambda call: (
            Tiled(clamp=limit, maximum=none, first_maximum=0.0)(call, call.tensors[1].shape[-2])
            for limit in (10, 20, 30, 40, 50, 60, 64, 70, 80, 85, 87, 88, 100)
        ),
    ),
    Misconception(
        "base-2",
        "Your result equals attention with 2^s in place of e^s",
        "exp2 wants its argument multiplied by log₂(e).",
        ALGORITHM,
        several(
            once(base=math.log(2), lse=lambda m, total: (m + total.log()) / math.log(2)),
            once(base=math.log(2), lse=lambda m, total: m / math.log(2) + total.log()),
            once(base=math.log(2), lse=lambda m, total: m + total.log()),
        ),
    ),
    Misconception(
        "scale-missing",
        "Your result equals attention without the scale 1/√d",
        "What is q kᵀ divided by before the softmax?",
        ATTENTION,
        once(scale=lambda d: 1.0),
    ),
    Misconception(
        "scale-twice",
        "Your result equals attention scaled twice, by 1/d in all",
        "The scale belongs to q or to the logits, not to both.",
        ATTENTION,
        once(scale=lambda d: 1.0 / d),
    ),
    Misconception(
        "scale-multiplied",
        "Your result equals attention whose logits are multiplied by √d",
        "Is the scale √d, or one over it?",
        ATTENTION,
        once(scale=math.sqrt),
    ),
    Misconception(
        "scale-of-the-padded-d",
        "Your result equals attention scaled by the padded width of the tile instead of d",
        "A tile is as wide as a power of two; the scale wants the d of the input.",
        ALGORITHM,
        several(
            once(scale=lambda d: 1 / math.sqrt(padded_width(d))),
            once(scale=lambda d: 1 / math.sqrt(max(16, padded_width(d)))),
        ),
    ),
    Misconception(
        "scale-fixed",
        "Your result equals attention with one scale for every d",
        "A constant that is right for one head dimension only: take it from q's shape.",
        ATTENTION,
        lambda call: (
            Tiled(scale=lambda d, of=of: 1 / math.sqrt(of))(call, call.tensors[1].shape[-2]) for of in (64, 128, 32)
        ),
    ),
    Misconception(
        "lse-without-the-maximum",
        "Your lse is the logarithm of the sum alone, without the row's maximum",
        "The sum was taken of exp(s − m): what has to be added to its logarithm?",
        ONLINE,
        several(each(lse=lambda m, total: total.log()), once(lse=lambda m, total: total.log())),
    ),
    Misconception(
        "lse-without-the-logarithm",
        "Your lse is the maximum plus the sum, or the sum itself, without the logarithm",
        "lse = m + ln(l): which part of it is missing?",
        ONLINE,
        several(
            *(
                several(each(lse=change), once(lse=change))
                for change in (lambda m, total: m + total, lambda m, total: total, lambda m, total: m)
            )
        ),
    ),
    Misconception(
        "lse-in-base-2",
        "Your lse is in base 2, or only half of it is in base e",
        "With exp2 the maximum and the sum are in base 2: what turns log₂ into ln?",
        ALGORITHM,
        several(
            once(lse=lambda m, total: m * LOG2E + total.log2()),
            once(lse=lambda m, total: m + total.log2()),
            once(lse=lambda m, total: m * LOG2E + total.log()),
            once(lse=lambda m, total: (m * LOG2E + total.log2()) * LOG2E),
        ),
    ),
    Misconception(
        "lse-with-the-wrong-sign",
        "Your lse has the logarithm of the sum subtracted",
        "lse = m + ln(l).",
        ONLINE,
        once(lse=lambda m, total: m - total.log()),
    ),
    Misconception(
        "k-and-v-swapped",
        "Your result equals attention with k and v in each other's place",
        "In which order does the kernel get them?",
        MASKS,
        lambda call: iter([Tiled()(replace(call, tensors=[call.tensors[i] for i in (0, 2, 1)]), n_keys_of(call))]),
    ),
    Misconception(
        "not-divided",
        "Your o is not divided by the row's sum",
        "What is left to do after the last tile?",
        ONLINE,
        several(each(divided=False), once(divided=False)),
    ),
    Misconception(
        "causal-ignored",
        "Your result with is_causal equals the one without",
        "Where does is_causal reach the logits?",
        MASKS,
        lambda call: once(seen=None)(call) if call.is_causal else iter(()),
    ),
    Misconception(
        "causal-diagonal-hidden",
        "Your result equals causal attention in which a query does not see its own position",
        "Query i sees keys j ≤ i: which comparison is that?",
        MASKS,
        several(*(masked(seen=lambda q, k, *_: k < q, hidden=hidden) for hidden in (-math.inf, -1e4, -1e6, -1e9))),
    ),
    Misconception(
        "causal-one-too-many",
        "Your result equals causal attention in which a query sees one key of the future",
        "Query i sees keys j ≤ i: look at the first query.",
        MASKS,
        masked(seen=lambda q, k, *_: k <= q + 1),
    ),
    Misconception(
        "causal-reversed",
        "Your result equals causal attention in which a query sees the future and not the past",
        "Query i sees keys j ≤ i: which of the two index vectors runs along the rows?",
        MASKS,
        several(masked(seen=lambda q, k, *_: k >= q), masked(seen=lambda q, k, *_: k > q)),
    ),
    Misconception(
        "causal-bottom-right",
        "Your result equals causal attention aligned at the bottom right",
        "Query i sees keys j ≤ i, however many keys there are: nothing is added to i.",
        MASKS,
        masked(seen=lambda q, k, tile, n_queries, n_keys: k <= q + n_keys - n_queries),
    ),
    Misconception(
        "causal-hidden-by-a-number",
        "Your result equals causal attention whose hidden logits are a large negative number",
        "Where all visible logits lie below that number, it hides nothing: what is lower than everything?",
        MASKS,
        several(
            *(
                masked(hidden=hidden, **more)
                for hidden in (-1e4, -1e3, -1e5, -1e6, -1e9)
                for more in (
                    {},
                    {"first_maximum": hidden},
                    {"padded": True, "padding": hidden},
                    {"padded": True, "padding": hidden, "first_maximum": hidden},
                )
            ),
            lambda call: (with_bias(call, bias) for bias in (-1e3, -1e4, -1e5, -1e6) if call.is_causal),
        ),
    ),
    Misconception(
        "only-whole-key-tiles",
        "Your result equals attention over whole tiles of keys only: those of the last, partial one are left out",
        "How many tiles do n_keys keys need, if the last may be partial?",
        MASKS,
        each(last_key=lambda n_queries, n_keys, tile: n_keys // tile * tile),
    ),
    Misconception(
        "causal-diagonal-tile-skipped",
        "Your result equals causal attention without the tiles on the diagonal",
        "How far does the loop over key tiles have to go for the last query of a tile?",
        MASKS,
        lambda call: (
            Tiled(seen=seen, guarded=guarded)(call, c)
            for guarded in (True, False)
            for r in TILES
            for c in TILES
            for seen in before_the_diagonal(r, c)
            if call.is_causal
        ),
    ),
    Misconception(
        "causal-by-whole-tiles",
        "Your result equals causal attention that skips tiles of keys, and masks nothing on the diagonal tile",
        "A tile on the diagonal is partly visible: which of its elements?",
        MASKS,
        lambda call: (
            Tiled(seen=lambda q, k, *_, r=r, c=c: ~in_the_future(q, k, r, c))(call, c)
            for r in TILES
            for c in TILES
            if call.is_causal
        ),
    ),
    Misconception(
        "causal-keys-past-the-end",
        "Your result equals causal attention in which keys past the end are masked by position alone",
        "With more queries than keys a query may lie behind the last key: what hides the padded keys from it?",
        MASKS,
        masked(padded=True),
    ),
    Misconception(
        "padded-keys-counted",
        "Your result equals attention in which keys past the end of the last tile are counted, with a logit of 0",
        "A masked load gives zeros, and exp(0) is not 0: what must the logits of padded keys be?",
        MASKS,
        each(padded=True),
    ),
    Misconception(
        "first-key-tile-only",
        "Your result equals attention to the first tile of keys only",
        "What does the loop over key tiles run to, and do its pointers move?",
        MASKS,
        each(last_key=lambda n_queries, n_keys, tile: tile),
    ),
    Misconception(
        "last-key-tile-only",
        "Your result equals attention to the last tile of keys only",
        "Is the accumulator overwritten where it should be added to?",
        MASKS,
        each(first_key=lambda n_keys, tile: (n_keys - 1) // tile * tile),
    ),
    Misconception(
        "n-queries-for-n-keys",
        "Your result equals attention to as many keys as there are queries",
        "Which length does the loop over keys run to, and which bounds their mask?",
        MASKS,
        several(
            once(last_key=lambda n_queries, n_keys, tile: n_queries),
            lambda call: (as_many_keys(call, tile) for tile in (None, *TILES)),
        ),
    ),
    Misconception(
        "last-key-hidden",
        "Your result equals attention without the last key",
        "keys < n_keys: is one taken off too many?",
        MASKS,
        once(last_key=lambda n_queries, n_keys, tile: n_keys - 1),
    ),
    Misconception(
        "logits-in-16-bits",
        "Your result equals attention whose logits are rounded to the inputs' 16 bits",
        "What dtype has q kᵀ before the softmax? tl.dot accumulates in float32: keep it.",
        NUMBERS,
        in_dtype("logits"),
    ),
    Misconception(
        "sum-in-16-bits",
        "Your result equals attention whose running sum is kept in 16 bits",
        "In which dtype is the sum made?",
        NUMBERS,
        several(in_dtype("total", "p_for_v", tiled=True), in_dtype("total", tiled=True)),
    ),
    Misconception(
        "p-rounded-before-the-sum",
        "Your result equals attention in which P is rounded to 16 bits before it is summed",
        "The cast is for the product with v alone; the sum wants P in float32.",
        NUMBERS,
        several(*(in_dtype(*fields, tiled=tiled) for fields in (("p",), ("p", "total")) for tiled in (False, True))),
    ),
    Misconception(
        "accumulator-in-16-bits",
        "Your o equals attention whose accumulator is kept in 16 bits",
        "In which dtype is acc made, and what does it become when a tile is added?",
        NUMBERS,
        several(
            in_dtype("acc", "p_for_v", tiled=True),
            in_dtype("acc", tiled=True),
            in_dtype("added", "p_for_v", tiled=True),
            in_dtype("added", tiled=True),
            in_dtype("acc", "total", "p_for_v", tiled=True),
        ),
    ),
    Misconception(
        "everything-in-16-bits",
        "Your result equals attention in which everything is rounded to the inputs' 16 bits",
        "Only loads and the last store are in 16 bits: what is between them is float32.",
        NUMBERS,
        several(
            in_dtype("logits", "p", "acc", "total", tiled=True),
            in_dtype("logits", "p", "acc", "total", "added", tiled=True),
            in_dtype("logits", "p", "acc", "total"),
        ),
    ),
    Misconception(
        "lse-in-16-bits",
        "Your lse is rounded to the inputs' 16 bits",
        "lse is float32 whatever the inputs are: what dtype was it before it was stored?",
        NUMBERS,
        lambda call: (
            [o, rounded(call.dtype)(lse)]
            for o, lse in [Tiled()(call, call.tensors[1].shape[-2])]
            if call.dtype != torch.float32
        ),
    ),
    Misconception(
        "operands-in-another-16-bits",
        "Your result equals attention whose operands of q kᵀ are rounded to 16 bits whatever the inputs are",
        "Products are made in the inputs' dtype: which cast comes before tl.dot?",
        NUMBERS,
        as_16_bits("operands"),
    ),
    Misconception(
        "p-in-another-16-bits",
        "Your o equals attention in which P or v is rounded to 16 bits whatever the inputs are",
        "P is cast to the dtype of v: which is it here?",
        NUMBERS,
        several(as_16_bits("p_for_v", "v"), as_16_bits("p_for_v"), as_16_bits("v"), as_16_bits("p")),
    ),
    Misconception(
        "all-operands-in-another-16-bits",
        "Your result equals attention whose inputs are all rounded to 16 bits",
        "float32 inputs stay float32: which cast comes after the loads?",
        NUMBERS,
        several(as_16_bits("operands", "v"), as_16_bits("operands", "v", "p_for_v")),
    ),
]


def before_the_diagonal(rows: int, columns: int) -> list[Callable[..., Tensor]]:
    """Keys of whole tiles before the diagonal's, in three ways; the first tile of queries sees its own in some."""
    return [
        lambda q, k, *_: (k <= q) & (k // columns * columns < q // rows * rows),
        lambda q, k, *_: (k <= q) & (k // columns + 1 <= q // rows * rows // columns),
        lambda q, k, *_: (k <= q) & ((k // columns * columns < q // rows * rows) | (q < rows)),
        lambda q, k, *_: (k <= q) & ((k // columns + 1 <= q // rows * rows // columns) | (k < columns)),
    ]


def with_bias(call: Call, bias: float) -> tuple[Tensor, Tensor]:
    q, k, v = (tensor.double() for tensor in call.tensors)
    s = q @ k.mT / math.sqrt(q.shape[-1])
    n_queries, n_keys = s.shape[-2:]
    s = s + bias * (torch.arange(n_keys) > torch.arange(n_queries)[:, None])
    return s.softmax(-1) @ v, s.logsumexp(-1)


def as_many_keys(call: Call, tile: int | None) -> tuple[Tensor, Tensor]:
    """Only n_queries of the keys are seen; where there are fewer, zeros follow them, up to the end of a tile."""
    q, k, v = (tensor.double() for tensor in call.tensors)
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    whole = n_keys if tile is None else -(-n_keys // tile) * tile
    more = max(0, min(n_queries, whole) - n_keys)
    k, v = (torch.nn.functional.pad(x, (0, 0, 0, more))[..., : min(n_queries, n_keys + more), :] for x in (k, v))
    return Tiled()(replace(call, tensors=(q, k, v)), k.shape[-2])
