"""Accesses of programs that run once more, in an order that is drawn: what each sees, and what others see of it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from assignment.whose import theirs

from .faults import Place, Program, line, place
from .programs import Programs
from .races import Races
from .shadow import Shadow
from .trace import distinct
from .undefined import bits, gather, scatter

_MEETINGS, _STEPS = 64, 48  # that are kept for a message


class Order(NamedTuple):
    """How an atomic orders what its program does before and after it."""

    acquires: bool = True
    releases: bool = True
    scope: str = "gpu"

    @property
    def is_between_programs(self) -> bool:
        return self.scope != "cta"


def exchange_if_equal(old: np.ndarray, new: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.where(old == expected, new, old)


def stored_to(
    addresses: np.ndarray, operation: Callable[..., np.ndarray], operands: tuple[np.ndarray, ...]
) -> np.ndarray:
    """Return the elements that an atomic stores to; a comparison that fails stores, and so releases, nothing."""
    if operation is not exchange_if_equal:
        return addresses
    _, expected = operands
    return addresses[gather(addresses, expected.dtype) == expected]


class Meeting(NamedTuple):
    """What programs do to an element that several of them touch."""

    name: str
    steps: list[tuple[Program, str, Place]]  # who does what to it, where, one after another

    def told(self) -> "tuple[int, Meeting] | None":
        """Return how much it tells, and three steps: of one program, of another, and the first one's next if any."""
        changes = [i for i, step in enumerate(self.steps) if step[1] != "loads"]
        for i, (program, _, _) in enumerate(self.steps):
            after = [k for k, step in enumerate(self.steps) if k > i and step[0] == program]
            between = [j for j in changes if after and i < j < after[0]]
            if between:
                return 3, Meeting(self.name, [self.steps[k] for k in (i, between[0], after[0])])
        if len({step[0] for step in self.steps}) < 2:
            return None
        reader = next((i for i, step in enumerate(self.steps) if i and step[1] == "loads"), 1)
        return 1 + (reader > 1 and bool(changes)), Meeting(self.name, self.steps[max(0, reader - 2) :][:3])


class ScheduledRun:
    """The accesses of one such run."""

    def __init__(self, programs: Programs, races: Races) -> None:
        self._programs, self._stores, self._races = programs, programs.stores, races
        self._meetings: dict[tuple[int, int], Meeting] = {}  # by shadow and piece
        # of the access of the moment:
        self._has_met = False  # others touch an element of it too
        self._order: Order | None = None  # of a load that is no plain one
        # what an atomic has found that is none between programs, by address
        self._split: tuple[np.ndarray, np.ndarray] | None = None
        self._is_kept_back = False  # others do not see the update yet

    @property
    def meeting(self) -> Meeting | None:
        """Three steps at an element where what came between may have mattered."""
        ranked = [found for one in self._meetings.values() if (found := one.told())]
        return max(ranked, key=lambda one: one[0])[1] if ranked else None

    @property
    def _me(self) -> int:
        return self._programs.now.number

    def begin(self, shadow: Shadow, pieces: np.ndarray, name: Callable[[int], str], action: str) -> bool:
        """Begin an access; where others touch one of its elements too, they may go first: returns whether they may."""
        met = self._races.meets(shadow, pieces, self._me, action != "loads")
        self._has_met = met >= 0
        if not self._has_met:
            return False
        key = id(shadow), int(pieces[met])
        if key in self._meetings or len(self._meetings) < _MEETINGS:
            steps = self._meetings.setdefault(key, Meeting(name(met), [])).steps
            if len(steps) < _STEPS:
                steps.append((self._programs.now.program, action, place()))
        order = self._order
        self._programs.meet((*key, line()))
        self._has_met, self._order = True, order
        return True

    def polls(self, order: Order) -> None:
        """Let the next load see what lies there now."""
        self._order = order

    def loaded(self, addresses: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return what a load gives, of what lies there."""
        order, self._order = self._order, None
        if self._stores is None:
            return values
        if order and order.acquires and order.is_between_programs:
            self._stores.acquire(self._me)
        if self._stores.release(self._me, addresses):
            self._programs.changed()
            values = gather(addresses, values.dtype).reshape(values.shape)
        return values if order or not self._has_met else self._stores.seen(self._me, addresses, values)

    def stores(self, addresses: np.ndarray, values: np.ndarray) -> None:
        """Store values, which others may not see yet."""
        if self._stores is not None and self._has_met:
            kept = np.array(values).ravel()
            self._stores.keep_back(self._me, addresses, values.dtype, lambda old: kept)
            return
        old = gather(addresses, values.dtype)
        scatter(addresses, values)
        self._changed(addresses, old, values)

    def _changed(self, addresses: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
        """Tell others of a change."""
        if self._stores and self._has_met:
            self._stores.changed(self._me, addresses, old)
        if (bits(old) != bits(new)).any():
            self._programs.changed(addresses)

    def begin_update(
        self,
        addresses: np.ndarray,
        operation: Callable[..., np.ndarray],
        operands: tuple[np.ndarray, ...],
        order: Order,
        comes_in_any_order: bool,
    ) -> None:
        """Let others see what an atomic releases, or not see itself yet; between threads it is a load and a store."""
        has_met, split = self._has_met, None
        if has_met and not order.is_between_programs:
            own = distinct(addresses.ravel())
            split = own, gather(own, operands[0].dtype)
            self._programs.meet(line())
        self._has_met, self._split = has_met, split  # others may have run
        self._is_kept_back = False
        if self._stores is None:
            return
        self._show(addresses)
        if order.releases and order.is_between_programs and stored_to(addresses, operation, operands).size:
            self._show()
        self._is_kept_back = self._has_met and comes_in_any_order and not order.releases
        if order.acquires and order.is_between_programs:
            self._stores.acquire(self._me)

    def _show(self, addresses: np.ndarray | None = None) -> None:
        """Let others see what the program has stored, all or until its last store to these."""
        if self._stores is not None and self._stores.release(self._me, addresses):
            self._programs.changed()

    def update(
        self,
        addresses: np.ndarray,
        lying: np.ndarray,
        operation: Callable[..., np.ndarray],
        operands: tuple[np.ndarray, ...],
    ) -> np.ndarray:
        """Update elements, where this lies; returns what the program finds there."""
        dtype = operands[0].dtype
        if self._is_kept_back and self._stores is not None:
            update = lambda lying: theirs(operation, lying, *operands)  # noqa: E731
            self._stores.keep_back(self._me, addresses, dtype, update)
            return np.zeros(addresses.shape, dtype)
        found = lying
        if self._split is not None:
            own, values = self._split
            at = np.minimum(np.searchsorted(own, addresses), own.size - 1)
            found = values[at]
        new = theirs(operation, found, *operands).astype(dtype)
        if self._split is not None:
            values[at] = new
        scatter(addresses, new)
        self._changed(addresses, lying, new)
        return found
