"""One function against another on the same inputs, in turns: A B A B.

A run is some calls, each on a slot that has just been rewritten, with the cache full of other data:
no call sees values that an earlier one has seen. Each contestant's process times itself, since it
holds no host code but ours (calling/timed.py). Then the inputs are poisoned, and the results of
randomly chosen calls are handed over: they must be right, for inputs that are generated again where
no contestant sees them.
"""

import random
import secrets
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from assignment.judge.replies import Ok
from assignment.operators.workloads import Workload
from assignment.protocol.requests import Give, Hold, TakeTurns, Timed
from assignment.timing.gpu_buffer import BufferMemory, aligned
from assignment.timing.roof import Roof

Kind = Callable[..., Timed]  # of request, for a function and its options
LOOKED_AT = 6  # results, of a run
# calls of a run; more make it longer, and a GPU at its power limit slows down whoever is faster. All that they launch
# waits for the GPU, in a queue of some thousand.
MIN_SLOTS, USUAL_SLOTS, MAX_SLOTS = 4, 8, 128
TAKE_S = 0.01  # a run, at least: more calls where one is short
ROUGHLY = Roof(4e12, 5e14)  # any GPU
STRICT = 0.75  # of the runs: one of the results is held to the rule of all tests
TRIES = 3  # at a run in which the GPU begins after all is launched: host code that waits for the GPU never has one
SLOW_S = 0.5  # a call that takes so long need not be repeated often
STEADY = 0.05  # the quartiles of the ratios are no further apart, of their median; else more rounds follow
MORE = 3  # times as many rounds at the most: a GPU that something else kept busy for a while


@dataclass(frozen=True)
class Contestant:
    """A process with a function to be timed."""

    name: str
    ask: Callable[[Kind, Workload], Ok]
    is_trusted: bool = False  # one of ours; the results of others must be right


