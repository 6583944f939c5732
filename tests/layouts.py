"""The same values at other addresses: strides, offsets, shared memory, and NaN wherever nothing may be read."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from tests.families import Layout


def transposed(x: Tensor) -> Tensor:
    """The last two dimensions swapped in memory: the last stride is not 1. A vector gets stride 2."""
    if x.ndim < 2:
        return offset(x)
    return x.mT.contiguous().mT


def offset(x: Tensor, step: int = 2) -> Tensor:
    """Every second element, or of another step, of a larger storage, starting at its fourth; the rest is NaN."""
    storage = torch.full((step * x.numel() + 7,), math.nan, dtype=x.dtype)
    view = storage[3 : 3 + step * x.numel() : step]
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


def each_its_own(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Every second element of the first tensor, every third of the next: no stride of one serves another.

    That is so of a reshaped tensor too, since one stride walks over all of a tensor and reshape copies none.
    """
    return [offset(x, step) for step, x in enumerate(tensors, start=2)]


def expanded_gradient(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The incoming gradient, the first tensor, of stride 0 everywhere, as .sum().backward() and .mean() give it."""
    return [tensors[0].flatten()[0].expand(tensors[0].shape), *tensors[1:]]


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


EACH = {"transposed": transposed, "every second element": offset, "NaN fences": fenced, "heads last": heads_last}
ELEMENTS, ROWS, ROWS_OF_A_BATCH, BATCHES = slice(None), slice(None, -1), slice(-2, -1), slice(None, -2)


def each(ways: Mapping[str, Callable[[Sequence[Tensor]], Sequence[Tensor]]]) -> dict[str, Layout]:
    """Return EACH for all tensors of a call, and the given ways."""

    def all_of(way: Callable[[Tensor], Tensor]) -> Layout:
        return lambda tensors, memory_bytes: [way(x) for x in tensors]

    def whole(way: Callable[[Sequence[Tensor]], Sequence[Tensor]]) -> Layout:
        return lambda tensors, memory_bytes: way(tensors)

    return {name: all_of(way) for name, way in EACH.items()} | {name: whole(way) for name, way in ways.items()}


def far(tensors: Mapping[str, tuple[int, slice]]) -> dict[str, Layout]:
    """Return ways to stretch one tensor of a call, by its position, along some dimensions."""

    def way(position: int, which: slice) -> Layout:
        return lambda tensors, memory_bytes: [
            far_apart(x, which, memory_bytes) if i == position else x for i, x in enumerate(tensors)
        ]

    return {f"{name} over 2^31 elements": way(*where) for name, where in tensors.items()}
