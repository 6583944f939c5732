"""Load, store and atomic update at addresses: masks and lanes; the launch's watch touches memory.

Addresses are uint64 arrays in bytes, with the tensor's number in the upper bits (see `regions`);
`mask` is a bool array of the same shape, or None for all lanes. A lane whose mask is false is never
read or written. The launch's `watch` checks and counts every access.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .draws import Draws
from .races import Lanes
from .scheduled import Order
from .watch import Watch


def load(
    watch: Watch, addresses: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype
) -> np.ndarray:
    """Return the elements at `addresses`; `other` (zero without one) where the mask is false."""
    watch.note("loaded", addresses, mask, dtype.itemsize)
    if mask is None or mask.all():
        values = watch.read(addresses, dtype, lambda: np.arange(addresses.size))
        watch.note_values(values)
        return values
    mask = np.broadcast_to(mask, addresses.shape)
    values = np.zeros(addresses.shape, dtype) if other is None else np.array(np.broadcast_to(other, addresses.shape))
    if mask.any():
        values[mask] = read = watch.read(addresses[mask], dtype, lambda: np.flatnonzero(mask))
        watch.note_values(read)
    if other is None:
        watch.dead_lanes(values, ~mask)
    return values


def store(watch: Watch, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> None:
    """Write `values` at `addresses`; of several lanes at one address the last is kept."""
    values = np.broadcast_to(values, addresses.shape)
    watch.note("stored", addresses, mask, values.itemsize)
    lanes: Lanes = lambda: np.arange(addresses.size)  # noqa: E731
    if mask is not None and not mask.all():
        active = np.broadcast_to(mask, addresses.shape)
        addresses, values, lanes = addresses[active], values[active], lambda: np.flatnonzero(active)
    if addresses.size:
        watch.note_values(values)
        watch.write(addresses, values, lanes)


class Updated(NamedTuple):
    """What an atomic returns, and whether that depends on the order of lanes at one address."""

    old: np.ndarray
    is_drawn: bool


def update(
    watch: Watch,
    addresses: np.ndarray,
    mask: np.ndarray | None,
    operation: Callable[..., np.ndarray],
    *operands: np.ndarray,
    order: Order = Order(),  # noqa: B008 - it cannot be changed
) -> Updated:
    """Replace each element by `operation(old, *operands)`; returns the old elements.

    Lanes at one address are updated in an order that is drawn. The elements have the type of the operands. Lanes
    outside the mask return zero.
    """
    watch.note("updated", addresses, mask, operands[0].itemsize)
    shape, dtype = addresses.shape, operands[0].dtype
    active = np.arange(addresses.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, shape))
    addresses = addresses.ravel()
    operands = tuple(np.broadcast_to(x, shape).ravel() for x in operands)
    old = np.zeros(addresses.size, dtype)
    if active.size:
        watch.note_values(operands[0][active])
        is_used = watch.is_used()
        watch.begin_update(addresses[active], operation, tuple(x[active] for x in operands), order, is_used)
    rounds = _without_duplicates(addresses, active, watch.draws)
    for lanes in rounds:
        old[lanes] = watch.update(addresses[lanes], operation, tuple(x[lanes] for x in operands))
    if active.size and is_used:
        watch.updated(addresses[active], old[active])
    is_drawn = any(_differ(addresses, old, rounds[0], lanes) for lanes in rounds[1:])
    return Updated(old.reshape(shape), is_drawn)


def _without_duplicates(addresses: np.ndarray, lanes: np.ndarray, draws: Draws) -> list[np.ndarray]:
    """Split `lanes` into rounds without duplicate addresses; each address is met by its lanes in a drawn order.

    Where there are several, each of them is in the order of addresses.
    """
    met = addresses[lanes]
    if (met[1:] > met[:-1]).all():
        return [lanes] if lanes.size else []
    lanes = lanes[draws.order(lanes.size)]
    order = np.argsort(addresses[lanes], kind="stable")
    in_order = addresses[lanes][order]
    starts = np.flatnonzero(np.concatenate([[True], in_order[1:] != in_order[:-1]]))
    turn = np.arange(lanes.size) - np.repeat(starts, np.diff(np.append(starts, lanes.size)))
    return [lanes[order[turn == i]] for i in range(int(turn.max()) + 1)]


def _differ(addresses: np.ndarray, old: np.ndarray, first: np.ndarray, lanes: np.ndarray) -> bool:
    """Return whether lanes found something else than those that came first to their addresses."""
    before = first[np.searchsorted(addresses[first], addresses[lanes])]
    return bool((old[lanes] != old[before]).any())
