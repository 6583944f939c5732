"""What the language leaves open, drawn by the seed of the call.

A compiler may lay the elements of a block out in threads as it likes. So nothing says in which tree a reduction
combines them, in which order the lanes of one access reach one address, which elements a reshape that may reorder
puts where, or which of two neighbours a function that is not rounded correctly returns. A call has one draw of each,
which all programs of its launches share, as the programs of a compiled kernel do.
"""

import copy
import functools
import hashlib
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MOVED_OF = 4  # seeds in a row there is one that moves last bits, which takes twice the time
_MOST_IN_A_THREAD = 3  # binary digits of a number of registers
_INEXACT = np.dtype(np.float32)
_LEAST, _MOST = np.finfo(_INEXACT).tiny, np.finfo(_INEXACT).max  # of numbers that move


class Tree(NamedTuple):
    """How a reduction of a block combines: in each thread one by one, then between threads by halves."""

    bits: tuple[int, ...]  # the order of an index's binary digits, by which elements come to threads; () as they are
    wraps: int  # times that the threads go round
    run: int  # neighbours in one thread
    is_swapped: bool  # the later operand is handed over first


class Draws:
    """The draws of one call."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.moves = seed % MOVED_OF == 0  # results that are not exact, by one unit in the last place
        self.tree = functools.cache(self._tree)
        self.order = functools.cache(self._order)

    @functools.cached_property
    def unmoved(self) -> "Draws":
        """The same draws, but for the last bits."""
        same = copy.copy(self)
        same.moves = False
        return same

    def _number(self, *about: str | int) -> int:
        """Return a number that does not tell the seed."""
        return int.from_bytes(hashlib.sha512(f"{self._seed} {about}".encode()).digest()[:8])

    def _tree(self, size: int) -> Tree:
        rng = random.Random(self._number("tree", size))
        digits = size.bit_length() - 1
        run = rng.randint(0, min(_MOST_IN_A_THREAD, digits))
        wraps = rng.randint(0, min(_MOST_IN_A_THREAD, digits) - run)
        return Tree(tuple(rng.sample(range(digits), digits)), 1 << wraps, 1 << run, rng.random() < 0.5)

    def _order(self, *shape: int) -> np.ndarray:
        """Return a permutation of as many elements as are in blocks of this shape."""
        return np.random.default_rng(self._number("order", *shape)).permutation(int(np.prod(shape)))

    def moved(self, function: Callable[..., np.ndarray], *operands: np.ndarray) -> np.ndarray:
        """Return a function of float32 numbers; in one call of four the neighbour across the exact result.

        What is exact stays, and the same operands give the same result in all programs.
        """
        result = np.asanyarray(function(*operands))
        if not self.moves or result.dtype != _INEXACT:
            return result
        with np.errstate(all="ignore"):
            exact = np.abs(function(*(x.astype(np.float64) if x.dtype == _INEXACT else x for x in operands)))
            size = np.abs(result)
            wide = size.astype(np.float64)
            steps = (exact > wide).view(np.int8) - (exact < wide).view(np.int8)
            steps *= (size >= _LEAST) & (size <= _MOST)
            return (result.view(np.int32) + steps).view(_INEXACT)
