"""The same values at other addresses: strides, offsets, shared memory, and NaN wherever nothing may be read."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.inputs import TILE, Attention, Shape, batches_of_rows, long, square, wide_matrix


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions swapped in memory: the last stride is not 1. A vector gets stride 2."""
    if x.ndim < 2:
        return offset(x)
    return x.mT.contiguous().mT


def offset(x: Tensor) -> Tensor:
    """Every second element of a larger storage, starting at its fourth; the rest is NaN."""
    storage = torch.full((2 * x.numel() + 7,), math.nan, dtype=x.dtype)
    view = storage[3 : 3 + 2 * x.numel() : 2]
    view.copy_(x.flatten())
    return view.view(x.shape) if x.ndim < 2 else view.unflatten(0, x.shape)


def fenced(x: Tensor) -> Tensor:
    """A window into a larger tensor of NaN: before, after and between the rows."""
    if x.ndim < 2:
        return offset(x)
    rows, columns = x.shape[-2:]
    outside = torch.full((*x.shape[:-2], rows + 5, columns + 9), math.nan, dtype=x.dtype)
    window = outside[..., 2 : 2 + rows, 3 : 3 + columns]
    window.copy_(x)
    return window


def heads_last(x: Tensor) -> Tensor:
    """(…, heads, n, d) seen through memory laid out (…, n, heads, d), as a projection produces it."""
    if x.ndim < 3:
        return fenced(x)
    return x.transpose(-3, -2).contiguous().transpose(-3, -2)


def packed(qkv: Sequence[Tensor]) -> Sequence[Tensor]:
    """q, k and v as views of one (…, n, 3, d) tensor, as one projection produces them; a shorter one is its start."""
    n = max(x.shape[-2] for x in qkv)
    together = torch.full((*qkv[0].shape[:-2], n, len(qkv), qkv[0].shape[-1]), math.nan, dtype=qkv[0].dtype)
    views = [together[..., : x.shape[-2], i, :] for i, x in enumerate(qkv)]
    for view, x in zip(views, qkv, strict=True):
        view.copy_(x)
    return views


