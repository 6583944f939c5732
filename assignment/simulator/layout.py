"""Where the elements of a strided tensor lie, computed from its strides, without a map of memory.

Offsets are int64 arrays of bytes from the tensor's first element.
"""

import math
from functools import cached_property

import numpy as np
import torch

Coordinates = tuple[int, ...]
_ENUMERABLE = 1 << 22  # elements of a layout that is told apart by a list of its offsets


class Layout:
    """Shape, strides (in elements, none negative) and element size in bytes of a tensor."""

    def __init__(self, shape: Coordinates, strides: Coordinates, itemsize: int) -> None:
        self.shape, self.strides, self.itemsize = tuple(shape), tuple(strides), itemsize
        self.numel = math.prod(self.shape)
        self.dims = _merged(self.shape, self.strides, itemsize)  # (bytes, size), the widest first
        self.nbytes = sum(stride * (size - 1) for stride, size in self.dims) + itemsize if self.numel else 0

    @staticmethod
    def of(tensor: torch.Tensor) -> "Layout":
        return Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.itemsize)

    @property
    def n_distinct(self) -> int:
        """The number of elements in memory: an expanded dimension counts once."""
        return math.prod(size for _, size in self.dims) if self.numel else 0

    @cached_property
    def is_dense(self) -> bool:
        """Whether every byte from the first element to the last belongs to an element."""
        return not self.dims or (len(self.dims) == 1 and self.dims[0][0] <= self.itemsize)

    @cached_property
    def _is_nested(self) -> bool:
        """Whether each stride exceeds the span of the smaller ones: division finds the indices."""
        reach = self.itemsize
        for stride, size in reversed(self.dims):
            if stride < reach:
                return False
            reach += stride * (size - 1)
        return True

    def holds(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return which offsets are those of `width` bytes inside elements."""
        inside = (offsets >= 0) & (offsets + width <= self.nbytes)
        if self.is_dense or not self.numel:
            return inside
        if not self._is_nested:
            return inside & self._is_listed(offsets)
        rest = offsets
        for stride, size in self.dims:
            index = rest // stride
            rest = rest - index * stride
            inside &= index < size
            if stride == self.itemsize and width > stride:  # a wider access of a run of elements
                inside &= (index + -(-width // stride)) <= size
                width = stride
        return inside & (rest + width <= self.itemsize)

    def _is_listed(self, offsets: np.ndarray) -> np.ndarray:
        """Return which offsets are elements, for interleaving strides; all if too many."""
        if math.prod(size for _, size in self.dims) > _ENUMERABLE:
            return np.ones(offsets.shape, bool)
        return np.isin(offsets - offsets % self.itemsize, self._offsets)

    @cached_property
    def _offsets(self) -> np.ndarray:
        starts = np.zeros(1, np.int64)
        for stride, size in self.dims:
            starts = (starts[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
        return starts

    def compact(self, offsets: np.ndarray) -> np.ndarray:
        """Return a number below numel for each offset: the index of its element."""
        if not self._is_nested:
            return np.searchsorted(np.sort(self._offsets), offsets)
        number, rest = np.zeros_like(offsets), offsets
        for stride, size in self.dims:
            index = rest // stride
            rest = rest - index * stride
            number = number * size + index
        return number

    def coordinates(self, offset: int) -> Coordinates:
        """Return the index of the element at an offset; out of range outside the tensor.

        What the smaller strides do not reach goes to the widest dimension, below zero if necessary.
        An element beside a tensor without dimensions has one index.
        """
        if not self.shape:
            return (offset // self.itemsize,) if offset else ()
        index, rest = [0] * len(self.shape), offset // self.itemsize
        by_stride = sorted((i for i, size in enumerate(self.shape) if size > 1), key=lambda i: -self.strides[i])
        for i in by_stride or range(len(self.shape) - 1, len(self.shape)):
            if self.strides[i]:
                index[i], rest = divmod(rest, self.strides[i])
        return tuple(index)

    def beyond(self, offset: int) -> Coordinates | None:
        """Return the index of an element past the end, in the last batch.

        Its rows, not its batches, are then too many. None for a tensor of fewer than three
        dimensions with a size above 1 and a stride.
        """
        moving = sorted(
            (i for i, size in enumerate(self.shape) if size > 1 and self.strides[i]), key=self.strides.__getitem__
        )
        if len(moving) < 3 or offset < self.nbytes:
            return None
        index, rest = [0] * len(self.shape), offset // self.itemsize
        for i in reversed(moving):
            index[i] = rest // self.strides[i]
            if i in moving[2:]:
                index[i] = min(index[i], self.shape[i] - 1)
            rest -= index[i] * self.strides[i]
        return tuple(index)


def _merged(shape: Coordinates, strides: Coordinates, itemsize: int) -> tuple[tuple[int, int], ...]:
    """Return (stride in bytes, size) of the dimensions, the widest first, contiguous ones merged.

    Dimensions of size 1 or stride 0 are left out.
    """
    dims = sorted((stride * itemsize, size) for size, stride in zip(shape, strides, strict=True) if size > 1 and stride)
    merged: list[tuple[int, int]] = []
    for stride, size in dims:
        inner_stride, inner_size = merged[-1] if merged else (0, 0)
        if merged and stride % inner_stride == 0 and stride <= inner_stride * inner_size:
            merged[-1] = inner_stride, (size - 1) * (stride // inner_stride) + inner_size
        else:
            merged.append((stride, size))
    return tuple(merged[::-1])
