"""Where the tensors of attention lie in memory, beside the ways of tests/layouts.py."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.families import Case, Cases, Layout
from tests.flash_attention.inputs import Attention, long, square
from tests.inputs import TILE
from tests.layouts import BATCHES, ROWS_OF_A_BATCH, each, each_its_own, expanded_gradient, far

THREE_BATCHES = Attention((3,), TILE, TILE, 64)  # of two, a stride would not fit in 32 bits


def packed(qkv: Sequence[Tensor]) -> Sequence[Tensor]:
    """q, k and v as views of one (…, n, 3, d) tensor, as one projection produces them; a shorter one is its start."""
    n = max(x.shape[-2] for x in qkv)
    together = torch.full((*qkv[0].shape[:-2], n, len(qkv), qkv[0].shape[-1]), float("nan"), dtype=qkv[0].dtype)
    views = [together[..., : x.shape[-2], i, :] for i, x in enumerate(qkv)]
    for view, x in zip(views, qkv, strict=True):
        view.copy_(x)
    return views


def packed_backward(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    grad_o, q, k, v, o, lse = tensors
    return [grad_o, *packed([q, k, v]), o, lse]


def shared_heads(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """k and v shared by all heads (stride 0), as multi-query attention has them."""
    return [x[:, :1].expand(x.shape) if i in (1, 2) else x for i, x in enumerate(tensors)]


def strides(ways: dict[str, Layout]) -> Cases:
    """Return a case for each way; that of the fences has a length that only the seed tells."""
    return {name: Case(long(2) if name == "NaN fences" else square(2), layout=way) for name, way in ways.items()}


def offsets(names: Sequence[str]) -> Cases:
    """Return cases in which the batches or the rows of one tensor are far apart."""
    ways = far(
        {f"{name}'s batches": (i, BATCHES) for i, name in enumerate(names)}
        | {f"{name}'s rows": (i, ROWS_OF_A_BATCH) for i, name in enumerate(names)}
    )
    *_, last = ways
    return {name: Case(long() if name == last else THREE_BATCHES, layout=way) for name, way in ways.items()}


FORWARD_STRIDES = strides(
    each({"each its own": each_its_own, "packed qkv": packed, "k and v shared by the heads": shared_heads})
)
FORWARD_OFFSETS = offsets("qkv")
BACKWARD_STRIDES = strides(
    each({"each its own": each_its_own, "packed qkv": packed_backward, "expanded grad_o": expanded_gradient})
)
BACKWARD_OFFSETS = offsets(("grad_o", "q", "k", "v", "o"))
