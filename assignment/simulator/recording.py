"""What launches did, access by access, for a page: which lanes of which program at which line, and the tensors.

A `Recording` is held by the call (`calls.Call.recording`) and told of what happens by the watch of each launch. It
keeps what `model.py` writes down; whole programs are left out where there are too many accesses.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
import torch

from assignment.pytorch_private import disable_current_modes

from . import costs, maps
from .events import DOT, LOAD, NAN, STORE, UPDATE, Event, RecordedFinding, Table, runs_of, steps_of
from .faults import MemoryFault, Place, Program, place, shown
from .frames import innermost_frame
from .regions import NUMBER_AT, Region
from .trace import LaunchCost
from .undefined import are_unwritten, began_fresh

MAX_EVENTS = 40_000  # of all launches; programs beyond are counted, not kept
MAX_TILE_BYTES = 300_000  # of the first matrix products
MAX_LANES = 1_000_000  # of accesses that no strides describe, of all launches
_ACTIONS = {"loaded": LOAD, "stored": STORE, "updated": UPDATE}


@dataclass
class Tensor:
    """An argument of a launch, with its elements before and after it."""

    region: Region
    before: np.ndarray
    after: np.ndarray | None = None
    fresh: np.ndarray | None = None  # which elements nobody had written before the launch
    unwritten: np.ndarray | None = None  # and after it


@dataclass
class Recording:
    """All launches of a call."""

    launches: "list[RecordedLaunch]" = field(default_factory=list)
    findings: list[RecordedFinding] = field(default_factory=list)
    places: Table = field(default_factory=Table)
    lanes: Table = field(default_factory=Table)
    masks: Table = field(default_factory=Table)
    notes: Table = field(default_factory=Table)
    launched_at: tuple[str, int] | None = None  # file and line of the host code, where that is not running here
    n_events: int = 0
    n_lanes: int = 0
    tile_bytes: int = 0

    def begin(self, function: FunctionType, cost: LaunchCost) -> "RecordedLaunch":
        """Begin a launch of a kernel."""
        frame = innermost_frame()
        where = (shown(frame.f_code.co_filename), frame.f_lineno) if frame is not None else None
        self.launches.append(RecordedLaunch(self, len(self.launches), function, cost, self.launched_at or where))
        return self.launches[-1]

    def warned(self, text: str, about: Any) -> None:
        """Add a warning of the launch that runs; `about` is a place of the kernel, or a set with such."""
        if not self.launches:
            self.findings.append(RecordedFinding(text, False))
            return
        launch = self.launches[-1]
        places = [one for one in ([about] if isinstance(about, tuple) else about) if isinstance(one, tuple)]
        self.findings.append(RecordedFinding(text, False, launch.number, launch.last(places)))

    def never_stored(self, text: str, storage: int) -> None:
        """Add that elements of an output were used which the last launch that stores to it left out."""
        for launch in reversed(self.launches):
            for number, tensor in enumerate(launch.tensors):
                if tensor.after is not None and costs.address(tensor.region.tensor) == storage:
                    self.findings.append(RecordedFinding(text, True, launch.number, tensor=number))
                    return
        self.findings.append(RecordedFinding(text, True))


@dataclass
class RecordedLaunch:
    """One launch: its arguments and what its programs did."""

    recording: Recording
    number: int
    function: FunctionType
    cost: LaunchCost
    where: tuple[str, int] | None  # file and line of the script
    tensors: list[Tensor] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    programs_left_out: int = 0
    _own: list[Event] = field(default_factory=list)  # of the program that runs
    _is_marked: bool = False  # whether it has a finding

    def admit(self, region: Region) -> None:
        """Add an argument."""
        with disable_current_modes():
            self.tensors.append(Tensor(region, maps.values(region.tensor), fresh=_unwritten(region.tensor)))

    @contextlib.contextmanager
    def of_program(self) -> Iterator[None]:
        """Run a program, and keep what it did if there is room or something to be seen in it."""
        self._own, self._is_marked = [], False
        try:
            yield
        except MemoryFault as fault:
            self._fault(fault)
            raise
        finally:
            self._keep()

    def leave(self) -> tuple[list[Event], bool]:
        """Return what the program that runs has done, while another one runs."""
        return self._own, self._is_marked

    def enter(self, state: tuple[list[Event], bool]) -> None:
        """Go on with a program."""
        self._own, self._is_marked = state

    def _keep(self) -> None:
        if self._is_marked or self.recording.n_events + len(self._own) <= MAX_EVENTS:
            self.events += self._own
            self.recording.n_events += len(self._own)
        else:
            self.programs_left_out += 1

    def end(self) -> None:
        """Look at what is in the tensors now."""
        with disable_current_modes():
            for one in self.tensors:
                tensor, traffic = one.region.tensor, one.region.traffic
                if traffic is not None and (traffic.stored or traffic.updated):
                    one.after = maps.values(tensor)
                one.unwritten = _unwritten(tensor)

    def access(self, action: str, addresses: np.ndarray, mask: np.ndarray | None, width: int) -> None:
        """Add an access, before it is checked."""
        where, kind = self.recording.places.number(place()), _ACTIONS[action]
        numbers = addresses >> np.uint64(NUMBER_AT)
        active = None if mask is None or mask.all() else np.broadcast_to(mask, addresses.shape)
        chosen = numbers if active is None or not active.any() else numbers[active]
        first = int(chosen.flat[0])
        if (numbers == first).all():
            self._add(kind, where, first, addresses, active, width)
            return
        for number in np.unique(chosen).tolist():  # pointers into several tensors
            own = (numbers == number) if active is None else (numbers == number) & active
            self._add(kind, where, number, addresses[own], None, width)

    def _add(
        self, kind: int, where: int, number: int, addresses: np.ndarray, active: np.ndarray | None, width: int
    ) -> None:
        event = Event(self.cost.program - 1, kind, where, number - 1)
        self._own.append(event)
        if not 0 < number <= len(self.tensors):
            event.tensor = -1
            return
        region = self.tensors[number - 1].region
        offsets = (addresses - region.tagged_address).view(np.int64) // region.itemsize
        if width > region.itemsize:
            offsets = offsets[..., None] + np.arange(width // region.itemsize)
            active = None if active is None else np.broadcast_to(active[..., None], offsets.shape)
        event.base = int(offsets.flat[0])
        event.lanes = self._lanes(offsets)
        if active is not None:
            event.mask = self.recording.masks.number(runs_of(active))

    def _lanes(self, offsets: np.ndarray) -> int:
        """Return the number of a description of where lanes lie, from the first one on; -1 for none."""
        known, steps = self.recording.lanes, steps_of(offsets)
        if steps is not None:
            return known.number((offsets.shape, steps))
        self.recording.n_lanes += offsets.size
        if self.recording.n_lanes > MAX_LANES:
            return -1
        return known.number((offsets.shape, None, tuple((offsets - offsets.flat[0]).ravel().tolist())))

    def values(self, values: np.ndarray) -> None:
        """Add what the last access has read or is to write."""
        with np.errstate(invalid="ignore", over="ignore"):
            plain = values.astype(np.float32).ravel()
            event = self._own[-1]
            event.nans = int(np.isnan(plain).sum())
            if event.nans < plain.size:
                event.low, event.high = float(np.fmin.reduce(plain)), float(np.fmax.reduce(plain))

    def dot(self, a: np.ndarray, b: np.ndarray, operands: str) -> None:
        """Add a matrix product."""
        sides = (" × ".join(map(str, x.shape)) for x in (a, b))
        event = self._mark(DOT, " by ".join(sides) + f" in {operands}")
        self.recording.tile_bytes += 4 * (a.size + b.size)
        if self.recording.tile_bytes <= MAX_TILE_BYTES:
            event.tiles = tuple(x.astype(np.float32).reshape(-1, x.shape[-1]) for x in (a, b))

    def nan(self, where: Place, text: str) -> None:
        """Add that an operation made a NaN of numbers."""
        event = self._mark(NAN, "makes a NaN of numbers: ∞ − ∞, 0 · ∞ or 0 / 0", where)
        self._is_marked = True
        who = f"program {_id(event.program, self.cost.grid)} of {self.cost.kernel}"
        self.recording.findings.append(
            RecordedFinding(f"NaN: {who} makes one of numbers\n{text}", False, self.number, event)
        )

    def _mark(self, kind: int, note: str, where: Place | None = None) -> Event:
        places, notes = self.recording.places, self.recording.notes
        event = Event(self.cost.program - 1, kind, places.number(where or place()), -1, note=notes.number(note))
        self._own.append(event)
        return event

    def _fault(self, fault: MemoryFault) -> None:
        """Add what the program that runs did wrong; it ends there."""
        event = self.last([fault.where] if fault.where else [])
        other = self._of_race(fault.other, event) if fault.other and event else None
        self._is_marked = True
        tensor = event.tensor if event else -1
        self.recording.findings.append(RecordedFinding(str(fault), True, self.number, event, other, tensor))

    def last(self, places: list[Place]) -> Event | None:
        """Return the last event of the program that runs, if possible one at these places."""
        self._is_marked = True
        numbers = {self.recording.places.number(one) for one in places}
        found = [event for event in self._own if event.place in numbers] or self._own
        return found[-1] if found else None

    def _of_race(self, other: tuple[Program, Place], event: Event) -> Event | None:
        """Return the other program's last access at its place to an element of this event's."""
        (x, y, z), where = other
        program = x + self.cost.grid[0] * (y + self.cost.grid[1] * z)
        number = self.recording.places.number(where)
        for one in reversed(self.events):
            if one.program == program and one.place == number and one.tensor == event.tensor:
                return one
        return None


def _unwritten(tensor: torch.Tensor) -> np.ndarray | None:
    unwritten = are_unwritten(tensor) if began_fresh(tensor) else None
    return None if unwritten is None else maps.values(unwritten)


def _id(number: int, grid: Program) -> Program:
    return number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
