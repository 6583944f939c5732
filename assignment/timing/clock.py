"""One function against another on the same inputs, in turns: A B A B.

A run is some calls, each on a slot that has just been rewritten, with the cache full of other things. The way there and
back takes a millisecond, and is not theirs: it is what K calls, taken twice, take beyond 2K calls of somebody who is
trusted. Of a submission K calls are not asked: by making them slow it would make the difference small. Its way is that
of a function like it, measured before it is let in.

Afterwards the inputs are poisoned, and the worker is asked for the results of calls that nobody could foresee: they
must be there, and they must be right, for inputs that are made anew from where no worker sees them. What is not over
when the worker says so is seen twice, and added: poisoning takes longer than on an idle GPU, or handing over takes
longer than it takes others.
"""

import math
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
LATE = 0.1  # of a call's time: what handing over may take longer
AFTER = 0.05  # of what poisoning takes on an idle GPU: what it may take longer
SLOW_S = 2.0  # a run that takes so long need not be repeated often
QUIET_ROUNDS = 16
SHORTEST_S = 1e-9


@dataclass(frozen=True)
class Contestant:
    """Who has a function that is timed."""

    name: str
    ask: Ask
    is_trusted: bool = False  # one of ours; the results of others must be right
    gives: bool = True  # False for one of ours whose results have another form


@dataclass(frozen=True)
class Quiet:
    """What the way of a function like a submission's takes, and poisoning, in seconds, while nobody else is there."""

    way_s: float
    poison_s: float


@dataclass
class Record:
    """What the rounds of one contestant have shown, in seconds."""

    runs: list[float] = field(default_factory=list)  # 2K calls, by our clock
    ways: list[float] = field(default_factory=list)  # what no call takes, of who is trusted
    events: list[float] = field(default_factory=list)  # a call, by the worker's events
    poisons: list[float] = field(default_factory=list)  # overwriting all inputs after a run
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


@dataclass(frozen=True)
class Race:
    timings: dict[str, Timing]
    ratios: dict[str, tuple[float, float, float]]  # seconds over those of the first contestant: median, quartiles
    is_busy: bool  # something used the GPU while all contestants were waiting


def race(workload: Workload, contestants: Sequence[Contestant], memory: Memory, quiet: Quiet, rounds: int) -> Race:
    """Time the contestants in turns.

    Raises:
        compare.Mismatch: a result is wrong.
        Whatever a contestant's ask() raises.
    """
    track = Track(workload, memory)
    longest_s = max(track.warm_up(contestant) for contestant in contestants)
    return race_on(track, contestants, quiet, rounds if longest_s < SLOW_S else 3)


def race_on(track: "Track", contestants: Sequence[Contestant], quiet: Quiet, rounds: int) -> Race:
    """The same with contestants that are warm."""
    records = {contestant.name: Record() for contestant in contestants}
    for _ in range(rounds):
        for contestant in random.SystemRandom().sample(contestants, len(contestants)):
            track.round(contestant, records[contestant.name])
    return judged(records, quiet, track.n_slots)


def listen(workload: Workload, typical: Contestant, memory: Memory) -> Quiet:
    """What is to be known before a submission is let in."""
    track, record = Track(workload, memory), Record()
    track.warm_up(typical)
    for _ in range(QUIET_ROUNDS):
        track.round(typical, record)
    return Quiet(max(0.0, statistics.median(record.ways)), statistics.median(record.poisons))


def judged(records: dict[str, Record], quiet: Quiet, n_calls: int) -> Race:
    """What the records of runs of so many calls mean."""
    trusted = [record for record in records.values() if record.ways]
    given = [seconds for record in trusted for seconds in record.given]
    given_s = statistics.mean(given) if given else math.inf
    calls: dict[str, list[float]] = {}
    timings = {}
    for name, record in records.items():
        if record.ways:
            way_s = max(0.0, statistics.median(record.ways))
            calls[name] = [(seconds - way_s) / n_calls for seconds in record.runs]
        else:
            calls[name] = in_full(record, quiet, given_s, n_calls)
        low, middle, high = statistics.quantiles(calls[name], n=4)
        timings[name] = Timing(middle, low, high, statistics.median(record.events), max(record.margins, default=0.0))
    first = next(iter(records))
    ratios = {}
    for name in records:
        low, middle, high = statistics.quantiles([b / a for a, b in zip(calls[first], calls[name], strict=True)], n=4)
        ratios[name] = (middle, low, high)
    is_busy = any(statistics.median(record.poisons) > (1 + 2 * AFTER) * quiet.poison_s for record in trusted)
    return Race(timings, ratios, is_busy)


