"""Exact costs of launches: bytes by tensor, requested and distinct, and operations of `tl.dot`."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from .faults import Program


@dataclass
class Traffic:
    """What one launch requested of one tensor argument. Bytes count each active lane once."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int  # of its distinct elements
    storage: int  # address of its storage
    itemsize: int
    strides: tuple[int, ...] = ()  # in elements
    row_length: int = 0  # elements of a row, in which tiles are measured
    n_rows: int = 1  # of a batch
    row_origin: int = 0  # the place of the first row's first element in the arrays below
    loaded: int = 0
    stored: int = 0
    updated: int = 0  # by atomics: each of them reads and writes
    fetched: int = 0  # from memory, through an L2 cache, if one is simulated (l2.py)
    tile_rows: int = 0  # the most rows of one batch that one load touched
    # by action: how many accesses touched each element
    counts: dict[str, np.ndarray] = field(default_factory=dict)
    # by action: number of the last program, from 1
    last: dict[str, np.ndarray] = field(default_factory=dict)
    # bytes loaded by the label that says where the elements come from, if somebody follows them
    by_label: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))
    is_mapped_whole: bool = True  # these arrays are over its whole storage
    origin: int = 0  # the place of the tensor's first element in these arrays

    def moved(self, action: str, first: int = 0, last: int | None = None) -> int:
        """Return the bytes of all accesses to the elements [first, last) of the maps."""
        return int(self.counts[action][first:last].sum()) * self.itemsize if action in self.counts else 0


@dataclass(frozen=True)
class Access:
    """One load, store or atomic update of a program: elements by their places in the tensor's maps."""

    program: int  # from 1, in the order of their ids
    traffic: Traffic
    action: str
    elements: np.ndarray  # distinct, rising


@dataclass
class LaunchCost:
    """The cost of one launch: its grid, its tensors and its dot operations by operand type."""

    kernel: str
    grid: Program
    tensors: list[Traffic] = field(default_factory=list)
    flops: Counter[str] = field(default_factory=Counter)
    program: int = 0  # that runs, from 1 in the order of their ids
    accesses: list[Access] | None = None  # if they are kept
    writers: set[int] = field(default_factory=set)  # programs that have stored something

    @property
    def programs(self) -> int:
        x, y, z = self.grid
        return x * y * z

    @property
    def idle(self) -> int:
        """Return how many programs store nothing."""
        return self.programs - len(self.writers)

    def begin(self, program: Program) -> None:
        """Start the next program."""
        x, y, z = program
        self.program = 1 + x + self.grid[0] * (y + self.grid[1] * z)

    def touch(self, traffic: Traffic, action: str, index: np.ndarray, size: int, nbytes: int) -> None:
        """Count an access to the elements `index` of a map of `size` elements."""
        setattr(traffic, action, getattr(traffic, action) + nbytes)
        if action != "loaded":
            self.writers.add(self.program)
        missing = size - len(traffic.counts.get(action, ()))
        if missing > 0:  # the first access, or one that reaches a larger tensor than those before
            for maps in (traffic.counts, traffic.last):
                maps[action] = np.append(maps.get(action, np.zeros(0, np.int32)), np.zeros(missing, np.int32))
        index = distinct(index)  # lanes that ask for one element together move it once
        traffic.counts[action][index] += 1
        traffic.last[action][index] = self.program
        if self.accesses is not None:
            self.accesses.append(Access(self.program, traffic, action, index))
        if action == "loaded" and traffic.row_length:
            rows = distinct((index - traffic.row_origin) // traffic.row_length)
            of_batches = np.diff(np.flatnonzero(_steps(rows // traffic.n_rows)), append=rows.size)
            traffic.tile_rows = max(traffic.tile_rows, int(of_batches.max()))

    def dot(self, a: np.ndarray, b: np.ndarray, operands: str) -> None:
        """Count a product of (…, m, k) and (…, k, n)."""
        self.flops[operands] += 2 * a.size * b.shape[-1]

    @property
    def total_bytes(self) -> int:
        """The bytes requested of all tensors; an atomic update reads and writes."""
        return sum(t.loaded + t.stored + 2 * t.updated for t in self.tensors)


def _steps(numbers: np.ndarray) -> np.ndarray:
    """Return where each of the numbers, at least one, differs from the one before it; the first does."""
    steps = np.empty(numbers.shape, bool)
    steps[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=steps[1:])
    return steps


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Return the distinct ones of these numbers, at least one, in rising order."""
    if (numbers[1:] < numbers[:-1]).any():  # a tile that walks along memory needs no sorting
        numbers = np.sort(numbers)
    return numbers[_steps(numbers)]
