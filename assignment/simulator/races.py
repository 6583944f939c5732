"""Race detection between the programs of one launch, by the happens-before relation.

The simulator runs one program after another; a GPU runs them at once. Two accesses of one element
by two programs, at least one of them a store, are a race unless an atomic orders them: the earlier
program must have released a counter or a lock (an atomic on one element, after its access) that the
later one acquired (before its own), and the later one must have looked: what its atomic returned
decided a branch, a loop, or which elements it touches.

The threads of one program do not wait for each other either: what one lane stores another may load
only after a barrier.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from .acquired import Locks
from .faults import Place, Program, Race, Said, at, place
from .shadow import Shadow

Name = Callable[[int], str]  # of the element in a lane
Lanes = Callable[[], np.ndarray]  # their numbers in the block
_REMEMBERED = 256  # stores of a program


class RaceEvent(NamedTuple):
    """An access that is recorded in a shadow."""

    program: Program
    action: str
    where: Place


class Races:
    """The events of one launch, in the order in which its programs ran."""

    def __init__(self, kernel: str, waits: bool, warn: Callable[[str, Hashable], None]) -> None:
        """Set up; `waits` is whether the kernel has a loop in which it can wait for others."""
        self._kernel, self._waits, self._warn = kernel, waits, warn
        self._events = [RaceEvent((0, 0, 0), "", ())]
        # address of a lock → program → its last event before
        self._released: dict[int, dict[Program, int]] = {}
        # what atomics of this program acquired, whether it looked or not
        self._offered: Locks = frozenset()
        self._seen: Locks = frozenset()  # those whose value has decided what the program does
        # those whose value decides what the access of the moment touches
        self._seen_now: Locks = frozenset()
        self._program: Program = (0, 0, 0)
        self._first = 1  # event of the program that runs
        self._barrier = 1  # event of it after its last barrier
        # its stores since then: unit, pieces, lanes
        self._recent: dict[int, tuple[int, np.ndarray, Lanes | None]] = {}

    def begin(self, program: Program) -> None:
        """Start the next program."""
        self._program, self._first = program, len(self._events)
        self._offered = self._seen = self._seen_now = frozenset()
        self.barrier()

    def barrier(self) -> None:
        """Record that all threads of the program have reached a barrier."""
        self._barrier, self._recent = len(self._events), {}

    def look(self, locks: Locks) -> None:
        """Record that the rest of the program depends on the values of these locks."""
        self._seen |= locks

    def look_for_now(self, locks: Locks) -> None:
        """Record that the elements of the next access depend on the values of these locks."""
        self._seen_now = locks

    def load(self, shadow: Shadow, index: np.ndarray, name: Name, lanes: Lanes | None) -> None:
        """Check and record a read; of each element the first reader and the last one are kept."""
        if "store" in shadow.marks and lanes:
            self._check_lanes(shadow, index, name, lanes)
        if "store" in shadow.marks or "same" in shadow.marks:
            # stored again by this program, unchanged
            own = shadow.of("same").take(index) >= self._first
            self._check(shadow, index, ("store",), "loads", name, but=own)
            self._check(shadow, index, ("same",), "loads", name, is_same=np.ones(index.shape, bool))
        first = shadow.of("load").take(index)
        is_new, is_foreign = first == 0, (first > 0) & (first < self._first)
        if is_new.any():
            shadow.of("load")[index[is_new]] = self._event("loaded")
        if is_foreign.any():
            shadow.of("load again")[index[is_foreign]] = self._event("loaded")

    def store(self, shadow: Shadow, index: np.ndarray, name: Name, is_same: np.ndarray, lanes: Lanes | None) -> None:
        """Check and record a write; `is_same` marks the elements that had these values already."""
        self._check(shadow, index, ("store", "same", "load", "load again", "atomic"), "stores to", name, is_same)
        event = self._event("stored to")
        shadow.of("store")[index[~is_same]] = event
        self._recent[event] = shadow.unit, index, lanes
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]
        if is_same.any():
            shadow.of("same")[index[is_same]] = event

    def atomic(self, shadow: Shadow, index: np.ndarray, name: Name) -> None:
        """Check and record an atomic update."""
        self._check(shadow, index, ("store", "same"), "updates", name)
        shadow.of("atomic")[index] = self._event("updated")

    def acquire(self, address: int) -> Locks:
        """Order what was released at this address before what follows, once the program looks."""
        self._released.setdefault(address, {})
        self._offered |= {address}
        return frozenset([address])

    def release(self, address: int) -> None:
        """Order all that the program did and saw before what acquirers of this address do."""
        released = self._released.setdefault(address, {})
        for lock in self._seen | self._seen_now:
            released.update({p: max(e, released.get(p, 0)) for p, e in self._released[lock].items()})
        released[self._program] = len(self._events) - 1

    def can_order(self, lanes: int, scope: str, is_exchange_if_equal: bool = False) -> bool:
        """Return whether an atomic can be a lock or a counter between programs.

        A lock that is tried once, without a loop, is always free here, where programs run one by
        one.
        """
        return lanes == 1 and scope != "cta" and (self._waits or not is_exchange_if_equal)

    def _event(self, action: str) -> int:
        self._events.append(RaceEvent(self._program, action, place()))
        return len(self._events) - 1

    def _check(
        self,
        shadow: Shadow,
        index: np.ndarray,
        against: tuple[str, ...],
        action: str,
        name: Name,
        is_same: np.ndarray | None = None,
        but: np.ndarray | None = None,
    ) -> None:
        for mark in against:
            if mark not in shadow.marks:
                continue
            events = shadow.marks[mark].take(index)
            foreign = (events > 0) & (events < self._first)
            if but is not None:
                foreign &= ~but
            if foreign.any():
                self._settle(events, foreign, action, name, is_same)

    def _settle(
        self, events: np.ndarray, foreign: np.ndarray, action: str, name: Name, is_same: np.ndarray | None
    ) -> None:
        """Raise, unless atomics order the events; where the values stay the same, only warn."""
        unordered = [number for number in np.unique(events[foreign]).tolist() if not self._is_ordered(number)]
        if not unordered:
            return
        lanes = foreign & np.isin(events, unordered)
        harmless = is_same is not None and bool(is_same[lanes].all())
        lane = int(np.flatnonzero(lanes)[0])
        earlier = self._events[int(events[lane])]
        says = "same value stored" if harmless else Race.kind
        who = f"programs {earlier.program} and {self._program} of {self._kernel} both touch {name(lane)}"
        here, there = at(place(), "    "), at(earlier.where, "    ")
        one, other = f"  {self._program} {action} it", f"  {earlier.program} {earlier.action} it"
        touched: list[str | Said] = [f"{says}: {who}", one, here, other, there]
        if harmless:
            text = "\n".join([*map(str, touched), "  the value stays what it is: harmless, and work done twice"])
            self._warn(text, frozenset([place(), earlier.where]))
        else:
            race = Race(*touched, f"  nothing orders them: {self._remedy(unordered)}")
            race.other = earlier.program, earlier.where
            raise race

    def _remedy(self, unordered: list[int]) -> str:
        if all(self._is_ordered(number, by=self._offered) for number in unordered):
            return "an atomic before it does so only if what it returned decides a branch, a loop or a mask"
        return "give each program elements of its own, or use atomics on memory that starts at zero"

    def _is_ordered(self, number: int, by: Locks | None = None) -> bool:
        program = self._events[number].program
        locks = self._seen | self._seen_now if by is None else by
        return any(self._released[lock].get(program, 0) >= number for lock in locks)

    def _check_lanes(self, shadow: Shadow, index: np.ndarray, name: Name, lanes: Lanes) -> None:
        """Warn of loads of elements that another lane stored since the last barrier."""
        events = shadow.of("store").take(index)
        if int(events.max()) < self._barrier:
            return
        same = shadow.marks["same"].take(index) if "same" in shadow.marks else events * 0
        for number in set(events.tolist()) & self._recent.keys():
            unit, stored, by = self._recent[number]
            if by is None or unit != shadow.unit:
                continue
            is_last = (events == number) & (same < number)
            is_foreign = is_last & ~np.isin(_pairs(index, lanes()), _pairs(stored, by()))
            if not is_foreign.any():
                continue
            lane = int(np.flatnonzero(is_foreign)[0])
            where, earlier = place(), self._events[number].where
            self._warn(
                f"no barrier: program {self._program} of {self._kernel} loads {name(lane)}, which another of its lanes "
                f"has stored\n  it loads it\n{at(where, '    ')}\n  it stored it\n{at(earlier, '    ')}\n"
                "  threads of a program do not wait for each other: say tl.debug_barrier() between the two",
                frozenset([where, earlier, "lanes"]),
            )


def _pairs(index: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return a number for each pair of piece and lane; an element may have several pieces."""
    return index * (1 << 24) + lanes.repeat(index.size // lanes.size)
