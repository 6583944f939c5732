"""How much a call may make of what is allowed, and could carry a result past the labels if there were enough of it."""

from dataclasses import dataclass, field
from typing import Any

from .derivations import NUMBERS

MAX_NUMBERS = 32  # different Python floats: a scale, an eps, a minus infinity, not results
MAX_INTEGERS = 1_000  # likewise: tiles and offsets
MAX_LAUNCHES = 256  # after which staff should look: a launch for each element may carry it in an argument
MAX_FILLS = 1_000  # constants written over something: where they are put may tell a result as well
DELTAS = 8  # of the size that one call needs: some requests make several
SMALLEST_BITS = 1 << 24  # integers from here on may be the bits of a number


@dataclass
class Budget:
    """What a call has made so far."""

    max_delta: int = 0  # elements that one result of rowsum(A ∘ B) may have
    launches: int = 0
    _fills: int = 0
    _delta: int = 0
    _numbers: set[Any] = field(default_factory=set)
    _integers: set[Any] = field(default_factory=set)

    def is_beyond_numbers(self, numbers: list[Any]) -> bool:
        """Whether with these there are more different numbers than honest constants and indices need."""
        for number in numbers:
            is_small = isinstance(number, int) and abs(number) < SMALLEST_BITS
            (self._integers if is_small else self._numbers).add("nan" if number != number else number)
        return bool(numbers) and (len(self._numbers) > MAX_NUMBERS or len(self._integers) > MAX_INTEGERS)

    def is_beyond_fills(self) -> bool:
        """Whether with one more there are too many constants written over something."""
        self._fills += 1
        return self._fills > MAX_FILLS

    def is_beyond_delta(self, numel: int) -> bool:
        """Whether with so many elements more there are too many of rowsum(A ∘ B)."""
        self._delta += numel
        return self._delta > DELTAS * self.max_delta


def numbers_in(arguments: Any, name: str = "") -> list[Any]:
    """The Python numbers that an operation puts into values; sizes and dimensions are not."""
    if isinstance(arguments, dict):
        return [n for key, value in arguments.items() for n in numbers_in(value, key)]
    if isinstance(arguments, list | tuple):
        return [n for value in arguments for n in numbers_in(value, name)]
    if type(arguments) is int:
        return [arguments] if name in NUMBERS or abs(arguments) >= SMALLEST_BITS else []
    return [arguments] if isinstance(arguments, float | complex) else []


def carried_by(value: Any) -> list[Any]:
    """The numbers in a kernel's arguments and constants that are no size, stride or index."""
    value = getattr(value, "value", value)  # of a constexpr
    if isinstance(value, dict | tuple | list):
        return [n for item in (value.values() if isinstance(value, dict) else value) for n in carried_by(item)]
    is_number = isinstance(value, float) or (type(value) is int and abs(value) >= SMALLEST_BITS)
    return [value] if is_number else []
