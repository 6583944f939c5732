"""What can go wrong with which queries and keys meet: the causal mask, the tail, the loops over tiles."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import (
    ALGORITHM,
    RECOMPUTING,
    Pass,
    Recomputed,
    one,
    usual,
)
from assignment.operators.flash_attention.misconceptions.forward_keys import PAIRS, before_the_diagonal, turned
from assignment.operators.flash_attention.misconceptions.forward_model import MASKS, Variants, is_causal, several
from assignment.operators.misconception import TILES, Call, Misconception, exp


def masked(**changes: Any) -> Variants:
    """A causal model: over everything, or over tiles up to the diagonal's."""
    return lambda call: (Recomputed(visited=pair, **changes)(call) for pair in (None, *PAIRS) if is_causal(call))


def not_hidden(call: Call) -> Iterator[Sequence[Tensor]]:
    """P = exp(0 − lse) of keys past the end of the last tile: where it is infinite, grad_q becomes ∞ · 0."""
    grad_q, grad_k, grad_v = Recomputed()(call)
    for tile in TILES:
        if call.tensors[2].shape[-2] % tile:
            is_infinite = exp(-call.tensors[5].double()).isinf().unsqueeze(-1)
            yield torch.where(is_infinite, math.nan, grad_q), grad_k, grad_v
            return


