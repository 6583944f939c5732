"""Load, store and atomic update at raw addresses: the only code of the simulator that touches a tensor's memory.

Addresses are uint64 arrays in bytes; `mask` is a bool array of the same shape, or None for all lanes. A lane whose
mask is false is never read or written.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

_Everything = ctypes.c_char * 2**47  # one type for memory of any length: making types is slow


def load(addresses: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """The elements at `addresses`; `other` (zero without one) where the mask is false."""
    if mask is None or mask.all():
        return _gather(addresses, dtype)
    values = np.zeros(addresses.shape, dtype) if other is None else np.array(np.broadcast_to(other, addresses.shape))
    if mask.any():
        values[mask] = _gather(addresses[mask], dtype)
    return values


def store(addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> None:
    """Write `values` at `addresses`; of several lanes at one address the last stays."""
    if mask is not None and not mask.all():
        addresses, values = addresses[mask], np.broadcast_to(values, mask.shape)[mask]
    if addresses.size:
        _scatter(addresses, values)


def update(
    addresses: np.ndarray, mask: np.ndarray | None, operation: Callable[..., np.ndarray], *operands: np.ndarray
) -> np.ndarray:
    """Replace each element by `operation(old, *operands)`, lanes at one address in order; returns the old elements.

    The elements have the type of the operands. Lanes outside the mask return zero.
    """
    shape, dtype = addresses.shape, operands[0].dtype
    active = np.arange(addresses.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, shape))
    addresses = addresses.ravel()
    operands = tuple(np.broadcast_to(x, shape).ravel() for x in operands)
    old = np.zeros(addresses.size, dtype)
    for lanes in _without_duplicates(addresses, active):
        old[lanes] = _gather(addresses[lanes], dtype)
        new = operation(old[lanes], *(x[lanes] for x in operands))
        _scatter(addresses[lanes], new.astype(dtype))
    return old.reshape(shape)


def _without_duplicates(addresses: np.ndarray, lanes: np.ndarray) -> list[np.ndarray]:
    """`lanes` cut into rounds: none holds an address twice, and each address is met in the order of its lanes."""
    if lanes.size < 2:
        return [lanes] if lanes.size else []
    order = np.argsort(addresses[lanes], kind="stable")
    in_order = addresses[lanes][order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    turn = np.arange(lanes.size) - np.repeat(starts, np.diff(np.append(starts, lanes.size)))
    return [lanes[order[turn == i]] for i in range(int(turn.max()) + 1)]


def _gather(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A new array of the elements at `addresses`."""
    window, index = _window(addresses, dtype)
    return window.take(index)


def _scatter(addresses: np.ndarray, values: np.ndarray) -> None:
    """Write `values` at `addresses`."""
    window, index = _window(addresses, values.dtype)
    window[index] = values


def _window(addresses: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """An array over the memory that `addresses` span, and each address's index in it. Touches no memory."""
    first, last = int(addresses.min()), int(addresses.max())
    offsets = (addresses - np.uint64(first)).view(np.int64)
    if dtype.itemsize == 1:
        return _memory_at(first, last - first + 1, dtype), offsets
    if (offsets & (dtype.itemsize - 1)).any():
        raise ValueError(f"pointers of one {dtype.name} block are not a whole number of elements apart")
    shift = dtype.itemsize.bit_length() - 1
    return _memory_at(first, ((last - first) >> shift) + 1, dtype), offsets >> shift


def _memory_at(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """A writable array over `count` elements of raw memory."""
    raw: Any = _Everything.from_address(address)
    return np.frombuffer(raw, dtype, count)
