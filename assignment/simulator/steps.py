"""What host code does in a call, step by step: the same for two calls that differ in nothing but values.

Operations of PyTorch and launches are the steps. A result can be carried past the labels in what looks harmless: the
numbers that a launch takes, the offsets of slices, the order of tensors, the literals of a kernel made for the
occasion, a table of constants. Then it stands in the steps, and another result in those of another call.
"""

import threading
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from types import CodeType
from typing import Any

import numpy as np
import torch
import triton.language as tl

from .faults import at

MAX_DIFFERENT = 8  # numbers: an honest call may have a few, of a branch that it takes for large values, say
MAX_ALIGNED = 4_000  # steps; of more it is their places, counted from the end, that say which belong together
MAX_DEPTH = 6  # of nested arguments

Line = tuple[CodeType, int] | None


class Name(str):
    """Of a memory: which one it is says something, what it is called does not."""


@dataclass(frozen=True)
class Constants:
    """The elements of a storage, and which of them are constants."""

    elements: np.ndarray  # (n, bytes of an element)
    is_constant: np.ndarray  # (n,)

    def differ(self, other: Any) -> int:
        """How many of those that are constants in both differ."""
        if not isinstance(other, Constants) or self.elements.shape != other.elements.shape:
            return len(self.elements)
        both = self.is_constant & other.is_constant
        return int((self.elements != other.elements)[both].any(axis=1).sum())


@dataclass(frozen=True)
class Digest:
    """Of the constants of a storage that is too large to be kept."""

    value: str

    def differ(self, other: Any) -> int:
        """More than an honest call may have, if at all."""
        return 0 if self == other else MAX_DIFFERENT + 1


@dataclass(frozen=True)
class Step:
    """An operation or a launch: what it is, where it was asked for, and all that it was given but values of data."""

    what: str
    line: Line
    given: tuple[Any, ...]  # numbers, and names of types and of memories
    constants: list[Constants | Digest | None] = field(
        default_factory=list, compare=False
    )  # of each memory that it uses