def in_full(record: Record, quiet: Quiet, given_s: float, n_calls: int) -> list[float]:
    """The seconds a call of who is not trusted, with what was done after the worker had said that it was over."""
    poison_s = beyond(record.poisons, quiet.poison_s, AFTER * quiet.poison_s)
    calls = [(seconds - quiet.way_s + poison_s) / n_calls for seconds in record.runs]
    late_s = beyond(
        [seconds / GIVEN for seconds in record.given], given_s / GIVEN, LATE * abs(statistics.median(calls))
    )
    return [max(seconds + late_s, SHORTEST_S) for seconds in calls]


def beyond(seconds: Sequence[float], usual_s: float, allowed_s: float) -> float:
    """How much more than usual; 0 where it is hardly more.

    The mean, or the median where that is more: that of the runs is of the rounds that are the most, too.
    """
    more = max(statistics.mean(seconds), statistics.median(seconds)) - usual_s
    return more if more > allowed_s else 0.0


class Track:
    """The slots of one workload in the grader's memory."""

    def __init__(self, workload: Workload, memory: Memory, n_slots: int | None = None) -> None:
        """n_slots: by default as many as timing asks for."""
        self._workload, self._memory = workload, memory
        self._chance = random.Random(secrets.randbits(128))
        self._seeds: list[int] = []
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

    def warm_up(self, contestant: Contestant) -> float:
        """Compilation, tuning, and the allocator's first blocks; returns the seconds of a run."""
        self.hold(contestant)
        return min(self._run(contestant, self.n_slots, Record())[0] for _ in range(2))

    def hold(self, contestant: Contestant) -> None:
        """Have the worker see the slots; each holds some values."""
        self.fill()
        held = {"memory": self._memory.handle(), "slots": self._slot_places, "outputs": self._output_places}
        contestant.ask("hold", self._workload, held)

    def fill(self) -> None:
        """New values in all slots, which only the seeds know."""
        self._seeds = [secrets.randbits(63) for _ in self._slots]
        for slot, seed in zip(self._slots, self._seeds, strict=True):
            self._workload.fill(slot, self._memory, torch.Generator().manual_seed(seed))

    def round(self, contestant: Contestant, record: Record) -> None:
        seconds, events_s = self._run(contestant, self.n_slots, record)
        record.runs.append(seconds)
        record.events.append(events_s / self.n_slots)
        if contestant.is_trusted:
            half_s, _ = self._run(contestant, self.n_slots // 2, record)
            record.ways.append(2 * half_s - seconds)

    def _run(self, contestant: Contestant, n_calls: int, record: Record) -> tuple[float, float]:
        """The seconds of so many calls on new values, by our clock and by the worker's events."""
        order = self._chance.sample(range(self.n_slots), n_calls)
        positions = self._chance.sample(range(n_calls), min(GIVEN, n_calls))
        self.fill()
        self._memory.settle()
        reply, seconds = contestant.ask("run", self._workload, {"order": order})
        record.poisons.append(self._memory.poison())
        if contestant.gives:
            record.given.append(contestant.ask("give", self._workload, {"positions": positions})[1])
        if not contestant.is_trusted:
            strict = self._chance.randrange(GIVEN) if self._chance.random() < STRICT else None
            record.margins.append(self.check([order[position] for position in positions], strict))
        return seconds, reply["events_s"]

    def check(self, slots: Sequence[int], strict: int | None = None) -> float:
        """Look at the results that were given for these slots, at one of them strictly; the largest margin."""
        given = [[result.clone() for result in results] for results in self._outputs[: len(slots)]]
        inputs = [torch.empty_like(tensor) for tensor in self._slots[0]]  # where no worker sees them
        margins = []
        for i, (slot, results) in enumerate(zip(slots, given, strict=True)):
            self._workload.fill(inputs, self._memory, torch.Generator().manual_seed(self._seeds[slot]))
            margins.append(self._workload.pick(inputs, self._chance, is_strict=i == strict)(results))
        return max(margins)