@dataclass
class Record:
    """The measurements of one contestant's rounds."""

    calls: list[float] = field(default_factory=list)  # seconds a call, of each round
    host: list[float] = field(default_factory=list)  # and until it was launched
    margins: list[float] = field(default_factory=list)  # the largest error over its bound


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median of the rounds, and their quartiles."""

    seconds: float
    low: float
    high: float
    margin: float
    host_s: float = 0.0  # until a call is launched


@dataclass(frozen=True)
class RaceTimes:
    timings: dict[str, Timing]
    # seconds over those of the first contestant: median, quartiles
    ratios: dict[str, tuple[float, float, float]]


def race(workload: Workload, contestants: Sequence[Contestant], memory: BufferMemory, rounds: int) -> RaceTimes:
    """Time the contestants in turns.

    Raises:
        compare.Mismatch: a result is wrong.
        Whatever a contestant's ask() raises.
    """
    track = Track(workload, memory)
    longest_s = max(track.warm_up(contestant) for contestant in contestants)
    return race_on(track, contestants, rounds if longest_s < SLOW_S else 3)


def race_on(track: "Track", contestants: Sequence[Contestant], rounds: int) -> RaceTimes:
    """Time contestants in turns that are warm already, in more turns where their ratios are not steady.

    Whether there are more depends on the spread alone, and all rounds count.
    """
    records = {contestant.name: Record() for contestant in contestants}
    for n in range(MORE * rounds):
        if n >= rounds and is_steady(judged(records)):
            break
        for contestant in random.SystemRandom().sample(contestants, len(contestants)):
            track.round(contestant, records[contestant.name])
    return judged(records)


def is_steady(race: RaceTimes) -> bool:
    """Return whether the quartiles of all ratios are close together."""
    return all(high - low <= STEADY * middle for middle, low, high in race.ratios.values())


def judged(records: dict[str, Record]) -> RaceTimes:
    """Return the result of a race from its records."""
    timings = {}
    for name, record in records.items():
        low, middle, high = statistics.quantiles(record.calls, n=4)
        host_s = statistics.median(record.host)
        timings[name] = Timing(middle, low, high, max(record.margins, default=0.0), host_s)
    first = next(iter(records.values())).calls
    ratios = {}
    for name, record in records.items():
        low, middle, high = statistics.quantiles([b / a for a, b in zip(first, record.calls, strict=True)], n=4)
        ratios[name] = (middle, low, high)
    return RaceTimes(timings, ratios)


class Track:
    """The slots of one workload in the grader's memory."""

    def __init__(self, workload: Workload, memory: BufferMemory, n_slots: int | None = None) -> None:
        """Lay out n_slots slots, by default as many as timing asks for."""
        self._workload, self._memory = workload, memory
        self._chance = random.Random(secrets.randbits(128))
        self._seeds: list[int] = []
        slot, outputs = [*workload.inputs.values()], [*workload.outputs.values()]
        slot_nbytes, outputs_nbytes = (sum(aligned(spec.nbytes) for spec in specs) for specs in (slot, outputs))
        room = (memory.nbytes - LOOKED_AT * outputs_nbytes) // slot_nbytes
        wanted = min(
            MAX_SLOTS, max(USUAL_SLOTS, int(TAKE_S / ROUGHLY.least_seconds(workload.nbytes, workload.operations)))
        )
        self.n_slots = n_slots or min(wanted, room)
        if self.n_slots < (n_slots or MIN_SLOTS):
            raise ValueError(f"{workload.function}: {MIN_SLOTS} slots of {slot_nbytes:,} bytes do not fit")
        tensors, places = memory.lay_out([slot] * self.n_slots + [outputs] * LOOKED_AT)
        self.slots, self._outputs = tensors[: self.n_slots], tensors[self.n_slots :]
        self._slot_places, self._output_places = places[: self.n_slots], places[self.n_slots :]

    def warm_up(self, contestant: Contestant) -> float:
        """Let a contestant compile, tune and allocate; returns the seconds of a call."""
        self.hold(contestant)
        record = Record()
        self.round(contestant, record)
        return record.calls[0]

    def hold(self, contestant: Contestant) -> None:
        """Have the worker map the slots, which hold some values."""
        self.fill()
        memory, slots, outputs = self._memory.handle(), self._slot_places, self._output_places
        contestant.ask(partial(Hold, memory=memory, slots=slots, outputs=outputs), self._workload)

    def fill(self) -> None:
        """Fill all slots with new values, from secret seeds."""
        self._seeds = [secrets.randbits(63) for _ in self.slots]
        for slot, seed in zip(self.slots, self._seeds, strict=True):
            self._workload.fill(slot, self._memory, torch.Generator().manual_seed(seed))

    def round(self, contestant: Contestant, record: Record) -> None:
        """Run all slots, and check some of the results."""
        order = self._chance.sample(range(self.n_slots), self.n_slots)
        for _ in range(TRIES):
            self.fill()
            self._memory.settle()
            reply = contestant.ask(partial(TakeTurns, turns=order), self._workload)
            if reply.is_held:
                break
        record.calls.append(reply.events_s)
        record.host.append(reply.host_s)
        self._memory.poison()
        if contestant.is_trusted:
            return
        positions = self._chance.sample(range(self.n_slots), min(self.n_slots, LOOKED_AT))
        contestant.ask(partial(Give, positions=positions), self._workload)
        given = [[result.clone() for result in results] for results in self._outputs[: len(positions)]]
        strict = self._chance.randrange(len(positions)) if self._chance.random() < STRICT else None
        record.margins.append(self.check(given, [order[position] for position in positions], strict))

    def check(self, given: Sequence[Sequence[Tensor]], slots: Sequence[int], strict: int | None = None) -> float:
        """Check the results given for slots, one closely; returns the largest margin."""
        # where no contestant sees them
        inputs = [torch.empty_like(tensor) for tensor in self.slots[0]]
        margins = []
        for i, (slot, results) in enumerate(zip(slots, given, strict=True)):
            self._workload.fill(inputs, self._memory, torch.Generator().manual_seed(self._seeds[slot]))
            margins.append(self._workload.pick(inputs, self._chance, is_strict=i == strict)(results))
        return max(margins)
