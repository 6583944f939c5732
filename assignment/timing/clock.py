"""One function against another on the same inputs, in turns: A B A B.

A run is some calls, each on a slot that has just been rewritten, with the cache full of other things. The way there and
back takes a millisecond, and is not theirs: it is what K calls, taken twice, take beyond 2K calls of somebody who is
trusted. (Of a submission K calls are not asked: by making them slow it would make the difference small.)

Afterwards the inputs are poisoned, and the worker is asked for the results of calls that nobody could foresee: they
must be right, and they must be there. Where handing them over takes longer than it takes the opponent, the calls were
not over when the worker said so, and the difference is added. While the slots are rewritten the GPU has nothing else to
do: where that takes long, something of the submission's is running ahead of the clock.
"""

import random
import secrets
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from assignment.timing.memory import Memory, aligned
from assignment.timing.roof import Roof
from assignment.timing.workloads import Workload

# A request of a kind about a workload, with more in its header: the reply, and the seconds that it took by our clock.
Ask = Callable[[str, Workload, dict[str, Any]], tuple[dict[str, Any], float]]
GIVEN = 4  # results looked at, of a run
MIN_SLOTS, USUAL_SLOTS, MAX_SLOTS = 4, 16, 256  # 2K
TAKE_S = 0.01  # 2K calls, at least: more of them where one is short
ROUGHLY = Roof(4e12, 5e14)  # any GPU
STRICT = 0.5  # of the runs: one of the results is held to the rule of all tests
BUSY = 1.5  # times what rewriting the slots takes while nothing else runs
LATE = 0.1  # of a call's time: what a handing over may differ by


@dataclass(frozen=True)
class Contestant:
    """Who has a function that is timed."""

    name: str
    ask: Ask
    is_trusted: bool = False  # one of ours; the results of others must be right
    gives: bool = True  # False for one that only stands for an amount of work
    is_typical: bool = False  # it is started as a submission's functions are


