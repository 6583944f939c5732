"""Race detection between programs of several ranks, by vector clocks.

Programs of all ranks take turns, so that the order of events says nothing: an event comes before what a program does
only if the program's clock knows it. A launch begins with all that its rank's earlier launches have known; an atomic
passes a clock on to other ranks only at scope="sys", where one side releases and the other one acquires.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .faults import Place, Program, Race, Said, at, place
from .numerics import ADDRESS
from .races import Actor, Lanes, Name, RaceEvent, Races
from .scheduled import Order
from .shadow import Shadow

Clock = np.ndarray  # by an actor's number: its last event that is known
Element = tuple[int, int]  # a shadow and a piece of it
DEFAULT = Order()
_NO_WAIT = "has not waited for a signal that rank {} sends after that"
_PLAIN = '  a plain load may miss what another rank does: look by an atomic, with sem="acquire", scope="sys"'
_ONE_RANK = '  nothing orders them: signal with sem="release" after one, and wait with sem="acquire" before the other'
_STORED = '  a plain store is no signal: signal by an atomic, with sem="release", scope="sys"'
_RESET = "  host code sets signals: let them only grow, and wait for `call` or more"
_LAST = "signal after the last store, and wait for all such signals"
_FLAGS = 256  # elements of one atomic that may be signals
_KEPT = 64  # stores of a program, of what was there already
_ALL = -1  # in place of a rank: a clock that any rank may acquire


class Touched(NamedTuple):
    """An atomic, or a load again and again, of an element that may be a signal."""

    event: int
    orders: bool  # whether it releases, or acquires, between ranks


def joined(a: Clock, b: Clock) -> Clock:
    """Return a clock that knows what either does."""
    longer, other = (a, b) if a.size >= b.size else (b, a)
    both = longer.copy()
    np.maximum(both[: other.size], other, out=both[: other.size])
    return both


@dataclass
class RankActor(Actor):
    """A program of one rank."""

    rank: int = 0
    who: str = ""
    line: Said | None = None  # of host code
    clock: Clock = field(default_factory=lambda: np.zeros(0, np.int64))
    order: Order = DEFAULT  # of its last atomic, or volatile load
    polled: np.ndarray | None = None  # the addresses of its next load, if it is a volatile or an atomic one
    looked: dict[Element, Touched] = field(default_factory=dict)  # signals that it looked at,
    sent: dict[Element, Touched] = field(default_factory=dict)  # and those that it sent
    # by shadow: what it has stored that was there already, and in which event
    kept: dict[int, list[tuple[int, np.ndarray]]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.who


class RankRaces(Races):
    """The events of all ranks over all of their launches."""

    actor: RankActor

    def __init__(self, n_ranks: int, warn: Callable[[str, Hashable], None]) -> None:
        super().__init__("", warn)
        self._sleeps = True
        self._everybody = [RankActor()]  # by their numbers
        self._known = [np.zeros(0, np.int64)] * n_ranks  # at the end of each rank's last launch
        self._ending = list(self._known)  # and of those programs of the running one that have ended
        self._looked = [dict[Element, Touched]() for _ in range(n_ranks)]  # by programs that have ended
        self._clocks: dict[tuple[int, int], Clock] = {}  # by lock, and rank whose programs may acquire it
        self._is_first = np.zeros(0, bool)  # which elements the store that runs is the first to store to
        self._signals: dict[Element, dict[int, Touched]] = {}  # by rank: its last update
        self._loads = [(f"loaded by {rank}", f"loaded again by {rank}") for rank in range(n_ranks)]
        self._polls = [(f"polled by {rank}", f"polled again by {rank}") for rank in range(n_ranks)]  # atomics may

    def _place(self) -> Place:
        return place() if self.actor.line is None else ()

    def who(self, event: RaceEvent) -> str:
        """Return whose an event is."""
        return str(self._everybody[event.by])

    def begin_of(self, rank: int, who: str, program: Program = (0, 0, 0), line: Said | None = None) -> None:
        """Start a program of a rank, or host code, at this line."""
        self._n_actors += 1
        known = self._known[rank]
        first = len(self._events)
        self.actor = RankActor(program, self._n_actors, first, rank=rank, who=who, line=line, clock=known)
        self._everybody.append(self.actor)
        self.barrier()

    def end(self) -> None:
        """End the program that runs."""
        rank = self.actor.rank
        self._ending[rank] = joined(self._ending[rank], self._own())
        self._looked[rank] |= self.actor.looked
        self.actor.looked, self.actor.recent, self.actor.clock = {}, {}, self._known[rank]
        self.actor.kept = {}

    def end_launch(self, rank: int) -> None:
        """Order all that a rank has done before what it does next."""
        self._known[rank] = self._ending[rank]

    def _own(self) -> Clock:
        """Return what the program that runs knows, its own events too."""
        me = self.actor
        clock = np.append(me.clock, np.zeros(max(0, me.number + 1 - me.clock.size), np.int64))
        clock[me.number] = len(self._events) - 1
        return clock

    def _is_foreign(self, events: np.ndarray) -> np.ndarray:
        """Return which of the events, of which 0 is none, are other programs', and not known to this one."""
        by, clock = self._actors[events], self.actor.clock
        if clock.size <= self._n_actors:
            clock = self.actor.clock = np.append(clock, np.zeros(self._n_actors + 1 - clock.size, np.int64))
        return (events > clock[by]) & (by != self.actor.number)

    def acquire(self, addresses: Iterable[int]) -> None:
        """Know what was released at these addresses to this rank, or at scope="sys" to all."""
        for address in addresses:
            for to in (self.actor.rank, _ALL)[: 1 + (self.actor.order.scope == "sys")]:
                if (clock := self._clocks.get((address & int(ADDRESS), to))) is not None:
                    self.actor.clock = joined(self.actor.clock, clock)

    def release(self, addresses: Iterable[int]) -> None:
        """Pass on all that the program has done and known to acquirers of these addresses."""
        own = self._own()
        for address in addresses:
            for to in (self.actor.rank, _ALL)[: 1 + (self.actor.order.scope == "sys")]:
                lock = address & int(ADDRESS), to
                self._clocks[lock] = joined(self._clocks.get(lock, own), own)

    def load(self, shadow: Shadow, index: np.ndarray, name: Name, lanes: Lanes | None) -> None:
        """Check and record a read; of each element and rank two readers are kept that nothing orders."""
        if "store" in shadow.marks and lanes:
            self._check_lanes(shadow, index, name, lanes)
        own = None
        if "same" in shadow.marks:  # stored again, unchanged
            same = shadow.of("same").take(index)
            own = (same > shadow.of("store").take(index)) & ~self._is_foreign(same)
            for number, pieces in self.actor.kept.get(id(shadow), []):
                own |= (number > shadow.of("store").take(index)) & np.isin(index, pieces)
            self._check(shadow, index, ("same",), "loads", name, is_same=np.ones(index.shape, bool))
        self._check(shadow, index, ("store",), "loads", name, but=own)
        event = self._event("loaded")
        if self.actor.polled is not None:
            if self.actor.order.is_between_programs and self.actor.order.acquires:
                self.acquire(self.actor.polled.ravel()[:_FLAGS].tolist())
            self.actor.polled = None
            self._look(shadow, index, event)
            self._keep(shadow, index, event, self._polls)
            return
        self._check(shadow, index, ("atomic",), "loads", name)
        self._keep(shadow, index, event, self._loads)

    def _keep(self, shadow: Shadow, index: np.ndarray, event: int, marks: Sequence[tuple[str, str]]) -> None:
        """Mark a read."""
        first, again = marks[self.actor.rank]
        is_kept = self._is_foreign(shadow.of(first).take(index))
        shadow.of(first)[index[~is_kept]] = event
        if is_kept.any():
            shadow.of(again)[index[is_kept]] = event

    def store(self, shadow: Shadow, index: np.ndarray, name: Name, is_same: np.ndarray, lanes: Lanes | None) -> None:
        """Check and record a write; `is_same` marks the elements that had these values already."""
        loads = [mark for of in self._loads + self._polls for mark in of if mark in shadow.marks]
        self._is_first = (shadow.of("store").take(index) == 0) & (shadow.of("same").take(index) == 0)
        self._check(shadow, index, tuple(loads), "stores to", name, is_same)
        super().store(shadow, index, name, is_same, lanes)
        if is_same.any():
            kept = self.actor.kept.setdefault(id(shadow), [])
            kept.append((len(self._events) - 1, index[is_same]))
            del kept[:-_KEPT]

    def atomic(self, shadow: Shadow, index: np.ndarray, name: Name, kind: int) -> None:
        """Check and record an atomic update."""
        loads = [mark for of in self._loads for mark in of if mark in shadow.marks]
        self._check(shadow, index, ("store", "same", *loads), "updates", name)
        self._check_scopes(shadow, index, name)
        order = self.actor.order
        event = self._event(f'updated at scope="{order.scope}"')
        shadow.of("atomic")[index] = event
        if order.acquires or not order.releases:
            self._look(shadow, index, event)
        if order.releases or not order.acquires:
            signal = Touched(event, order.releases and order.scope == "sys")
            for piece in index[:_FLAGS].tolist():
                self._signals.setdefault((id(shadow), piece), {})[self.actor.rank] = signal
                self.actor.sent[id(shadow), piece] = signal

    def _look(self, shadow: Shadow, index: np.ndarray, event: int) -> None:
        """Remember that the program looks at what may be signals."""
        seen = Touched(event, self.actor.order.acquires and self.actor.order.scope == "sys")
        self.actor.looked |= {(id(shadow), piece): seen for piece in index[:_FLAGS].tolist()}

    def _check_scopes(self, shadow: Shadow, index: np.ndarray, name: Name) -> None:
        """Raise where another rank's atomics on an element are not atomic to this one, or the other way round."""
        events, scope = shadow.of("atomic").take(index), self.actor.order.scope
        for number in np.unique(events[self._is_foreign(events)]).tolist():
            is_apart = self._everybody[self._events[number].by].rank != self.actor.rank
            if is_apart and (scope != "sys" or not self._events[number].action.endswith('"sys"')):
                remedy = '  scope="gpu" is for programs of one rank: a signal between ranks needs scope="sys"'
                what = f'updates {name(int(np.flatnonzero(events == number)[0]))} at scope="{scope}"'
                raise self._race(what, number, remedy)

    def last_change(self, shadow: Shadow, index: np.ndarray, but: Collection[Place]) -> RaceEvent | None:
        """Return the last signal to an element that was sent elsewhere than in these lines."""
        sent = self._signals.get((id(shadow), int(index[0])), {}).values()
        events = [self._events[signal.event] for signal in sorted(sent)]
        return next((event for event in reversed(events) if event.where not in but), None)

    def _settle(
        self, events: np.ndarray, foreign: np.ndarray, action: str, name: Name, is_same: np.ndarray | None
    ) -> None:
        """Raise; where one rank's programs leave a value as it is, only warn."""
        for number in np.unique(events[foreign]).tolist():
            earlier, lanes = self._events[number], foreign & (events == number)
            other = self._everybody[earlier.by]
            is_one_rank, is_read = other.rank == self.actor.rank, _is_load(action) or _is_load(earlier.action)
            is_polled = is_read and "updat" in action + earlier.action
            if is_one_rank and is_polled:
                continue
            why = [_PLAIN] if is_polled else self._cause(number, lanes, action)
            race = self._race(f"{action} {name(int(np.flatnonzero(lanes)[0]))}", number, *why)
            if not is_one_rank or is_same is None or not is_same[lanes].all():
                raise race
            text = f"same value stored, which is harmless, and work done twice: {race}"
            self._warn(text, frozenset([place(), earlier.where]))

    def _race(self, action: str, number: int, *why: str | Said) -> Race:
        """Return what the program that runs does, and an event that nothing orders before that."""
        earlier, me = self._events[number], self.actor
        other = self._everybody[earlier.by]
        verb, at_scope, scope = earlier.action.partition(" at ")
        here, there = at(self._place(), "    "), at(earlier.where, "    ")
        does = f"  {other} has {verb} it{at_scope}{scope}"
        race = Race(f"{Race.kind}: {me} {action}", here, me.line or "", does, there, other.line or "", *why)
        race.other = other.program, earlier.where
        return race

    def _cause(self, number: int, lanes: np.ndarray, action: str) -> list[str | Said]:
        """Return why an event of another program is not known to come before what the program does."""
        other, earlier = self._everybody[self._events[number].by], self._events[number].action
        if (self.actor.line or other.line) is not None and "updat" in action + earlier:
            return [_RESET]
        if action == "updates" and earlier.startswith("stored"):
            return [_STORED]
        if other.rank == self.actor.rank:
            return [_ONE_RANK]
        if _is_load(self._events[number].action):
            if lanes.shape == self._is_first.shape and self._is_first[lanes].all():
                looked = self._looked[other.rank] | other.looked
                early = [sent for element, sent in self.actor.sent.items() if element in looked]
                if early:
                    return [f"  it has signalled before that: {_LAST}", self._at(early[-1])]
                return [f"  it was loaded too early: {other} {_NO_WAIT.format(self.actor.rank)}"]
            return ["  it is used again before it was read: wait for a signal that the reader sends after that"]
        looked = self._looked[self.actor.rank] | self.actor.looked
        for element, seen in sorted(looked.items(), key=lambda one: -one[1].event):
            sent = other.sent.get(element) or self._signals.get(element, {}).get(other.rank)
            if sent is None:
                continue
            if not sent.orders:
                remedy = f'  rank {other.rank} signals without sem="release": what it stored before may come later'
                return [remedy, self._at(sent)]
            if not seen.orders:
                remedy = '  the wait has no sem="acquire" at scope="sys": what it loads may be older than the signal'
                return [remedy, self._at(seen)]
            if sent.event < number:
                remedy = f"  the signal that it waits for was sent before that: {_LAST}"
                return [remedy, self._at(sent)]
        return [f"  it {_NO_WAIT.format(other.rank)}"]

    def _at(self, signal: Touched) -> Said:
        return at(self._events[signal.event].where, "    ")


def _is_load(action: str) -> bool:
    return action.startswith("load")