def up_to_the_diagonal(call: Call) -> Iterator[Sequence[Tensor]]:
    """A tile of keys meets the queries of the tiles before it, and its own."""
    if is_causal(call):
        right = Recomputed()(call)
        for tile in TILES:
            seen: Any = lambda q, k, *_, tile=tile: (k <= q) & (q // tile <= k // tile)  # noqa: E731
            wrong = Recomputed(seen=seen)(call)
            yield wrong
            yield right[0], *wrong[1:]


def behind_the_diagonal(rows: int, columns: int) -> Callable[..., Tensor]:
    """Queries of whole tiles behind a tile of keys."""
    return lambda q, k, *_: (k <= q) & (q // rows > k // columns * columns // rows)


def tile_of(n: int, tile: int, which: int) -> slice:
    """The first (0) or last (−1) tile of n."""
    start = 0 if which == 0 else (n - 1) // tile * tile
    return slice(start, start + tile)


def of_one_tile(outputs: tuple[int, ...], which: int) -> Variants:
    """Gradients of the first or last tile only, of keys for q and of queries for k and v."""

    def model(call: Call) -> Iterator[Sequence[Tensor]]:
        for tile in TILES:

            def change(x: Pass, tile: int = tile) -> tuple[Tensor, Tensor, Tensor]:
                grads = [*usual(x)]
                keys, queries = (tile_of(t.shape[-2], tile, which) for t in (x.k, x.q))
                if 0 in outputs:
                    grads[0] = x.grad_s[..., keys] @ x.k[..., keys, :] * x.scale
                if 1 in outputs:
                    grads[1] = x.grad_s[..., queries, :].mT @ x.q[..., queries, :] * x.scale
                if 2 in outputs:
                    grads[2] = x.p[..., queries, :].mT @ x.grad_o[..., queries, :]
                return tuple(grads)  # type: ignore[return-value]

            yield Recomputed(gradients=change)(call)

    return model


MISCONCEPTIONS = [
    Misconception(
        "backward-only-whole-key-tiles",
        "Your gradients equal those over whole tiles of keys only: those of the last, partial one are left out",
        "How many tiles do n_keys keys need, if the last may be partial?",
        ALGORITHM,
        lambda call: (
            Recomputed(n_keys=lambda n_queries, n_keys, tile=tile: n_keys // tile * tile)(call) for tile in TILES
        ),
    ),
    Misconception(
        "backward-causal-ignored",
        "Your gradients with is_causal equal those with P recomputed without the mask",
        "What the forward pass hid has to be hidden again when P is recomputed.",
        RECOMPUTING,
        masked(seen=None),
    ),
    Misconception(
        "backward-causal-diagonal-hidden",
        "Your gradients equal those of causal attention in which a query does not see its own position",
        "Query i sees keys j ≤ i: which comparison is that?",
        MASKS,
        masked(seen=lambda q, k, *_: k < q),
    ),
    Misconception(
        "backward-causal-one-too-many",
        "Your gradients equal those of causal attention in which a query sees one key of the future",
        "Query i sees keys j ≤ i: look at the first query.",
        MASKS,
        masked(seen=lambda q, k, *_: k <= q + 1),
    ),
    Misconception(
        "backward-causal-reversed",
        "Your gradients equal those of causal attention in which a query sees the future and not the past",
        "In which direction does the tile run: are its rows queries or keys?",
        MASKS,
        several(masked(seen=lambda q, k, *_: k >= q), masked(seen=lambda q, k, *_: k > q)),
    ),
    Misconception(
        "backward-causal-mask-transposed",
        "Your gradients equal those of causal attention in which each square tile of the mask is transposed",
        "Query i sees keys j ≤ i: do queries run along the rows of the tile, or along its columns?",
        MASKS,
        several(*(masked(seen=turned(tile)) for tile in TILES)),
        is_rare=True,
    ),
    Misconception(
        "backward-causal-bottom-right",
        "Your gradients equal those of causal attention aligned at the bottom right",
        "Query i sees keys j ≤ i, however many keys there are: nothing is added to i.",
        MASKS,
        masked(seen=lambda q, k, tile, n_queries, n_keys: k <= q + n_keys - n_queries),
    ),
    Misconception(
        "backward-causal-hidden-by-a-number",
        "Your gradients equal those of causal attention whose hidden logits are a large negative number",
        "Where lse lies below that number, P overflows or is 1: what is lower than everything?",
        MASKS,
        several(*(masked(hidden=hidden) for hidden in (-1e3, -1e4, -1e5, -1e6, -1e9))),
    ),
    Misconception(
        "backward-padded-keys-not-hidden",
        "Your grad_q is NaN where lse lies far below 0, as where keys past the end keep a logit that is finite",
        "P = exp(S − lse) overflows there, and ∞ · 0 is NaN: which S is hidden whatever lse is?",
        MASKS,
        not_hidden,
    ),
    Misconception(
        "backward-causal-diagonal-tile-skipped",
        "Your gradients equal those of causal attention without the tiles on the diagonal",
        "Where does the loop over queries begin for a tile of keys, and that over keys end for a tile of queries?",
        MASKS,
        lambda call: (
            variant
            for r in TILES
            for c in TILES
            for seen in (*before_the_diagonal(r, c), behind_the_diagonal(r, c))
            if is_causal(call)
            for wrong, right in [(Recomputed(seen=seen)(call), Recomputed()(call))]
            for variant in (wrong, (wrong[0], *right[1:]), (right[0], *wrong[1:]))
        ),
    ),
    Misconception(
        "backward-causal-bounds-of-the-forward",
        "Your grad_k and grad_v are those of the queries up to each tile of keys, where those from it on belong",
        "A key is seen by the queries that come after it: where does the loop over queries begin, and where end?",
        MASKS,
        up_to_the_diagonal,
    ),
    Misconception(
        "dq-of-the-last-key-tile",
        "Your grad_q is that of one tile of keys only",
        "Every tile of keys adds to grad_q: is it overwritten where it should be added to?",
        ALGORITHM,
        several(of_one_tile((0,), -1), of_one_tile((0,), 0)),
    ),
    Misconception(
        "dk-of-the-last-query-tile",
        "Your grad_k or grad_v is that of one tile of queries only",
        "Every tile of queries adds to grad_k and grad_v: are they overwritten where they should be added to?",
        ALGORITHM,
        several(*(of_one_tile(outputs, which) for which in (-1, 0) for outputs in ((1,), (2,), (1, 2)))),
    ),
    Misconception(
        "backward-n-queries-for-n-keys",
        "Your gradients equal those over as many keys as there are queries",
        "Which length does the loop over keys run to, and which bounds their mask?",
        ALGORITHM,
        one(n_keys=lambda n_queries, n_keys: n_queries),
    ),
]
