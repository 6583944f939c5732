"""What can go wrong where P is recomputed from lse, and with the place of lse and D."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from assignment.operators.flash_attention.misconceptions.backward_model import (
    NUMBERS,
    RECOMPUTING,
    SQUARE,
    Recomputed,
    one,
    only_square,
)
from assignment.operators.flash_attention.misconceptions.forward_model import Variants, several
from assignment.operators.misconception import TILES, Call, Misconception, exp, padded_width


def local_softmax(call: Call) -> Iterator[Sequence[Tensor]]:
    """P normalised over each tile of keys by itself."""
    for tile in TILES:

        def p_from(s: Tensor, lse: Tensor, tile: int = tile) -> Tensor:
            return torch.cat([part.softmax(-1).nan_to_num(0.0) for part in s.split(tile, -1)], -1)

        yield Recomputed(p_from=p_from)(call)


def along_keys(change: Callable[[Callable[[Tensor], Tensor]], dict[str, Any]]) -> Variants:
    """A value of each query that stands in its column: over all of them, or within tiles."""

    def of_tiles(call: Call) -> Iterator[Sequence[Tensor]]:
        n_queries, n_keys = call.tensors[1].shape[-2], call.tensors[2].shape[-2]
        for tile in TILES:
            rows = torch.arange(n_queries)[:, None] // tile * tile + torch.arange(n_keys) % tile
            yield Recomputed(**change(lambda x, rows=rows: x[..., rows.clamp(max=n_queries - 1)]))(call)

    return several(only_square(one(**change(lambda x: x.unsqueeze(-2)))), of_tiles)


def swapped(call: Call) -> Iterator[Sequence[Tensor]]:
    """lse in D's place, and D in that of lse."""
    grad_o, *_, o, lse = (tensor.double() for tensor in call.tensors)
    delta = (grad_o * o).sum(-1, keepdim=True)
    yield Recomputed(lse=lambda _: delta, delta=lambda *_: lse.unsqueeze(-1))(call)


def of_first_batch(x: Tensor) -> Tensor:
    """The first batch's value in all of them."""
    return x.flatten(0, -2)[0].expand_as(x) if x.ndim > 1 else x


MISCONCEPTIONS = [
    Misconception(
        "p-without-the-scale",
        "Your gradients equal those with P recomputed without the scale 1/√d",
        "lse belongs to scaled logits: P = exp(q kᵀ/√d − lse).",
        RECOMPUTING,
        several(one(recompute_scale=lambda d: 1.0), one(recompute_scale=lambda d: 1.0, scale=lambda d: 1.0)),
    ),
    Misconception(
        "backward-scale-of-the-padded-d",
        "Your gradients equal those with the scale of the padded width instead of d",
        "A tile is as wide as a power of two; the scale wants the d of the input.",
        RECOMPUTING,
        several(
            *(
                one(recompute_scale=way, scale=way)
                for way in (lambda d: 1 / math.sqrt(padded_width(d)), lambda d: 1 / math.sqrt(max(16, padded_width(d))))
            )
        ),
    ),
    Misconception(
        "backward-base-2",
        "Your gradients equal those with P = 2^(S − lse)",
        "exp2 wants both S and lse multiplied by log₂(e).",
        RECOMPUTING,
        several(
            one(p_from=lambda s, lse: exp((s - lse) * math.log(2))),
            one(p_from=lambda s, lse: exp(s - lse * math.log(2))),
            one(p_from=lambda s, lse: exp(s * math.log(2) - lse)),
        ),
    ),
    Misconception(
        "p-not-normalised",
        "Your gradients equal those with P = exp(S), without lse",
        "P = exp(S − lse): what makes its rows sum to 1?",
        RECOMPUTING,
        one(p_from=lambda s, lse: exp(s)),
    ),
    Misconception(
        "p-a-softmax-over-the-tile",
        "Your gradients equal those with P a softmax over each tile of keys by itself",
        "A row's sum runs over all keys, and lse knows it: P = exp(S − lse).",
        RECOMPUTING,
        local_softmax,
    ),
    Misconception(
        "lse-along-the-keys",
        "Your gradients equal those with lse subtracted along the wrong axis",
        "lse belongs to queries: does its index run along the rows of the tile, or its columns?",
        RECOMPUTING,
        along_keys(lambda place: {"lse": place}),
    ),
    Misconception(
        "d-along-the-keys",
        "Your gradients equal those with D subtracted along the wrong axis",
        "D belongs to queries: does its index run along the rows of the tile, or its columns?",
        SQUARE,
        along_keys(lambda place: {"delta": lambda grad_o, q, k, v, o: place((grad_o * o).sum(-1))}),
    ),
    Misconception(
        "lse-and-d-swapped",
        "Your gradients equal those with lse and D in each other's place",
        "P = exp(S − lse) and dS = P∘(dP − D): in which order does the kernel get them?",
        SQUARE,
        swapped,
    ),
    Misconception(
        "lse-of-the-first-batch",
        "Your gradients equal those with lse or D of the first batch in every batch",
        "Each pointer moves on by its own batch stride, those of lse and D too.",
        NUMBERS,
        several(
            one(lse=lambda lse: of_first_batch(lse).unsqueeze(-1)),
            one(delta=lambda grad_o, q, k, v, o: of_first_batch((grad_o * o).sum(-1)).unsqueeze(-1)),
        ),
        is_by_batch=False,
    ),
]
