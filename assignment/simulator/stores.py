"""What programs have stored, and others do not see yet: nothing but a release says when a GPU shows it to them.

A plain store of an element that others touch too, and a relaxed atomic of which nobody uses what it returns, wait in
their program's buffer until it releases something at the scope of the GPU. A plain load may give what lay there at the
program's last acquire.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .numerics import ADDRESS
from .undefined import gather, scatter

_REMEMBERED = 256  # changes that a load looks back at


class Waiting(NamedTuple):
    """A store or an update that others do not see yet."""

    addresses: np.ndarray
    dtype: np.dtype
    new: Callable[[np.ndarray], np.ndarray]  # of what lies there

    def touches(self, addresses: np.ndarray) -> bool:
        return bool(np.isin(self.addresses, addresses).any())


class Overwritten(NamedTuple):
    """What lay somewhere before a program changed it."""

    number: int
    by: int
    addresses: np.ndarray  # rising
    old: np.ndarray
    reach: tuple[int, int]  # the first and the last of the addresses


class Stores:
    """The buffers of all programs, by their numbers, and the last changes of memory."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waiting: dict[int, list[Waiting]] = {}
        self._changes: deque[Overwritten] = deque(maxlen=_REMEMBERED)
        self._n_changes = 0
        self._acquired: dict[int, int] = {}  # by program: how many changes it must see

    def keep_back(
        self, by: int, addresses: np.ndarray, dtype: np.dtype, new: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Let others not see a store of this program."""
        self._waiting.setdefault(by, []).append(Waiting(addresses.ravel() & ADDRESS, dtype, new))

    def changed(self, by: int, addresses: np.ndarray, old: np.ndarray) -> None:
        """Remember what lay there before a change that all can see at once."""
        self._n_changes += 1
        own, old = addresses.ravel() & ADDRESS, old.ravel()
        if (own[1:] < own[:-1]).any():
            order = np.argsort(own)
            own, old = own[order], old[order]
        self._changes.append(Overwritten(self._n_changes, by, own, old, (int(own[0]), int(own[-1]))))

    def acquire(self, by: int) -> None:
        """Let a program see all that others have released."""
        self._acquired[by] = self._n_changes

    def release(self, by: int, addresses: np.ndarray | None = None) -> bool:
        """Let others see what a program has stored, all or until its last store to these; return if there is any."""
        waiting = self._waiting.get(by, [])
        n = len(waiting)
        if n and addresses is not None:
            own = addresses.ravel() & ADDRESS
            n = max((i for i, one in enumerate(waiting, start=1) if one.touches(own)), default=0)
        for _ in range(n):
            self._show(by, waiting.pop(0))
        return n > 0

    def let_one_be_seen(self) -> bool:
        """Show some store, of which nothing says that it comes after another; return whether there is any."""
        full = [by for by, waiting in self._waiting.items() if waiting]
        if not full:
            return False
        by = self._rng.choice(full)
        waiting = self._waiting[by]
        first = [i for i, one in enumerate(waiting) if not any(b.touches(one.addresses) for b in waiting[:i])]
        self._show(by, waiting.pop(self._rng.choice(first)))
        return True

    def end(self) -> None:
        """Show everything."""
        for by in self._waiting:
            self.release(by)

    def _show(self, by: int, one: Waiting) -> None:
        old = gather(one.addresses, one.dtype)
        scatter(one.addresses, one.new(old).astype(one.dtype))
        self.changed(by, one.addresses, old)

    def seen(self, by: int, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return what a plain load may give for the values that lie there: the oldest ones since the last acquire."""
        own = addresses.ravel() & ADDRESS
        found = values.ravel().copy()
        is_own = np.zeros(own.size, bool)  # has stored there since: it sees no older value
        first, last, acquired = int(own.min()), int(own.max()), self._acquired.get(by, 0)
        for change in reversed(self._changes):
            if change.number <= acquired:
                break
            if change.old.itemsize != values.itemsize or change.reach[1] < first or change.reach[0] > last:
                continue
            at = np.minimum(np.searchsorted(change.addresses, own), change.addresses.size - 1)
            is_there = (change.addresses[at] == own) & ~is_own
            if change.by == by:
                is_own |= is_there
            else:
                found[is_there] = change.old[at[is_there]].view(values.dtype)
        return found.reshape(values.shape)
