"""One function against another on the same inputs, in turns: A B A B.

A run is some calls, each on a slot that has just been rewritten, with the cache full of other things. Which slots, a
worker is told at the start (grading/start.py), and the clock stops when it says that it is over. The way there and back
is not theirs: it is what the run of somebody who is trusted takes beyond what CUDA's events say, measured before a
submission is let in.

At the finish the inputs are poisoned, and the worker is asked for the results of calls that nobody could foresee: they
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
from torch import Tensor

from assignment.grading.start import Referee
from assignment.timing.memory import Memory, aligned
from assignment.timing.roof import Roof
from assignment.timing.twins import twins_of
from assignment.timing.workloads import Workload

# A request of a kind about a workload, with more in its header and a referee if it is timed: reply and seconds.
Ask = Callable[..., tuple[dict[str, Any], float]]
LOOKED_AT = 4  # results, of a run
MOST_GIVEN, GIVEN_BYTES = 16, 1 << 30  # that are handed over: the more, the less it matters when one hand-over is slow
MIN_SLOTS, USUAL_SLOTS, MAX_SLOTS = 4, 16, 256  # calls of a run
TAKE_S = 0.01  # a run, at least: more calls where one is short
ROUGHLY = Roof(4e12, 5e14)  # any GPU
STRICT = 0.5  # of the runs: one of the results is held to the rule of all tests
LATE = 0.1  # of a call's time: what handing over may take longer
BUSY = 0.1  # of what poisoning takes: how much longer, while nobody but the grader's own has anything to do
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
    """What the way there and back takes, and poisoning, in seconds, while no submission is there."""

    way_s: float
    poison_s: float


@dataclass
class Record:
    """What the rounds of one contestant have shown, in seconds."""

    runs: list[float] = field(default_factory=list)  # all calls, by our clock
    events: list[float] = field(default_factory=list)  # a call, by the worker's events
    after: list[float] = field(default_factory=list)  # what overwriting the inputs took longer than on an idle GPU
    given: list[float] = field(default_factory=list)  # handing over a result
    margins: list[float] = field(default_factory=list)  # the largest error over its bound
    twins: set[str] = field(default_factory=set)  # libraries that return the same, bit for bit


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
    twins: dict[str, set[str]] = field(default_factory=dict)  # of each contestant, libraries that return the same


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
            track.round(contestant, records[contestant.name], quiet.poison_s)
    trusted = [contestant.name for contestant in contestants if contestant.is_trusted]
    return judged(records, trusted, quiet, track.n_slots)


def listen(workload: Workload, trusted: Contestant, memory: Memory) -> Quiet:
    """What is to be known before a submission is let in."""
    track, record = Track(workload, memory), Record()
    track.warm_up(trusted)
    poison_s = statistics.median(memory.poison() for _ in range(QUIET_ROUNDS))
    for _ in range(QUIET_ROUNDS):
        track.round(trusted, record, poison_s)
    ways = [run_s - track.n_slots * event_s for run_s, event_s in zip(record.runs, record.events, strict=True)]
    return Quiet(statistics.median(ways), poison_s)


def judged(records: dict[str, Record], trusted: Sequence[str], quiet: Quiet, n_calls: int) -> Race:
    """What the records of runs of so many calls mean."""
    given = [seconds for name in trusted for seconds in records[name].given]
    given_s = statistics.median(given) if given else math.inf
    calls: dict[str, list[float]] = {}
    timings = {}
    for name, record in records.items():
        calls[name] = [(seconds - quiet.way_s) / n_calls for seconds in record.runs]
        if name not in trusted:
            calls[name] = in_full(calls[name], record, given_s, n_calls)
        low, middle, high = statistics.quantiles(calls[name], n=4)
        timings[name] = Timing(middle, low, high, statistics.median(record.events), max(record.margins, default=0.0))
    first = next(iter(records))
    ratios = {}
    for name in records:
        low, middle, high = statistics.quantiles([b / a for a, b in zip(calls[first], calls[name], strict=True)], n=4)
        ratios[name] = (middle, low, high)
    is_busy = any(statistics.median(records[name].after) > BUSY * quiet.poison_s for name in trusted)
    return Race(timings, ratios, is_busy, {name: record.twins for name, record in records.items()})


def in_full(calls: list[float], record: Record, given_s: float, n_calls: int) -> list[float]:
    """The seconds a call of each run, with what was done after the worker had said that it was over."""
    calls = [call_s + after_s / n_calls for call_s, after_s in zip(calls, record.after, strict=True)]
    later = [call_s + seconds - given_s for call_s, seconds in zip(calls, record.given, strict=True)]
    is_late = statistics.median(later) > (1 + LATE) * statistics.median(calls)
    return [max(call_s, SHORTEST_S) for call_s in (later if is_late else calls)]


class Track:
    """The slots of one workload in the grader's memory."""

    def __init__(self, workload: Workload, memory: Memory, n_slots: int | None = None) -> None:
        """n_slots: by default as many as timing asks for."""
        self._workload, self._memory = workload, memory
        self._chance = random.Random(secrets.randbits(128))
        self._seeds: list[int] = []
        slot, outputs = [*workload.inputs.values()], [*workload.outputs.values()]
        slot_nbytes, outputs_nbytes = (sum(aligned(spec.nbytes) for spec in specs) for specs in (slot, outputs))
        n_given = MOST_GIVEN if MOST_GIVEN * outputs_nbytes <= GIVEN_BYTES else LOOKED_AT
        room = (memory.nbytes - n_given * outputs_nbytes) // slot_nbytes
        wanted = min(
            MAX_SLOTS, max(USUAL_SLOTS, int(TAKE_S / ROUGHLY.least_seconds(workload.nbytes, workload.operations)))
        )
        self.n_slots = n_slots or min(wanted, room)
        if self.n_slots < (n_slots or MIN_SLOTS):
            raise ValueError(f"{workload.function}: {MIN_SLOTS} slots of {slot_nbytes:,} bytes do not fit")
        tensors, places = memory.lay_out([slot] * self.n_slots + [outputs] * n_given)
        self._slots, self._outputs = tensors[: self.n_slots], tensors[self.n_slots :]
        self._slot_places, self._output_places = places[: self.n_slots], places[self.n_slots :]

    def warm_up(self, contestant: Contestant) -> float:
        """Compilation, tuning, and the allocator's first blocks; returns the seconds of a run."""
        self.hold(contestant)
        return min(self.round(contestant, Record(), math.inf) for _ in range(2))

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

    def round(self, contestant: Contestant, record: Record, poison_s: float) -> float:
        """A run of all slots; returns its seconds. Poisoning takes `poison_s` on an idle GPU."""
        order = self._chance.sample(range(self.n_slots), self.n_slots)

        def ready() -> list[int]:
            self.fill()
            self._memory.settle()
            return order

        def over() -> None:
            record.after.append(self._memory.poison_until_idle(poison_s))

        reply, seconds = contestant.ask("run", self._workload, {}, Referee(ready, over))
        record.runs.append(seconds)
        record.events.append(reply["events_s"] / self.n_slots)
        if contestant.gives:
            self._take(contestant, record, order)
        return seconds

    def _take(self, contestant: Contestant, record: Record, order: list[int]) -> None:
        """Have results of a run handed over, and look at some of them."""
        positions = self._chance.sample(range(self.n_slots), min(self.n_slots, len(self._outputs)))
        places = self._chance.sample(range(len(positions)), LOOKED_AT)
        came: list[list[Tensor]] = []
        referee = Referee(lambda: positions, lambda: came.extend(self.given(places)))
        _, seconds = contestant.ask("give", self._workload, {}, referee)
        record.given.append(seconds / len(positions))
        if not contestant.is_trusted:
            strict = self._chance.randrange(LOOKED_AT) if self._chance.random() < STRICT else None
            slots = [order[positions[place]] for place in places]
            record.margins.append(self.check(came, slots, strict, record.twins))

    def given(self, places: Sequence[int]) -> list[list[Tensor]]:
        """What has been handed over there, where no worker sees it."""
        return [[result.clone() for result in self._outputs[place]] for place in places]

    def check(
        self,
        given: Sequence[Sequence[Tensor]],
        slots: Sequence[int],
        strict: int | None = None,
        twins: set[str] | None = None,
    ) -> float:
        """Look at the results that were given for these slots; the largest margin.

        strict: which of them to look at closely; to `twins` go the names of libraries that return the same.
        """
        inputs = [torch.empty_like(tensor) for tensor in self._slots[0]]  # where no worker sees them
        margins = []
        for i, (slot, results) in enumerate(zip(slots, given, strict=True)):
            self._workload.fill(inputs, self._memory, torch.Generator().manual_seed(self._seeds[slot]))
            margins.append(self._workload.pick(inputs, self._chance, is_strict=i == strict)(results))
            if i == strict and twins is not None:
                twins |= twins_of(self._workload, inputs, results)
        return max(margins)
