"""The programs of a launch as coroutines: which of them runs, and which sleeps until an element changes.

In the first run each runs to its end before the next one starts, but for those that ask for an element again and again:
they sleep until another program changes it. Where races.py has marked elements that programs touch together, all of
them run once more, under a schedule that the call's seed draws: they change places at each access of such an element.
"""

import contextvars
import random
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from assignment.protocol.said import Said

from .faults import Deadlock, OutOfBounds, Place, Program, Race, at, place
from .races import RaceEvent
from .stores import Stores
from .undefined import gather

_MULTIPROCESSORS, _PROGRAMS, _WARPS = 132, 32, 64  # of an H200, and the most of both that one of them holds at once
_RESIDENT = 132  # that a schedule begins with
_CONTENDED = 16  # where they sleep already when they run one by one, or exchange
_TRIES = 20_000  # of programs that all sleep, before they are taken to do so for ever
_OFTEN = 256  # times that programs meet at one element and line, after which they seldom change places there
_TOO_MANY = 10_000_000  # times that programs change places, after which they are taken to do so for ever
_LOOKS = (0.1, 0.9)  # shares, of which one is drawn, of the steps at which one that sleeps looks again,
_MOST_LOOKS = 6  # so many times for each program
_LET_GO_FIRST = 0.9  # the share of steps of a schedule at which those who were woken do so
_ANYWHERE = 1 << 64
_SHOWN = 3  # programs of a deadlock
_CHANGES = 0.03  # the share of points at which a schedule by priorities changes one, after some first ones


class Schedule(NamedTuple):
    """How programs meet."""

    policy: str
    is_weak: bool  # whether stores wait in a buffer until their program releases something


IN_ORDER = Schedule("in order", is_weak=False)
SCHEDULES = (
    Schedule("random", is_weak=True),
    Schedule("in turns", is_weak=True),
    Schedule("by priorities", is_weak=True),
    Schedule("random", is_weak=False),
)

_nowhere = partial(np.zeros, 0, np.uint64)


@dataclass(eq=False)
class Running:
    """A program that has begun."""

    program: Program
    number: int  # from 1, in the order in which they begin
    coroutine: greenlet
    priority: float
    has_slept: bool = False
    n_looks: int = 0  # times that it was woken though nothing had changed
    asked: dict[int, int] = field(default_factory=dict)  # by addresses: what it found there when it asked last
    sleeps_for: tuple[int, int] = (0, 0)  # while it sleeps: equal for the same addresses and what lies there,
    waits_for: np.ndarray = field(default_factory=_nowhere)  # these addresses,
    reach: tuple[int, int] = (0, 0)  # the first and the last of them
    found: np.ndarray = field(default_factory=_nowhere)  # there, as it fell asleep
    where: Place = ()  # it fell asleep
    is_tried: bool = False  # it was woken though nothing has changed
    variables: Hashable = None  # as it fell asleep then, and how much had changed
    stuck_at: int = -1  # the number of changes at which it has come back to the same place with the same variables


class FirstRace:
    """What becomes of faults: after a race the other programs still run.

    One that goes out of bounds is reported first, since both may come from one missing bound.
    """

    def __init__(self) -> None:
        self.race: Race | None = None

    def run(self, program: Callable[[], object]) -> None:
        """Run a program, or a part of it."""
        try:
            program()
        except Race as fault:
            self.race = self.race or fault
        except OutOfBounds:
            raise
        except Exception:
            if self.race is None:
                raise

    def tell(self) -> None:
        """Raise it."""
        if self.race is not None:
            raise self.race


