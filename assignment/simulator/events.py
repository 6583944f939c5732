"""What a recording is made of: events of programs, findings, and tables that number what repeats."""

import inspect
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

LOAD, STORE, UPDATE, DOT, NAN = range(5)  # kinds of events


@dataclass(slots=True, eq=False)
class Event:
    """What one program did at one line."""

    program: int  # its number in the grid, x fastest
    kind: int
    place: int  # these four index the recording's tables; -1 for none
    tensor: int
    lanes: int = -1
    mask: int = -1  # -1: all lanes are active
    base: int = 0  # of the first lane, in elements from the tensor's first one
    low: float = np.nan  # of the values that were read or written
    high: float = np.nan
    nans: int = 0
    note: int = -1
    tiles: tuple[np.ndarray, ...] = ()  # what a matrix product multiplies


@dataclass
class RecordedFinding:
    """Something that a reader should look at, and where it leads."""

    text: str
    is_error: bool
    launch: int = -1
    event: Event | None = None
    other: Event | None = None  # of a race: the other program's access
    tensor: int = -1


class Table:
    """Numbers things by their value."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)


def steps_of(offsets: np.ndarray) -> tuple[int, ...] | None:
    """Return how far apart lanes lie along each axis of a block; None where no such numbers describe them."""
    first, ndim, shape = offsets.flat[0], offsets.ndim, offsets.shape
    second = [tuple(int(axis == i and n > 1) for i in range(ndim)) for axis, n in enumerate(shape)]
    steps = tuple(int(offsets[at] - first) for at in second)
    expected = sum(_along(i, n, step, ndim) for i, (n, step) in enumerate(zip(shape, steps, strict=True)))
    return steps if (offsets - first == expected).all() else None


def _along(axis: int, size: int, step: int, ndim: int) -> np.ndarray:
    return (np.arange(size, dtype=np.int64) * step).reshape([-1 if axis == i else 1 for i in range(ndim)])


def runs_of(active: np.ndarray) -> tuple[int, ...]:
    """Return the lengths of runs of lanes, inactive ones first."""
    flat = active.ravel()
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs = np.diff(changes, prepend=0, append=flat.size).tolist()
    return (0, *runs) if flat[0] else tuple(runs)


def source(function: Callable | CodeType) -> tuple[int, list[str]]:
    """Return the number of a function's first line and its lines; none where they cannot be found."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return 1, []
    return first, [line.rstrip("\n") for line in lines]
