"""Race detection between the programs of one launch, by the happens-before relation.

The simulator runs one program after another; a GPU runs them at once. Two accesses of one element
by two programs, at least one of them a store, are a race unless an atomic orders them: the earlier
program must have released a counter or a lock (an atomic on one element, after its access) that the
later one acquired (before its own), and the later one must have looked: what its atomic returned
decided a branch, a loop, or which elements it touches.

The threads of one program do not wait for each other either: what one lane stores another may load
only after a barrier.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .faults import Place, Program, Race, Said, at, place
from .shadow import Shadow

Name = Callable[[int], str]  # of the element in a lane
Lanes = Callable[[], np.ndarray]  # their numbers in the block
REMEDY = "give each program elements of its own, or use atomics on memory that starts at zero"
_REMEMBERED = 256  # stores of a program
MET = "met"  # the mark of elements that programs touch whose order may matter
MIXED = 9  # the number of an atomic that does not come in any order with others


class RaceEvent(NamedTuple):
    """An access that is recorded in a shadow."""

    program: Program
    action: str
    where: Place
    by: int = 0  # the actor's number


@dataclass
class Actor:
    """A program, as far as what it does is ordered with what others do."""

    program: Program = (0, 0, 0)
    number: int = 0
    first: int = 1  # its first event
    barrier: int = 1  # the event after its last barrier
    acquired: set[int] = field(default_factory=set)  # addresses
    # its stores since its last barrier: unit, pieces, lanes
    recent: dict[int, tuple[int, np.ndarray, Lanes | None]] = field(default_factory=dict)


class Races:
    """The events of one launch, in the order in which its programs ran."""

    def __init__(self, kernel: str, warn: Callable[[str, Hashable], None]) -> None:
        self._kernel, self._warn = kernel, warn
        self._events = [RaceEvent((0, 0, 0), "", ())]
        self._actors = np.zeros(1, np.int32)  # of the events, once programs sleep
        self._sleeps = False
        self._n_actors = 0
        # address of a lock → program → its last event before
        self._released: dict[int, dict[Program, int]] = {}
        self.actor = Actor()  # that runs
        self.has_met = False  # whether any element is marked

    def begin(self, program: Program) -> None:
        """Start the next program."""
        self._n_actors += 1
        self.actor = Actor(program, self._n_actors, len(self._events))
        self.barrier()

    def sleeps(self) -> None:
        """Let others run before the program that runs has ended: its events are not the last ones."""
        if not self._sleeps:
            self._sleeps = True
            self._actors = np.array([event.by for event in self._events], np.int32)

    def _is_foreign(self, events: np.ndarray) -> np.ndarray:
        """Return which of the events, of which 0 is none, are of other programs."""
        if self._sleeps:
            return (events > 0) & (self._actors[events] != self.actor.number)
        return (events > 0) & (events < self.actor.first)

    def barrier(self) -> None:
        """Record that all threads of the program have reached a barrier."""
        self.actor.barrier, self.actor.recent = len(self._events), {}

    def load(self, shadow: Shadow, index: np.ndarray, name: Name, lanes: Lanes | None) -> None:
        """Check and record a read; of each element the first reader and the last one are kept."""
        if "store" in shadow.marks and lanes:
            self._check_lanes(shadow, index, name, lanes)
        if "store" in shadow.marks or "same" in shadow.marks:
            # stored again by this program, unchanged
            same = shadow.of("same").take(index)
            own = (same > 0) & ~self._is_foreign(same)
            self._check(shadow, index, ("store",), "loads", name, but=own)
            self._check(shadow, index, ("same",), "loads", name, is_same=np.ones(index.shape, bool))
        self._meet(shadow, index, ("atomic",))
        first = shadow.of("load").take(index)
        is_new, is_foreign = first == 0, self._is_foreign(first)
        if is_new.any():
            shadow.of("load")[index[is_new]] = self._event("loaded")
        if is_foreign.any():
            shadow.of("load again")[index[is_foreign]] = self._event("loaded")

    def store(self, shadow: Shadow, index: np.ndarray, name: Name, is_same: np.ndarray, lanes: Lanes | None) -> None:
        """Check and record a write; `is_same` marks the elements that had these values already."""
        self._check(shadow, index, ("store", "same", "load", "load again", "atomic"), "stores to", name, is_same)
        event = self._event("stored to")
        shadow.of("store")[index[~is_same]] = event
        self.actor.recent[event] = shadow.unit, index, lanes
        if len(self.actor.recent) > _REMEMBERED:
            del self.actor.recent[next(iter(self.actor.recent))]
        if is_same.any():
            shadow.of("same")[index[is_same]] = event

    def atomic(self, shadow: Shadow, index: np.ndarray, name: Name, kind: int) -> None:
        """Check and record an atomic update; those of one kind come in any order, but for MIXED ones."""
        self._check(shadow, index, ("store", "same"), "updates", name)
        self._meet(shadow, index, ("load", "load again"))
        kinds = shadow.of("kind")
        before = kinds.take(index)
        kinds[index] = now = np.where((before == 0) | (before == kind), kind, MIXED)
        self._meet(shadow, index, ("atomic",), now == MIXED)
        shadow.of("atomic")[index] = self._event("updated")

    def _meet(
        self, shadow: Shadow, index: np.ndarray, against: tuple[str, ...], where: np.ndarray | None = None
    ) -> None:
        """Mark the elements that other programs have touched in one of these ways."""
        for mark in against:
            if mark in shadow.marks:
                foreign = self._is_foreign(shadow.marks[mark].take(index))
                foreign = foreign if where is None else foreign & where
                if foreign.any():
                    shadow.of(MET)[index[foreign]] = 1
                    self.has_met = True

    def meets(self, shadow: Shadow, index: np.ndarray, number: int, writes: bool) -> int:
        """Return the first lane, in a scheduled run, with an element that others touch too, or -1; mark what is new."""
        by, written, met = shadow.of("by"), shadow.of("written"), shadow.of(MET)
        before = by.take(index)
        foreign = (before > 0) & (before != number)
        if not writes and foreign.any():
            foreign &= written.take(index) > 0
        met[index[foreign]] = 1
        by[index] = number
        if writes:
            written[index] = 1
        found = np.flatnonzero(met.take(index))
        return int(found[0]) if found.size else -1

    def acquire(self, addresses: Iterable[int]) -> None:
        """Order what was released at these addresses before what follows."""
        for address in addresses:
            self._released.setdefault(address, {})
            self.actor.acquired.add(address)

    def release(self, addresses: Iterable[int]) -> None:
        """Order all that the program did and acquired before what acquirers of these addresses do."""
        before = {self.actor.program: len(self._events) - 1}
        for lock in self.actor.acquired:
            before.update({p: e for p, e in self._released[lock].items() if e > before.get(p, -1)})
        for address in addresses:
            released = self._released.setdefault(address, {})
            released.update({p: e for p, e in before.items() if e > released.get(p, -1)})

    def last_change(self, shadow: Shadow, index: np.ndarray, but: Collection[Place]) -> RaceEvent | None:
        """Return the last event that changed these elements, or any other of the shadow, not in these lines."""
        marks = [shadow.marks[mark] for mark in ("store", "same", "atomic") if mark in shadow.marks]
        for numbers in (np.concatenate([mark[index] for mark in marks]), np.concatenate(marks)) if marks else ():
            for number in np.unique(numbers)[::-1].tolist():
                if number and self._events[number].where not in but:
                    return self._events[number]
        return None

    def _place(self) -> Place:
        return place()

    def _event(self, action: str) -> int:
        self._events.append(RaceEvent(self.actor.program, action, self._place(), self.actor.number))
        number = len(self._events) - 1
        if self._sleeps:
            if number >= self._actors.size:
                self._actors = np.append(self._actors, np.zeros_like(self._actors))
            self._actors[number] = self.actor.number
        return number

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
            foreign = self._is_foreign(events)
            if but is not None:
                foreign &= ~but
            if foreign.any():
                self._settle(events, foreign, action, name, is_same)
                shadow.of(MET)[index[foreign]] = 1
                self.has_met = True

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
        who = f"programs {earlier.program} and {self.actor.program} of {self._kernel} both touch {name(lane)}"
        here, there = at(place(), "    "), at(earlier.where, "    ")
        one, other = f"  {self.actor.program} {action} it", f"  {earlier.program} {earlier.action} it"
        touched: list[str | Said] = [f"{says}: {who}", one, here, other, there]
        if harmless:
            text = "\n".join([*map(str, touched), "  the value stays what it is: harmless, and work done twice"])
            self._warn(text, frozenset([place(), earlier.where]))
        else:
            race = Race(*touched, f"  nothing orders them: {REMEDY}")
            race.other = earlier.program, earlier.where
            raise race

    def _is_ordered(self, number: int) -> bool:
        program = self._events[number].program
        return any(self._released[lock].get(program, 0) >= number for lock in self.actor.acquired)

    def _check_lanes(self, shadow: Shadow, index: np.ndarray, name: Name, lanes: Lanes) -> None:
        """Warn of loads of elements that another lane stored since the last barrier."""
        events = shadow.of("store").take(index)
        if int(events.max()) < self.actor.barrier:
            return
        same = shadow.marks["same"].take(index) if "same" in shadow.marks else events * 0
        for number in set(events.tolist()) & self.actor.recent.keys():
            unit, stored, by = self.actor.recent[number]
            if by is None or unit != shadow.unit:
                continue
            is_last = (events == number) & (same < number)
            is_foreign = is_last & ~np.isin(_pairs(index, lanes()), _pairs(stored, by()))
            if not is_foreign.any():
                continue
            lane = int(np.flatnonzero(is_foreign)[0])
            where, earlier = place(), self._events[number].where
            self._warn(
                f"no barrier: program {self.actor.program} of {self._kernel} loads {name(lane)}, which another of its "
                f"lanes has stored\n  it loads it\n{at(where, '    ')}\n  it stored it\n{at(earlier, '    ')}\n"
                "  threads of a program do not wait for each other: say tl.debug_barrier() between the two",
                frozenset([where, earlier, "lanes"]),
            )


def _pairs(index: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    """Return a number for each pair of piece and lane; an element may have several pieces."""
    return index * (1 << 24) + lanes.repeat(index.size // lanes.size)