@dataclass
class Record:
    """What the rounds of one contestant have shown, in seconds."""

    runs: list[float] = field(default_factory=list)  # 2K calls, by our clock
    overheads: list[float] = field(default_factory=list)  # what no call takes, of who is trusted
    events: list[float] = field(default_factory=list)  # a call, by the worker's events
    fills: list[float] = field(default_factory=list)  # rewriting the slots, by events of our own
    given: list[float] = field(default_factory=list)  # handing over GIVEN results
    margins: list[float] = field(default_factory=list)  # the largest error over its bound


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the median of the rounds, and their quartiles."""

    seconds: float
    low: float
    high: float
    events_s: float  # the median by the second witness
    margin: float

    @property
    def disagreement(self) -> float:
        """Of the two witnesses, as a share of the time."""
        return abs(self.events_s - self.seconds) / self.seconds


class BusyBetween(Exception):
    """The GPU was at work while it should have been idle."""


@dataclass(frozen=True)
class Race:
    timings: dict[str, Timing]
    ratios: dict[str, tuple[float, float, float]]  # seconds over those of the first contestant: median, quartiles


def race(workload: Workload, contestants: Sequence[Contestant], memory: Memory, rounds: int) -> Race:
    """Time the contestants in turns; one of them is typical.

    Raises:
        BusyBetween: the first contestant's worker uses the GPU before it is asked to.
        compare.Mismatch: a result is wrong.
        Whatever a contestant's ask() raises.
    """
    track = Track(workload, memory)
    for contestant in contestants:
        track.warm_up(contestant)
    return race_on(track, contestants, rounds)


def race_on(track: "Track", contestants: Sequence[Contestant], rounds: int) -> Race:
    """The same with contestants that are warm."""
    records = {contestant.name: Record() for contestant in contestants}
    for _ in range(rounds):
        for contestant in random.SystemRandom().sample(contestants, len(contestants)):
            track.round(contestant, records[contestant.name])
    typical = next(contestant.name for contestant in contestants if contestant.is_typical)
    return judged(records, typical, track.n_slots)


def judged(records: dict[str, Record], typical: str, n_calls: int) -> Race:
    """What the records of runs of so many calls mean. Of who is not trusted, the way takes as long as of `typical`."""
    idle_s = statistics.median(records[typical].fills)
    for name, record in records.items():
        times = statistics.median(record.fills) / idle_s
        if times > BUSY and not record.overheads:  # who is trusted is only unlucky
            raise BusyBetween(f"for {name}, rewriting the inputs takes {times:.1f} times as long as it should")
    given = {name: statistics.mean(record.given) for name, record in records.items() if record.given}
    calls: dict[str, list[float]] = {}
    timings = {}
    for name, record in records.items():
        overhead = max(0.0, statistics.median(record.overheads or records[typical].overheads))
        calls[name] = [(seconds - overhead) / n_calls for seconds in record.runs]
        late = (given[name] - min(given.values())) / GIVEN if name in given else 0.0
        if late > LATE * statistics.median(calls[name]):
            calls[name] = [seconds + late for seconds in calls[name]]
        low, middle, high = statistics.quantiles(calls[name], n=4)
        timings[name] = Timing(middle, low, high, statistics.median(record.events), max(record.margins, default=0.0))
    first = next(iter(records))
    ratios = {}
    for name in records:
        low, middle, high = statistics.quantiles([b / a for a, b in zip(calls[first], calls[name], strict=True)], n=4)
        ratios[name] = (middle, low, high)
    return Race(timings, ratios)


class Track:
    """The slots of one workload in the grader's memory."""

    def __init__(self, workload: Workload, memory: Memory, n_slots: int | None = None) -> None:
        """n_slots: by default as many as timing asks for."""
        self._workload, self._memory = workload, memory
        self._chance = random.Random(secrets.randbits(128))
        self._generator = torch.Generator().manual_seed(secrets.randbits(63))
        slot, outputs = [*workload.inputs.values()], [*workload.outputs.values()]
        slot_nbytes, outputs_nbytes = (sum(aligned(spec.nbytes) for spec in specs) for specs in (slot, outputs))
        room = (memory.nbytes - GIVEN * outputs_nbytes) // slot_nbytes
        wanted = min(
            MAX_SLOTS, max(USUAL_SLOTS, int(TAKE_S / ROUGHLY.least_seconds(workload.nbytes, workload.operations)))
        )
        self.n_slots = n_slots or min(wanted, room) // 2 * 2
        if self.n_slots < (n_slots or MIN_SLOTS):
            raise ValueError(f"{workload.function}: {MIN_SLOTS} slots of {slot_nbytes:,} bytes do not fit")
        tensors, places = memory.lay_out([slot] * self.n_slots + [outputs] * GIVEN)
        self._slots, self._outputs = tensors[: self.n_slots], tensors[self.n_slots :]
        self._slot_places, self._output_places = places[: self.n_slots], places[self.n_slots :]

    def warm_up(self, contestant: Contestant) -> None:
        """Compilation, tuning, and the allocator's first blocks."""
        self.hold(contestant)
        for _ in range(2):
            self._run(contestant, self.n_slots, Record())

    def hold(self, contestant: Contestant) -> None:
        """Have the worker see the slots; each holds some values."""
        self._fill()
        held = {"memory": self._memory.handle(), "slots": self._slot_places, "outputs": self._output_places}
        contestant.ask("hold", self._workload, held)

    def _fill(self) -> None:
        for slot in self._slots:
            self._workload.fill(slot, self._memory, self._generator)

    def round(self, contestant: Contestant, record: Record) -> None:
        seconds, events_s = self._run(contestant, self.n_slots, record)
        record.runs.append(seconds)
        record.events.append(events_s / self.n_slots)
        if contestant.is_trusted:
            half_s, _ = self._run(contestant, self.n_slots // 2, record)
            record.overheads.append(2 * half_s - seconds)

    def _run(self, contestant: Contestant, n_calls: int, record: Record) -> tuple[float, float]:
        """The seconds of so many calls on new values, by our clock and by the worker's events."""
        order = self._chance.sample(range(self.n_slots), n_calls)
        record.fills.append(self._memory.rewrite(self._fill))
        positions = self._chance.sample(range(n_calls), min(GIVEN, n_calls))
        checked = [] if contestant.is_trusted else positions
        strict = self._chance.randrange(GIVEN) if self._chance.random() < STRICT else None
        checks = [
            self._workload.pick(self._slots[order[position]], self._chance, is_strict=i == strict)
            for i, position in enumerate(checked)
        ]
        reply, seconds = contestant.ask("run", self._workload, {"order": order, "kept": contestant.gives})
        self._memory.poison()
        if contestant.gives:
            record.given.append(contestant.ask("give", self._workload, {"positions": positions})[1])
        record.margins += [check(results) for check, results in zip(checks, self._outputs, strict=False)]
        return seconds, reply["events_s"]
