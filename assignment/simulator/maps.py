"""Tensors as matrices for a picture: rows along the last dimension, thinned out where there are too many."""

import math

import ml_dtypes
import numpy as np
import torch

from .layout import Layout
from .trace import Traffic

MOST = 1 << 18  # elements that are drawn; of larger tensors, some are left out evenly


def size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns that a tensor is drawn as."""
    return math.prod(shape[:-1]), (shape or (1,))[-1]


def counts(tensor: Traffic, touched: np.ndarray) -> np.ndarray:
    """Return, of a map of a launch's accesses, what it says of each element that is drawn."""
    shape = tensor.shape or (1,)
    rows, cols = _chosen(shape)
    leading = np.unravel_index(rows, shape[:-1]) if len(shape) > 1 else ()
    strides = tensor.strides or (1,)
    starts = sum((i * s for i, s in zip(leading, strides, strict=False)), np.zeros(len(rows), np.int64))
    places = starts[:, None] + cols * strides[-1]
    return touched[_index(tensor, places, touched.size)]


def values(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of the elements that are drawn: bfloat16 as bits, other small floats as float32."""
    shape = tuple(tensor.shape) or (1,)
    rows, cols = _chosen(shape)
    leading = np.unravel_index(rows, shape[:-1]) if len(shape) > 1 else ()
    index = [torch.from_numpy(i)[:, None] for i in leading] + [torch.from_numpy(cols)]
    drawn = tensor.detach().reshape(shape)[tuple(index)].reshape(len(rows), len(cols))
    if drawn.dtype == torch.bfloat16:
        return drawn.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    if drawn.dtype.is_floating_point and drawn.dtype not in (torch.float32, torch.float64):
        return drawn.float().numpy()
    return drawn.numpy()


def drawn(rows: int, cols: int) -> tuple[int, int]:
    """Return how many rows and columns are drawn of so many."""
    side = math.isqrt(MOST)
    return min(rows, max(side, MOST // max(cols, 1))), min(cols, max(side, MOST // max(rows, 1)))


def _chosen(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows and which columns are drawn."""
    sizes = size(shape)
    rows, cols = (np.arange(few) * many // max(few, 1) for few, many in zip(drawn(*sizes), sizes, strict=True))
    return rows, cols


def _index(tensor: Traffic, places: np.ndarray, size: int) -> np.ndarray:
    """Return where in a map of `size` elements those at `places` in the tensor are."""
    layout = Layout(tensor.shape, tensor.strides, tensor.itemsize)
    if tensor.origin * tensor.itemsize + layout.nbytes <= size * tensor.itemsize:
        return tensor.origin + places
    # of a huge storage a map has the tensor's own elements alone
    return layout.compact(places * tensor.itemsize)