class Programs:
    """The programs of one run of a launch."""

    def __init__(
        self,
        leave: Callable[[], Callable[[], None]],
        variables: Callable[[], Hashable],
        awaited: Callable[[int, Collection[Place]], tuple[str, RaceEvent | None]],
        n_warps: int,
        schedule: Schedule = IN_ORDER,
        seed: str = "",
    ) -> None:
        """Begin none.

        Args:
            leave: returns what goes on with the program that runs, after another one has run.
            variables: returns those of the program that runs, and where it is.
            awaited: returns the name of the element at an address, and who changed it last, but for those who wait.
            n_warps: of a program, by which a GPU holds more or fewer of them at once.
            schedule, seed: in which order they run.
        """
        self._at_once = self.held(n_warps)
        self._leave, self._variables, self._awaited = leave, variables, awaited
        self.schedule, self._rng = schedule, random.Random(seed)
        self.stores = Stores(self._rng) if schedule.is_weak else None
        self._live: list[Running] = []
        self._awake: list[Running] = []
        self._woken: list[Running] = []  # and have not run since: they let the others go first
        self._asleep: list[Running] = []
        self._following: Running | None = None  # if one that lets others go first has drawn it
        self._n_begun = self._n_changes = self._n_tries = self._n_switches = 0
        self._faults = FirstRace()
        self.has_slept = False
        self._looks = 0.0 if schedule == IN_ORDER else self._rng.choice(_LOOKS)
        self._met: dict[Hashable, int] = {}

    @staticmethod
    def held(n_warps: int) -> int:
        """Return how many programs of so many warps a GPU holds at once."""
        return _MULTIPROCESSORS * max(1, min(_PROGRAMS, _WARPS // n_warps))

    def run(self, ids: Iterable[Program], body: Callable[[Program], None], is_contended: bool = False) -> None:
        """Run all programs of these ids to their end."""
        self._hub, self._body, self._waiting = getcurrent(), body, deque(ids)
        most = _CONTENDED if is_contended else _RESIDENT
        try:
            while self._live or self._waiting:
                while self._waiting and self.schedule != IN_ORDER and len(self._live) < most:
                    self._begin()
                self.now, self._following = self._following or self._next(), None
                self._faults.run(self._go_on)
            if self.stores:
                self.stores.end()
            self._faults.tell()
        finally:
            for running in self._live:
                if running.coroutine:
                    running.coroutine.throw(GreenletExit)

    def _begin(self) -> None:
        program = self._waiting.popleft()
        self._n_begun += 1
        coroutine = greenlet(self._body, self._hub)
        coroutine.gr_context = contextvars.copy_context()  # NumPy's handling of floating point errors
        running = Running(program, self._n_begun, coroutine, self._rng.random())
        self._live.append(running)
        self._awake.append(running)

    def _go_on(self) -> None:
        running = self.now
        self._n_switches += 1
        try:
            running.coroutine.switch(running.program)
        finally:
            if running.coroutine.dead:
                self._live.remove(running)
                self._awake.remove(running)

    def _next(self) -> Running:
        while not self._awake and not self._woken:
            self._wake_one()
        if self._n_switches > _TOO_MANY:
            raise self._deadlock()
        if self._looks and self._rng.random() < self._looks:
            self._look_again()
        is_in_order = self.schedule == IN_ORDER
        if is_in_order and not self._awake:
            self._begin_more(1)
        first = self._awake and (is_in_order or self._rng.random() < _LET_GO_FIRST)
        among = self._awake if first else self._woken + self._awake
        if self.schedule.policy == "random":
            one = among[int(self._rng.random() * len(among))]
        elif self.schedule.policy == "by priorities":
            one = max(among, key=attrgetter("priority"))
        else:
            one = among[0]
        if not first or self.schedule.policy == "in turns":
            (self._woken if one in self._woken else self._awake).remove(one)
            self._awake.append(one)
        return one

    def _begin_more(self, most: int) -> int:
        """Let more programs begin, as far as a GPU holds them; returns how many."""
        n = min(most, len(self._waiting), self._at_once - len(self._live))
        for _ in range(n):
            self._begin()
        return n

    def _wake_one(self) -> None:
        """Wake one where all sleep; or let a store be seen, or as many programs begin as there are."""
        if self.stores and self.stores.let_one_be_seen():
            self.changed()
        elif not self._begin_more(1 if self.schedule == IN_ORDER else len(self._live)):
            loose = [running for running in self._asleep if running.stuck_at != self._n_changes]
            self._n_tries += 1
            if not loose or self._n_tries > _TRIES:
                self._faults.tell()
                raise self._deadlock()
            loose[0].is_tried = True
            self._wake(loose[:1], self._woken)

    def _look_again(self) -> None:
        """Wake one that sleeps though nothing has changed: on a GPU it looks all the time, and may give up."""
        if self._asleep:
            one = self._rng.choice(self._asleep)
            one.n_looks += 1
            if one.n_looks <= _MOST_LOOKS:
                self._wake([one], self._awake)  # it does not wait for others

    def _wake(self, sleepers: list[Running], to: list[Running]) -> None:
        gone = set(sleepers)
        self._asleep = [running for running in self._asleep if running not in gone]
        to += sleepers

    # what the programs call

    def _switch(self) -> None:
        go_on = self._leave()
        self._hub.switch()
        go_on()

    def meet(self, where: Hashable = None) -> None:
        """Let others go first: the program comes to an element that they touch too.

        `where`: the element and the line; where programs have met often they seldom let others go first.
        """
        self._met[where] = n = self._met.get(where, 0) + 1
        is_alone = not self._woken and len(self._awake) == 1
        looks = self._asleep and self._rng.random() < self._looks
        if (is_alone and not looks) or (n > _OFTEN and self._rng.random() * n > _OFTEN):
            return
        if self.schedule.policy == "by priorities" and self._rng.random() < max(_CHANGES, 0.5 / n):
            self.now.priority = self._rng.random() - 1.0
        following = self._next()
        if following is not self.now:
            self._following = following
            self._switch()

    def asks_again(self, addresses: np.ndarray) -> bool:
        """Return whether the program has asked for these elements before."""
        return hash(addresses.tobytes()) in self.now.asked

    def asked(self, addresses: np.ndarray, values: np.ndarray, has_changed: bool = False) -> None:
        """Note what the program has found, unless it has changed it; the second time it sleeps until others do."""
        me, key, value = self.now, hash(addresses.tobytes()), hash(values.tobytes())
        if has_changed or me.asked.get(key) != value:
            me.asked[key] = 0 if has_changed else value
            return
        self.has_slept = me.has_slept = True
        me.sleeps_for = key, value
        me.waits_for, me.found, me.where = addresses.ravel(), values.ravel(), place()
        me.reach = self._reach(addresses)
        if me.is_tried:
            now = self._n_changes, self._variables()  # after a change another turn may end otherwise
            me.stuck_at = self._n_changes if now == me.variables else -1
            me.variables, me.is_tried = now, False
        self._awake.remove(me)
        self._asleep.append(me)
        self._switch()

    def changed(self, addresses: np.ndarray | None = None) -> None:
        """Wake those who sleep for what the program has changed: at these addresses, or anywhere."""
        self._n_changes += 1
        if self._asleep:
            first, last = (0, _ANYWHERE) if addresses is None else self._reach(addresses)
            near = [one for one in self._asleep if one.reach[0] <= last and one.reach[1] >= first]
            wakes = {one.sleeps_for for one in {one.sleeps_for: one for one in near}.values() if _is_other(one)}
            self._wake([one for one in near if one.sleeps_for in wakes], self._woken)

    @staticmethod
    def _reach(addresses: np.ndarray) -> tuple[int, int]:
        """Return the first and the last of these addresses."""
        return int(addresses.min()), int(addresses.max())

    def _deadlock(self) -> Deadlock:
        places = {one.where for one in self._asleep}
        parts: list[str | Said] = [f"{Deadlock.kind}: {len(self._asleep)} programs wait, and nothing changes any more"]
        for one in self._asleep[:_SHOWN]:
            name, by = self._awaited(int(one.waits_for[0]), places)
            parts += [f"  program {one.program} waits for {name}, which stays {one.found[0]}", at(one.where, "    ")]
            if by is not None:
                parts += [f"    such are changed by program {by.program}, who does it no more", at(by.where, "      ")]
        if self._waiting:
            parts.append(f"  a GPU holds at most {self._at_once:,} at once: {len(self._waiting):,} more have not begun")
        return Deadlock(*parts)


def _is_other(one: Running) -> bool:
    """Return whether something else lies where a program waits than it has found."""
    return gather(one.waits_for, one.found.dtype).tobytes() != one.found.tobytes()