def packed_backward(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    grad_o, q, k, v, o, lse = tensors
    return [grad_o, *packed([q, k, v]), o, lse]


def mixed(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Each tensor laid out in its own way: no stride of one serves another."""
    ways = [transposed, fenced, heads_last, offset, torch.clone]
    return [ways[i % len(ways)](x) for i, x in enumerate(tensors)]


def shared_heads(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """k and v shared by all heads (stride 0), as multi-query attention has them."""
    return [x[:, :1].expand(x.shape) if i in (1, 2) else x for i, x in enumerate(tensors)]


def expanded_gradient(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The incoming gradient, the first tensor, of stride 0 everywhere, as .sum().backward() and .mean() give it."""
    return [tensors[0].flatten()[0].expand(tensors[0].shape), *tensors[1:]]


def expanded_x(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Every row of x, the only one with more than one dimension, is the first with stride 0."""
    return [x[(0,) * (x.ndim - 1)].expand(x.shape) for x in tensors]


INT32 = 2**31
ROOM = 1.25  # of the memory that a view reaches over, what is to be had


def far_apart(x: Tensor, which: slice, memory_bytes: int) -> Tensor:
    """The values 2³¹ elements apart from the first to the last along some dimensions: 32-bit offsets overflow.

    Nearly nothing of the memory between is ever touched. Each stride by itself still fits in 32 bits, so that it is an
    int32 to a kernel; the dimensions can be walked with one stride, so that none needs a copy. Where memory is short
    the view reaches only so far, and says nothing about overflow.
    """
    reach = INT32 if ROOM * INT32 * x.itemsize <= memory_bytes else 1 << 20
    strides = list(x.stride())
    far = range(x.ndim)[which]
    step = 1
    for dim in reversed([dim for dim in range(x.ndim) if dim not in far]):
        strides[dim], step = step, step * x.shape[dim]
    step = max(step, -(-reach // (math.prod(x.shape[dim] for dim in far) - 1)))
    for dim in reversed(far):
        strides[dim], step = step, step * x.shape[dim]
    size = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, strides, strict=True))
    try:
        storage = torch.UntypedStorage(size * x.itemsize)  # never filled, not even where torch.empty is
    except RuntimeError:  # no such address space here
        return far_apart(x, which, memory_bytes=0)
    return torch.tensor([], dtype=x.dtype).set_(storage, 0, x.shape, strides).copy_(x)


Layout = Callable[[Sequence[Tensor], int], Sequence[Tensor]]  # from a call's tensors, and the memory that is there
EACH = {"transposed": transposed, "every second element": offset, "NaN fences": fenced, "heads last": heads_last}
ELEMENTS, ROWS, ROWS_OF_A_BATCH, BATCHES = slice(None), slice(None, -1), slice(-2, -1), slice(None, -2)


def of_each(ways: dict[str, Callable]) -> dict[str, Callable]:
    """EACH, and the given ways, of the tensors of a call."""
    return {name: lambda ts, way=way: [way(x) for x in ts] for name, way in EACH.items()} | ways


def parametrize(ways: dict[str, Callable]) -> pytest.MarkDecorator:
    """The argument `layout`."""
    ways = of_each(ways)
    return pytest.mark.parametrize("layout", ways.values(), ids=ways)


def stretched(far: dict[str, tuple[int, slice]]) -> dict[str, Layout]:
    """Ways that take the tensors and the memory that is there: of one tensor some dimensions stretched."""

    def way(tensor: int, which: slice) -> Layout:
        return lambda tensors, memory_bytes: [
            far_apart(x, which, memory_bytes) if i == tensor else x for i, x in enumerate(tensors)
        ]

    return {f"{name} over 2^31 elements": way(*where) for name, where in far.items()}


def offsets(far: dict[str, tuple[int, slice]]) -> pytest.MarkDecorator:
    """The argument `layout`."""
    ways = stretched(far)
    return pytest.mark.parametrize("layout", ways.values(), ids=ways)


rows = pytest.mark.parametrize(
    "shape", [pytest.param(batches_of_rows, id="three dimensions"), pytest.param(wide_matrix, id="a matrix")]
)
rows_forward = parametrize({"x expanded": expanded_x})
rows_forward_offsets = offsets({"x": (0, ROWS)})
rows_backward = parametrize(
    {
        "expanded gradient": expanded_gradient,
        "x expanded": lambda tensors: [tensors[0], *expanded_x(tensors[1:])],
    }
)
weighted_sum_backward_offsets = offsets({"the gradient": (0, ELEMENTS), "x": (1, ROWS)})
rmsnorm_backward_offsets = offsets({"the gradient": (0, ROWS), "x": (1, ROWS)})


def of_attention(ways: dict[str, Any], shape: Shape, others: dict[str, Shape]) -> pytest.MarkDecorator:
    """The arguments `layout` and `shape`: one shape for all ways but those that are named."""
    together = [(way, others.get(name, shape)) for name, way in ways.items()]
    return pytest.mark.parametrize(("layout", "shape"), together, ids=ways)


THREE_BATCHES = Attention((3,), TILE, TILE, 64)  # of two, a stride would not fit in 32 bits


def apart(names: Sequence[str]) -> dict[str, tuple[int, slice]]:
    batches = {f"{name}'s batches": (i, BATCHES) for i, name in enumerate(names)}
    return batches | {f"{name}'s rows": (i, ROWS_OF_A_BATCH) for i, name in enumerate(names)}


def attention(ways: dict[str, Callable]) -> pytest.MarkDecorator:
    return of_attention(of_each(ways | {"each its own": mixed}), square(2), {"NaN fences": long(2)})


def attention_offsets(names: Sequence[str]) -> pytest.MarkDecorator:
    *_, last = ways = stretched(apart(names))
    return of_attention(ways, THREE_BATCHES, {last: long()})


attention_forward = attention({"packed qkv": packed, "k and v shared by the heads": shared_heads})
attention_forward_offsets = attention_offsets("qkv")
attention_backward = attention({"packed qkv": packed_backward, "expanded grad_o": expanded_gradient})
attention_backward_offsets = attention_offsets(("grad_o", "q", "k", "v", "o"))
