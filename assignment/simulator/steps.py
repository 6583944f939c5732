"""What host code does in a call, step by step: the same for two calls that differ in nothing but values.

Operations of PyTorch and launches are the steps. A result can be carried past the labels in what looks harmless: the
numbers that a launch takes, the offsets of slices, the order of tensors, the literals of a kernel made for the
occasion, a table of constants. Then it stands in the steps, and another result in those of another call.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from types import CodeType
from typing import Any

import numpy as np
import torch

from .faults import at

MAX_DIFFERENT = 8  # numbers: an honest call may have a few, of a branch that it takes for large values, say
MAX_ALIGNED = 4_000  # steps; of more it is their order alone that says which belong together

Line = tuple[CodeType, int] | None


@dataclass(frozen=True)
class Constants:
    """The elements of a storage, and which of them are constants."""

    elements: np.ndarray  # (n, bytes of an element)
    is_constant: np.ndarray  # (n,)

    def differ(self, other: "Constants") -> int:
        """How many of those that are constants in both differ."""
        if self.elements.shape != other.elements.shape:
            return 0  # the shapes in the steps differ as well
        both = self.is_constant & other.is_constant
        return int((self.elements != other.elements)[both].any(axis=1).sum())


@dataclass(frozen=True)
class Step:
    """An operation or a launch: what it is, where it was asked for, and all that it was given but values of data."""

    what: str
    line: Line
    given: tuple[Any, ...]  # numbers, and names of types and of memories
    constants: list[Constants | None] = field(default_factory=list, compare=False)  # of each memory that it uses


@dataclass
class Differences:
    count: int = 0
    first: Step | None = None

    def add(self, step: Step, count: int) -> None:
        self.count += count
        if count and self.first is None:
            self.first = step

    def __str__(self) -> str:
        where = f"\n{at((self.first.line,))}" if self.first and self.first.line else ""
        return (
            "called once more, with other values in the same shapes, it hands on other numbers outside of kernels: "
            f"{self.count} of them differ, the first in {self.first.what if self.first else ''}{where}"
        )


def differences(first: list[Step], second: list[Step], expected: Iterable[int]) -> Differences:
    """In what the second call's steps differ from the first's.

    Steps of the first call alone are what it did once for all. Of a step of the second alone those numbers count that
    are not `expected`: sizes and strides of the inputs.
    """
    found, known = Differences(), set(expected)
    for kind, i, i_end, j, j_end in _aligned(first, second):
        if kind == "equal":
            for one, other in zip(first[i:i_end], second[j:j_end], strict=True):
                found.add(other, _constants_differ(one, other))
            continue
        waiting: dict[Any, list[Step]] = defaultdict(list)
        for step in first[i:i_end]:
            waiting[step.what].append(step)
        for step in second[j:j_end]:
            partners = waiting[step.what]
            found.add(step, _differ(partners.pop(0), step) if partners else _unexpected(step, known))
    return found


def _aligned(first: list[Step], second: list[Step]) -> Sequence[tuple[str, int, int, int, int]]:
    if first == second:
        return [("equal", 0, len(first), 0, len(second))]
    if len(first) + len(second) > MAX_ALIGNED:
        return [("replace", 0, len(first), 0, len(second))]
    return SequenceMatcher(None, first, second, autojunk=False).get_opcodes()


def _differ(one: Step, other: Step) -> int:
    pairs = list(zip(one.given, other.given, strict=False))
    surplus = abs(len(one.given) - len(other.given))
    return sum(a != b for a, b in pairs) + surplus + _constants_differ(one, other)


def _constants_differ(one: Step, other: Step) -> int:
    return sum(a.differ(b) for a, b in zip(one.constants, other.constants, strict=False) if a and b)


def _unexpected(step: Step, known: set[int]) -> int:
    return sum(isinstance(n, int | float) and not isinstance(n, bool) and n not in known for n in step.given)


class Recorder:
    """Takes down the steps of a call."""

    def __init__(self, memory_of: Callable[[torch.Tensor], Any], line_of: Callable[[], Line]) -> None:
        """`memory_of` gives a tensor's origins.Memory or None, `line_of` the line of the submission that runs."""
        self._memory_of, self._line_of = memory_of, line_of
        self.steps: list[Step] = []
        self.is_fed = False  # whether functions of Python gave kernels numbers
        self._memories: Counter[Any] = Counter()  # by the line that made them
        self._fed: set[Any] = set()

    def begin_again(self) -> list[Step]:
        """The steps until now; from here on the call is made once more."""
        before, self.steps = self.steps, []
        self._memories.clear()
        return before

    def name(self, memory: Any) -> None:
        """Give new memory a name that it will have in another call, too."""
        line = self._line_of()
        where = (line[0].co_name, line[1]) if line else ()
        memory.name = f"memory {self._memories[where]} of {where}"
        self._memories[where] += 1

    def step(self, what: str, arguments: Any) -> None:
        self.steps.append(Step(what, self._line_of(), tuple(given(arguments, self._describe))))

    def launch(self, kernel: str, arguments: Any) -> None:
        self._fed.clear()
        self.step(f"kernel {kernel}", arguments)
        self.steps[-1].constants.extend(self._constants(given(arguments, lambda tensor: [tensor])))

    def uses(self, tensors: Iterable[torch.Tensor]) -> None:
        """The last step computes with these: what they hold of constants counts, unless they hold nothing else."""
        memories = [self._memory_of(tensor) for tensor in tensors]
        if not all(memory is None or memory.is_constant for memory in memories):
            self.steps[-1].constants.extend(memory and memory.constants() for memory in memories)

    def feed(self, function: str, constant: Any) -> None:
        """A function of Python's gave a kernel this constant; the like is taken down once for a launch."""
        numbers = tuple(given(constant, self._describe))
        if (function, numbers) not in self._fed:
            self._fed.add((function, numbers))
            self.steps.append(Step(f"function {function}", self._line_of(), numbers))
            self.is_fed = True

    def _constants(self, arguments: Iterable[Any]) -> Iterator[Constants | None]:
        for tensor in arguments:
            if isinstance(tensor, torch.Tensor):
                memory = self._memory_of(tensor)
                yield memory and memory.constants()

    def _describe(self, tensor: torch.Tensor) -> Iterator[Any]:
        memory = self._memory_of(tensor)
        yield memory.name if memory else "nothing"
        yield from (str(tensor.dtype), *tensor.shape)
        if memory:
            yield from (*tensor.stride(), tensor.storage_offset())


def geometry(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The sizes and strides of tensors."""
    return {n for tensor in tensors for n in (0, 1, tensor.numel(), *tensor.shape, *tensor.stride())}


def given(value: Any, describe: Any) -> Iterator[Any]:
    """What stands in nested arguments, flat; `describe` gives the like for a tensor."""
    value = getattr(value, "value", value)  # of a constexpr
    if isinstance(value, torch.Tensor):
        yield from describe(value)
    elif isinstance(value, dict):
        yield from given(list(value.values()), describe)
    elif isinstance(value, list | tuple):
        yield len(value)
        for item in value:
            yield from given(item, describe)
    elif isinstance(value, float | complex):
        yield "nan" if value != value else value
    elif isinstance(value, bool | int | str | bytes) or value is None:
        yield value
    elif isinstance(getattr(value, "base", None), torch.Tensor):  # a tensor descriptor
        yield from given([value.base, *(getattr(value, name, None) for name in _DESCRIPTOR)], describe)
    else:
        yield str(value) if isinstance(value, torch.dtype | torch.device) else type(value).__name__


_DESCRIPTOR = ("shape", "strides", "block_shape", "padding")
