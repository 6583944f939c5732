"""Races between the programs of one launch, found by what happened before what.

The simulator runs one program after the other; a GPU runs them at once. Two accesses of one element by two programs,
at least one of them a store, are a race unless an atomic orders them: the earlier program must have released a counter
or a lock (an atomic on one element, after its access) that the later one acquired (before its own).
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .faults import Place, Program, Race, at, place

Name = Callable[[int], str]  # of the element in a lane


class Event(NamedTuple):
    """One access that left its mark in a shadow."""

    program: Program
    action: str
    where: Place


class Shadow:
    """Who touched each piece of a stretch of memory in this launch: numbers of events, 0 for nobody.

    A piece is `unit` bytes: the smallest element that was accessed so far.
    """

    def __init__(self, n_bytes: int, unit: int) -> None:
        self._n_bytes, self.unit = n_bytes, unit
        self.marks: dict[str, np.ndarray] = {}

    def of(self, action: str) -> np.ndarray:
        """The mark that one kind of access leaves; memory for it is taken when it is first asked for."""
        if action not in self.marks:
            self.marks[action] = np.zeros(-(-self._n_bytes // self.unit), np.int32)
        return self.marks[action]

    def pieces(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """The pieces of accesses of `width` bytes at these byte offsets, lane by lane."""
        if width < self.unit:
            self.marks = {action: np.repeat(mark, self.unit // width) for action, mark in self.marks.items()}
            self.unit = width
        first = offsets.ravel() // self.unit
        if width == self.unit:
            return first
        return (first[:, None] + np.arange(width // self.unit)).ravel()


class Races:
    """The events of one launch, in the order in which its programs were run."""

    def __init__(self, kernel: str, waits: bool, warn: Callable[[str, Any], None]) -> None:
        """`waits`: whether the kernel has a loop in which a program can wait for others."""
        self._kernel, self._waits, self._warn = kernel, waits, warn
        self._events = [Event((0, 0, 0), "", ())]
        self._released: dict[int, dict[Program, int]] = {}  # address of a lock → program → its last event before
        self._acquired: list[dict[Program, int]] = []
        self._program: Program = (0, 0, 0)
        self._first = 1  # event of the program that runs

    def begin(self, program: Program) -> None:
        """The next program starts."""
        self._program, self._first, self._acquired = program, len(self._events), []

    def load(self, shadow: Shadow, index: np.ndarray, name: Name) -> None:
        """The program reads elements; of each the first reader and the last one after it are remembered."""
        if "store" in shadow.marks or "same" in shadow.marks:
            own = shadow.of("same").take(index) >= self._first  # stored again by this program, unchanged
            self._check(shadow, index, ("store",), "loads", name, but=own)
            self._check(shadow, index, ("same",), "loads", name, is_same=np.ones(index.shape, bool))
        first = shadow.of("load").take(index)
        is_new, is_foreign = first == 0, (first > 0) & (first < self._first)
        if is_new.any():
            shadow.of("load")[index[is_new]] = self._event("loaded")
        if is_foreign.any():
            shadow.of("load again")[index[is_foreign]] = self._event("loaded")

    def store(self, shadow: Shadow, index: np.ndarray, name: Name, is_same: np.ndarray) -> None:
        """The program writes elements; `is_same` tells which of them had these values already."""
        self._check(shadow, index, ("store", "same", "load", "load again", "atomic"), "stores to", name, is_same)
        event = self._event("stored to")
        shadow.of("store")[index[~is_same]] = event
        if is_same.any():
            shadow.of("same")[index[is_same]] = event

    def atomic(self, shadow: Shadow, index: np.ndarray, name: Name) -> None:
        """The program updates elements atomically."""
        self._check(shadow, index, ("store", "same"), "updates", name)
        shadow.of("atomic")[index] = self._event("updated")

    def acquire(self, addresses: Iterable[int]) -> None:
        """What earlier atomics on these addresses released is before what comes."""
        for address in addresses:
            released = self._released.setdefault(address, {})
            if not any(known is released for known in self._acquired):
                self._acquired.append(released)

    def release(self, addresses: Iterable[int]) -> None:
        """All that the program did, and all that it acquired, is before what others do that acquire one of these."""
        for address in addresses:
            released = self._released.setdefault(address, {})
            for known in self._acquired:
                if known is not released:
                    released.update({p: max(e, released.get(p, 0)) for p, e in known.items()})
            released[self._program] = len(self._events) - 1

    def can_order(self, lanes: int, scope: str, is_exchange_if_equal: bool = False) -> bool:
        """Whether an atomic can be a lock or a counter between programs.

        A lock that is tried once, and not waited for, is always free here, where programs run one by one.
        """
        return lanes == 1 and scope != "cta" and (self._waits or not is_exchange_if_equal)

    def _event(self, action: str) -> int:
        self._events.append(Event(self._program, action, place()))
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
        """Raise, unless atomics order the events, or warn where the value stays the same."""
        unordered = [number for number in np.unique(events[foreign]).tolist() if not self._is_ordered(number)]
        if not unordered:
            return
        lanes = foreign & np.isin(events, unordered)
        harmless = is_same is not None and bool(is_same[lanes].all())
        lane = int(np.flatnonzero(lanes)[0])
        earlier = self._events[int(events[lane])]
        text = (
            f"programs {earlier.program} and {self._program} of {self._kernel} both touch {name(lane)}\n"
            f"  {self._program} {action} it\n{at(place(), '    ')}\n"
            f"  {earlier.program} {earlier.action} it\n{at(earlier.where, '    ')}\n"
        )
        if harmless:
            text = f"same value stored: {text}  the value stays what it is: harmless, and work done twice"
            self._warn(text, frozenset([place(), earlier.where]))
        else:
            remedy = "give each program elements of its own, or use atomics on memory that starts at zero"
            raise Race(f"{Race.kind}: {text}  nothing orders them: {remedy}")

    def _is_ordered(self, number: int) -> bool:
        program = self._events[number].program
        return any(known.get(program, 0) >= number for known in self._acquired)
