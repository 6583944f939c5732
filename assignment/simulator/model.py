"""The data behind a page of launches, as plain data and arrays in one compressed block.

A block is, deflated: the length of a JSON text in four bytes (little-endian), the text, and arrays that it refers to
as {"type", "at", "count"}, at bytes after the text. VERSION is raised by every change that an older reader would get
wrong. Fields may be added without: a reader ignores events of kinds and columns that it does not know. So statements
can become events between those of today (kind, program, place, note), and values of an element can be traced back
through them: each event says which lanes of which tensor it touched.

    {"version", "script", "sources", "places", "lanes", "masks", "notes", "launches", "findings", "left_out"}

    sources    functions of the script: {"file", "first", "lines"}, first is the number of the first line
    places     [[source, line], …], a line and those that called it
    lanes      how lanes lie in memory: {"shape", "steps"} in elements, or {"shape", "at": array}, from the first lane
    masks      lengths of runs of lanes, inactive ones first
    launches   {"kernel", "grid", "where", "sources", "flops", "tensors", "events", "tiles", …}
    tensors    {"name", "dtype", "shape", "strides", "itemsize", "nbytes", "moved", "counts", "last", "values", …}
    events     columns by name (events.Event): arrays as long as there are events, programs in the order they ran
    tiles      by event, the two sides of a matrix product: {"shape", "values"}; not of all
    findings   {"text", "is_error", "launch", "event", "other", "tensor"}, numbers in their tables, -1 for none
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType

import numpy as np

from assignment.protocol.messages import Writable

from . import maps
from .events import Event, RecordedFinding, source
from .faults import Place, shown
from .numerics import BFLOAT16
from .recording import RecordedLaunch, Recording, Tensor

VERSION = 1
VALUES_BYTES = 900_000  # of elements before and after launches; of larger tensors the first rows are kept
MAX_LAUNCHES = 60  # the first ones
_TYPES = {"b1": "u1", "i1": "i1", "u1": "u1", "i2": "i2", "i4": "i4", "i8": "f8", "f4": "f4", "f8": "f8"}
_COLUMNS = {
    "program": "i4", "kind": "i1", "place": "i4", "tensor": "i2", "lanes": "i4", "mask": "i4", "base": "f8",
    "low": "f4", "high": "f4", "nans": "i4", "note": "i2",
}  # fmt: skip


def encoded(script: str, recording: Recording) -> bytes:
    """Return the block."""
    return _Writer(recording).block(script)


class _Writer:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._launches = recording.launches[:MAX_LAUNCHES]
        self._arrays = bytearray()
        self._known: dict[bytes, dict[str, Writable]] = {}
        self._sources: list[dict[str, Writable]] = []
        self._source_of: dict[tuple[str, str], int] = {}
        tensors = [tensor for launch in self._launches for tensor in launch.tensors]
        self._rows = kept_rows([x for one in tensors for x in (one.before, one.after) if x is not None])

    def block(self, script: str) -> bytes:
        recording = self._recording
        launches = [self._launch(one) for one in self._launches]  # first: their kernels' sources begin at decorators
        told = {
            "version": VERSION,
            "script": script,
            "launches": launches,
            "places": [self._place(one) for one in recording.places],
            "lanes": [self._lanes(*one) for one in recording.lanes],
            "masks": list(recording.masks),
            "notes": list(recording.notes),
            "findings": [self._finding(one) for one in recording.findings],
            "sources": self._sources,  # the last, when all are known
            "left_out": {"launches": len(recording.launches) - len(launches)},
        }
        text = json.dumps(told, allow_nan=False, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 4) % 8)  # arrays begin at multiples of 8
        return zlib.compress(struct.pack("<I", len(text)) + text + self._arrays, 6)

    def _array(self, values: np.ndarray) -> dict[str, Writable]:
        """Keep an array, those that are the same once; returns how it is referred to."""
        kind = values.dtype.str[1:]
        is_short = values.dtype == BFLOAT16
        data = values.view("i2") if is_short else values.astype(f"<{_TYPES.get(kind, 'f8')}")
        told: dict[str, Writable] = {"type": "bf16" if is_short else data.dtype.str[1:], "count": data.size}
        raw = np.ascontiguousarray(data).tobytes()
        key = str(told).encode() + raw
        if key not in self._known:
            self._arrays += b"\0" * (-len(self._arrays) % 8)
            self._known[key] = {**told, "at": len(self._arrays)}
            self._arrays += raw
        return self._known[key]

    def _source(self, function: FunctionType | CodeType) -> int:
        code = function if isinstance(function, CodeType) else function.__code__
        key = code.co_filename, code.co_name  # a kernel's own code, and what the simulator made of it
        if key not in self._source_of:
            first, lines = source(function)
            self._source_of[key] = len(self._sources)
            self._sources.append({"file": shown(code.co_filename), "first": first, "lines": lines})
        return self._source_of[key]

    def _place(self, where: Place) -> list[list[int]]:
        return [[self._source(code), line] for code, line in where]

    def _lanes(
        self, shape: tuple[int, ...], steps: tuple[int, ...] | None, at: Sequence[float] = ()
    ) -> dict[str, Writable]:
        if steps is not None:
            return {"shape": shape, "steps": steps}
        return {"shape": shape, "at": self._array(np.array(at, np.float64))}

    def _launch(self, launch: RecordedLaunch) -> dict[str, Writable]:
        own = self._source(launch.function)
        places, used = list(self._recording.places), {event.place for event in launch.events}
        called = [code for number in sorted(used) for code, _ in places[number]]
        return {
            "kernel": launch.cost.kernel,
            "grid": launch.cost.grid,
            "where": [launch.where] if launch.where else [],
            "sources": list(dict.fromkeys([own, *map(self._source, called)])),
            "flops": dict(launch.cost.flops),
            "tensors": [self._tensor(one) for one in launch.tensors],
            "events": {name: self._array(_column(launch.events, name, kind)) for name, kind in _COLUMNS.items()},
            "tiles": {i: self._tiles(event) for i, event in enumerate(launch.events) if event.tiles},
            "programs_left_out": launch.programs_left_out,
        }

    def _tiles(self, event: Event) -> list[dict[str, Writable]]:
        return [{"shape": tile.shape, "values": self._array(tile)} for tile in event.tiles]

    def _tensor(self, one: Tensor) -> dict[str, Writable]:
        traffic, region = one.region.traffic, one.region
        assert traffic is not None
        rows, cols = maps.size(tuple(region.tensor.shape))
        return {
            "name": region.name,
            "dtype": traffic.dtype,
            "shape": traffic.shape,
            "strides": traffic.strides,
            "itemsize": traffic.itemsize,
            "nbytes": traffic.nbytes,
            "rows": rows,
            "cols": cols,
            "drawn": maps.drawn(rows, cols),
            "moved": {action: getattr(traffic, action) for action in traffic.counts},
            "distinct": {a: int(np.count_nonzero(touched)) for a, touched in traffic.counts.items()},
            "counts": {a: self._array(_small(maps.counts(traffic, found))) for a, found in traffic.counts.items()},
            "last": {a: self._array(_small(maps.counts(traffic, found))) for a, found in traffic.last.items()},
            "before": self._values(one.before),
            "after": None if one.after is None else self._values(one.after),
            "fresh": None if one.fresh is None else self._array(one.fresh),
            "unwritten": None if one.unwritten is None else self._array(one.unwritten),
        }

    def _values(self, values: np.ndarray) -> dict[str, Writable]:
        return self._array(values[: self._rows(values)] if len(values) > 1 else values[:, : self._rows(values.T)])

    def _finding(self, one: RecordedFinding) -> dict[str, Writable]:
        is_shown = 0 <= one.launch < len(self._launches)
        events = {event: i for i, event in enumerate(self._launches[one.launch].events)} if is_shown else {}
        return {
            "text": one.text,
            "is_error": one.is_error,
            "launch": one.launch if is_shown else -1,
            "event": events.get(one.event, -1) if one.event else -1,
            "other": events.get(one.other, -1) if one.other else -1,
            "tensor": one.tensor,
        }


def kept_rows(arrays: list[np.ndarray]) -> Callable[[np.ndarray], int]:
    """Return a function that says how many rows of an array are kept, so that all together are not too large."""
    left, sizes = VALUES_BYTES, sorted(one.nbytes for one in arrays)
    for number, size in enumerate(sizes):
        share = left // (len(sizes) - number)
        if size > share:
            return lambda one: min(len(one), share * len(one) // one.nbytes) if one.nbytes else len(one)
        left -= size
    return len


def _column(events: Iterable[Event], name: str, kind: str) -> np.ndarray:
    return np.array([getattr(event, name) for event in events], kind)


def _small(counts: np.ndarray) -> np.ndarray:
    """Return counts in the fewest bytes that hold them."""
    most = counts.max(initial=0)
    return counts.astype("u1" if most < 1 << 8 else "i2" if most < 1 << 15 else "i4")
