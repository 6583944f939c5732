"""What can go wrong with which keys a query sees: the causal mask, the tail, the loop over tiles."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.forward_model import (
    MASKS,
    Tiled,
    Variants,
    each,
    in_the_future,
    is_causal,
    n_keys_of,
    once,
    several,
)
from assignment.operators.misconception import TILES, Call, Misconception

PAIRS = ((16, 16), (32, 32), (64, 64), (128, 128), (64, 32), (128, 64), (32, 64), (64, 128))  # of queries and keys


def masked(**changes: Any) -> Variants:
    """A causal model: in one tile, or tile by tile up to the diagonal's; −∞ − −∞ as it comes, or taken for −∞."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        n_keys = n_keys_of(call)
        for pair in (None, *PAIRS) if is_causal(call) else ():
            tile = pair[1] if pair else n_keys
            if "padding" in changes and n_keys % tile == 0:
                continue
            yield (came := Tiled(visited=pair, **changes)(call, tile))
            if not came[0].isfinite().all():
                yield Tiled(visited=pair, guarded=True, **changes)(call, tile)
        hides_rows = is_causal(call) and "hidden" not in changes  # all of them in a tile: −∞ − −∞ if it comes first
        for tile in TILES if hides_rows else ():
            came = Tiled(**changes)(call, tile)
            if not came[0].isfinite().all():
                yield came

    return model


def before_the_diagonal(rows: int, columns: int) -> list[Callable[..., Tensor]]:
    """Keys of whole tiles before the diagonal's, in three ways; the first tile of queries sees its own in some."""
    return [
        lambda q, k, *_: (k <= q) & (k // columns * columns < q // rows * rows),
        lambda q, k, *_: (k <= q) & (k // columns + 1 <= q // rows * rows // columns),
        lambda q, k, *_: (k <= q) & ((k // columns * columns < q // rows * rows) | (q < rows)),
        lambda q, k, *_: (k <= q) & ((k // columns + 1 <= q // rows * rows // columns) | (k < columns)),
    ]


def turned(tile: int) -> Callable[..., Tensor]:
    """Keys that a query sees where each square tile of the mask is transposed."""
    return lambda q, k, *_: k // tile * tile + q % tile <= q // tile * tile + k % tile


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


MISCONCEPTIONS = [
    Misconception(
        "causal-ignored",
        "Your result with is_causal equals the one without",
        "Where does is_causal reach the logits?",
        MASKS,
        lambda call: once(seen=None)(call) if is_causal(call) else iter(()),
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
        "causal-mask-transposed",
        "Your result equals causal attention in which each square tile of the mask is transposed",
        "Query i sees keys j ≤ i: queries are the rows of the tile, [:, None], and keys its columns, [None, :].",
        MASKS,
        several(*(masked(seen=turned(tile)) for tile in TILES)),
        is_rare=True,
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
            lambda call: (with_bias(call, bias) for bias in (-1e3, -1e4, -1e5, -1e6) if is_causal(call)),
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
            if is_causal(call)
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
            if is_causal(call)
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
]
