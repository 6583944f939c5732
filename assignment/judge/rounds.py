"""How many multiprocessors host code hears of, and inputs so long that programs go several rounds of their loops.

A grid that is capped, by the GPU's multiprocessors or by a number, leaves several tiles to each program; what is wrong
from the second one on shows nowhere else.
"""

import math
from collections.abc import Callable, Collection, Sequence

from torch import Tensor

from assignment.judge import seeds
from assignment.protocol.program import Launch
from assignment.protocol.requests import Again, Call, Gradients, Ranks

MULTIPROCESSORS = (4, 6, 8, 14, 16, 40, 72, 108, 132)  # no GPU of capability 8 or more is known that has fewer
DRAWN_FOR = (Call, Again, Gradients, Ranks)  # costs, and what is compiled, are those of an H100
FEWEST = MULTIPROCESSORS[0]
ROUNDS = 3
LENGTHS = (1, 128, 256)  # of the inputs of calls that are recorded, times the first one's
MANY = 64  # launches of a call: it has one for each tile
CAPPED = 1.5  # a grid of inputs of twice the length: a smaller one leaves more to each program


def drawn(seed: int, check: str, function: str) -> int:
    """Return the multiprocessors of the GPU that a function hears of in a check."""
    return MULTIPROCESSORS[seeds.number(seed, "multiprocessors", check, function) % len(MULTIPROCESSORS)]


class Grown:
    """Inputs of any length, of which there are shapes, dtypes and structure alone."""

    def __init__(
        self, first: int, short: Sequence[Tensor], long: Sequence[Tensor], structure: Collection[int] = ()
    ) -> None:
        """Learn from inputs of the first length, and of twice that, which of their dimensions grow.

        Where `structure` stands, values grow so too.
        """
        self._first, self._both, self._structure = first, [*zip(short, long, strict=True)], structure

    def to(self, n: int) -> list[Tensor]:
        """Return inputs of this length, without data but structure."""
        times = n // self._first - 1
        sizes = [[a + (b - a) * times for a, b in zip(x.shape, y.shape, strict=True)] for x, y in self._both]
        return [
            x + (y - x) * times if place in self._structure else x.new_empty(of, device="meta")
            for place, (of, (x, y)) in enumerate(zip(sizes, self._both, strict=True))
        ]


def length(launched: Callable[[int], Sequence[Launch]], first: int, tile: int) -> int:
    """Return how long inputs must be for all programs to go ROUNDS rounds; 0 where the grid grows with the inputs.

    Args:
        launched: the launches of a call with inputs of this length; none where there is none to be had.
        first: the length of the shortest call.
        tile: how much of the length a tile may be, at most.
    """
    lengths, calls = [first * times for times in LENGTHS], list[Sequence[Launch]]()
    for n in lengths:
        calls.append(launched(n))
        if not calls[-1] or len(calls[-1]) > MANY:
            return 0
    longest = calls[-1]
    if [launch.kernel for launch in calls[-2]] != [launch.kernel for launch in longest]:
        return 0
    return max(_length([*zip(lengths, _alike(calls, i), strict=True)], tile) for i in range(len(longest)))


def _alike(calls: Sequence[Sequence[Launch]], i: int) -> list[Launch | None]:
    """Return the launch of this number of each call, None where it is of another kernel."""
    kernel = calls[-1][i].kernel
    return [call[i] if i < len(call) and call[i].kernel == kernel else None for call in calls]


def _length(launches: Sequence[tuple[int, Launch | None]], tile: int) -> int:
    found = [(n, launch) for n, launch in launches if launch]
    grown = [axis for axis in range(3) if len({launch.grid[axis] for _, launch in found}) > 1]
    programs = [math.prod(launch.grid[axis] for axis in grown or range(3)) for _, launch in found]
    before, sharing = programs[-2:]
    if sharing >= CAPPED * before or not sharing:
        return 0
    (_, last), others = found[-1], [launch.arguments for _, launch in found[:-1]]
    kept = [x for name, x in last.arguments.items() if all(name in those and those[name] == x for those in others)]
    tiles = [x for x in kept if type(x) is int and x <= tile and x.bit_count() == 1]
    shares = [n / size for (n, _), size in zip(found, programs, strict=True) if 0 < size < before]
    return math.ceil(ROUNDS * sharing * max([1, *tiles, *(min(share, tile) for share in shares[-1:])]))