@dataclass
class Differences:
    """Between the steps of two calls."""

    count: int = 0
    renamed: int = 0  # memories that took the place of one other: workspaces that are used in turn
    first: Step | None = None
    _names: dict[tuple[int, Name], Name] = field(default_factory=dict)  # of the other call, by direction

    @property
    def is_too_much(self) -> bool:
        return self.count + self.renamed > MAX_DIFFERENT

    def add(self, step: Step, count: int) -> None:
        self.count += count
        if count and self.first is None:
            self.first = step

    def compare(self, one: Step, other: Step) -> None:
        """Two steps of the same kind."""
        surplus = abs(len(one.given) - len(other.given))
        different = sum(int(self._differ(a, b)) for a, b in zip(one.given, other.given, strict=False))
        constants = sum(a.differ(b) for a, b in zip(one.constants, other.constants, strict=False) if a and b)
        self.add(other, surplus + different + constants)

    def _differ(self, one: Any, other: Any) -> bool:
        if not isinstance(one, Name) or not isinstance(other, Name):
            return type(one) is not type(other) or one != other
        known = self._names.get((0, one)), self._names.get((1, other))
        if known == (None, None):
            self._names[0, one], self._names[1, other] = other, one
            self.renamed += one != other
            return False
        return known != (other, one)

    def __str__(self) -> str:
        where = f"\n{at((self.first.line,))}" if self.first and self.first.line else ""
        which = f", the first in {self.first.what}" if self.first else ""
        return (
            "called twice, with other values in the same shapes, it hands on other numbers outside of kernels: "
            f"{self.count + self.renamed} of them differ{which}{where}"
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
                found.compare(one, other)
            continue
        waiting: dict[Any, list[Step]] = defaultdict(list)
        for step in first[i:i_end]:
            waiting[step.what].append(step)
        for step in second[j:j_end]:
            if partners := waiting[step.what]:
                found.compare(partners.pop(0), step)
            else:
                found.add(step, sum(is_number(n) and n not in known for n in step.given))
    return found


def _aligned(first: list[Step], second: list[Step]) -> Sequence[tuple[str, int, int, int, int]]:
    if first == second:
        return [("equal", 0, len(first), 0, len(second))]
    if len(first) + len(second) <= MAX_ALIGNED:
        return SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    shift = len(first) - len(second)  # by what was done once for all, before
    pairs = [("replace", i + shift, i + shift + 1, i, i + 1) for i in range(max(0, -shift), len(second))]
    return [("insert", 0, 0, 0, max(0, -shift)), *pairs]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Recorder:
    """Takes down the steps of a call."""

    def __init__(self, memory_of: Callable[[torch.Tensor], Any], line_of: Callable[[], Line]) -> None:
        """`memory_of` gives a tensor's origins.Memory or None, `line_of` the line of the submission that runs."""
        self._memory_of, self._line_of = memory_of, line_of
        self.steps: list[Step] = []
        self.has_threads = False  # which make the order of steps a matter of luck
        self._memories: Counter[Any] = Counter()  # by the line that made them
        self._fed: set[Any] = set()

    def begin_again(self) -> list[Step]:
        """The steps until now; from here on the call is made once more."""
        before, self.steps = self.steps, []
        self._memories.clear()
        return before

    def name(self, memory: Any, is_taken: Callable[[Name], bool]) -> None:
        """Give new memory a name that it will have in another call, too."""
        line = self._line_of()
        where = (line[0].co_name, line[1]) if line else ()
        while memory.name is None or is_taken(memory.name):
            memory.name = Name(f"memory {self._memories[where]} of {where}")
            self._memories[where] += 1

    def step(self, what: str, arguments: Any) -> None:
        self.has_threads |= threading.current_thread() is not threading.main_thread()
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

    def _constants(self, arguments: Iterable[Any]) -> Iterator[Constants | Digest | None]:
        for tensor in arguments:
            if isinstance(tensor, torch.Tensor):
                memory = self._memory_of(tensor)
                yield memory and memory.constants()

    def _describe(self, tensor: torch.Tensor) -> Iterator[Any]:
        memory = self._memory_of(tensor)
        yield memory.name if memory else Name("nothing")
        yield from (str(tensor.dtype), *tensor.shape)
        if memory:
            yield from (*tensor.stride(), tensor.storage_offset())


def geometry(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The sizes and strides of tensors."""
    return {n for tensor in tensors for n in (0, 1, tensor.numel(), *tensor.shape, *tensor.stride())}


def given(value: Any, describe: Callable[[torch.Tensor], Iterable[Any]], depth: int = 0) -> Iterator[Any]:
    """What stands in nested arguments, flat; `describe` gives the like for a tensor."""
    value = value.value if type(value) is tl.constexpr else value
    if isinstance(value, torch.Tensor):
        yield from describe(value)
    elif value is None or isinstance(value, bool | str | bytes):
        yield value
    elif isinstance(value, int):
        yield int.__index__(value)
    elif isinstance(value, float):
        yield "nan" if value != value else float.__float__(value)
    elif isinstance(value, complex):
        yield str(complex(value))
    elif isinstance(value, dict | list | tuple | set | frozenset):
        items = list(value.items()) if isinstance(value, dict) else list(value)
        yield len(items)
        for item in items if depth < MAX_DEPTH else ():
            yield from given(item, describe, depth + 1)
    elif isinstance(value, torch.dtype | torch.device | tl.dtype):
        yield str(value)
    elif isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        yield getattr(value, "__qualname__", value.__name__)
    else:
        yield from _of_object(value, describe, depth)


def _of_object(value: Any, describe: Callable[[torch.Tensor], Iterable[Any]], depth: int) -> Iterator[Any]:
    """The name and literals of a function, the fields of anything else, such as a tensor descriptor."""
    function = getattr(value, "fn", value)  # of a kernel
    if isinstance(function, types.FunctionType):
        yield function.__qualname__
        yield from given(
            [c for c in function.__code__.co_consts if not isinstance(c, types.CodeType)], describe, depth + 1
        )
        return
    yield type(value).__qualname__
    if depth < MAX_DEPTH:
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        fields = {**getattr(value, "__dict__", {}), **{n: getattr(value, n, None) for n in slots if isinstance(n, str)}}
        yield from given({n: v for n, v in fields.items() if not n.startswith("__")}, describe, depth + 1)
