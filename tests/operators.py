"""What an operator is: tests/<operator>/record.py names its functions, their inputs and results."""

import functools
import importlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Function:
    """A function that students write.

    Attributes:
        name: as the submission's package exports it.
        problem: whose points depend on it; "" of one that stands between two problems and costs its own checks alone.
        inputs: names of its tensors, in order.
        outputs: names of its results, in order.
        oracle: the oracle's function that says what it returns; see oracle().
        is_backward: whether it computes gradients.
        in_triton: whether the work has to be that of kernels; otherwise it is PyTorch, tile by tile.
        sums_rows: whether host code may compute rowsum(A ∘ B), one number a row, of what kernels load.
        forward: of a differentiable function or a backward pass, the function whose gradients it gives.
        gradients: of a differentiable function, the one that computes them.
        unseen: of a backward pass, inputs of the forward one that it does not get, each with the input of its form.
    """

    name: str
    problem: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    oracle: str
    is_backward: bool = False
    in_triton: bool = True
    sums_rows: bool = False
    forward: str = ""
    gradients: str = ""
    unseen: tuple[tuple[str, str], ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """The inputs that its forward pass has left: results of it."""
        forward = functions().get(self.forward)
        return tuple(name for name in self.inputs if forward and name in forward.outputs)


@dataclass(frozen=True)
class Problem:
    """A part of the grade, or of what is beside it, and the handout's section on it."""

    name: str
    title: str
    section: str


def counted(n: int, one: str, several: str) -> str:
    return f"{n} {one if n == 1 else several}"


@dataclass(frozen=True)
class Operator:
    """Functions that belong together, in one file of the submission.

    Attributes:
        name: of its folders, tests/<name>/ and assignment/operators/<name>/.
        file: of the submission, such as "cs336_kernels/rmsnorm.py".
        position: its place in the course.
        sized_by: the input that tells the size of a call; of a function without it the first does.
        vectors: inputs of shape (d,) that all rows share; all rows add to their gradients.
        rows_at: of a result whose rows are numbered anew in each entry of a batch, their dimension.
        structure: inputs whose values host code sees and may compute with, as those of groups: how many rows each has.
            They are drawn from a stream of their own: tests/inputs.py has apart().
        heap: inputs to which kernels of all ranks store: parts of the symmetric heap. Where there are some, a call is
            one of several ranks: door.Run.ranks.
        tables: inputs that hold the address of one of the heap on each rank, each with that one. Only kernels see it.
        count: what the plainest computation holds at once, of the inputs by name; by default the elements of one.
        say: the size of a call, of the inputs by name; by default "96 rows of 40".
        follows: where no course grades it: the problem after which it is proposed for practice, "" of what comes
            before all; None of what every course grades that does not say otherwise.
    """

    name: str
    file: str
    position: int
    problems: tuple[Problem, ...]
    functions: tuple[Function, ...]
    sized_by: str = ""
    vectors: tuple[str, ...] = ()
    rows_at: dict[str, int] = field(default_factory=dict, hash=False)
    structure: tuple[str, ...] = ()
    heap: tuple[str, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()
    count: Callable[[dict[str, Any]], int] | None = None
    say: Callable[[dict[str, Any]], str] | None = None
    follows: str | None = None

    @property
    def is_apart(self) -> bool:
        """Whether the package imports its file only where a course grades it."""
        return "/practice/" in self.file

    def largest(self, named: dict[str, Any]) -> Any:
        """Return the input that tells the size of a call, of all inputs by name; raises KeyError if there is none."""
        names = [name for name in (self.sized_by, *named) if name in named]
        return named[names[0]] if names else named[self.sized_by]

    def elements(self, named: dict[str, Any]) -> int:
        """Return what the plainest computation holds at once."""
        return self.count(named) if self.count else self.largest(named).numel()

    def in_words(self, named: dict[str, Any]) -> str:
        """Return the size of a call."""
        if self.say:
            return self.say(named)
        *batch, d = self.largest(named).shape
        return f"{counted(math.prod(batch), 'row', 'rows')} of {d}"


@functools.cache
def operators() -> tuple[Operator, ...]:
    """Return all operators; those that are usually for practice come last."""
    folders = [path.parent.name for path in HERE.glob("*/record.py")]
    found = [importlib.import_module(f"tests.{folder}.record").OPERATOR for folder in folders]
    return tuple(sorted(found, key=lambda operator: (operator.follows is not None, operator.position)))


@functools.cache
def functions() -> dict[str, Function]:
    """Return all functions by name."""
    return {function.name: function for operator in operators() for function in operator.functions}


@functools.cache
def problems() -> dict[str, Problem]:
    """Return all problems by name."""
    return {problem.name: problem for operator in operators() for problem in operator.problems}


@functools.cache
def operator_of(name: str) -> Operator:
    """Return the operator of a function or problem; raises KeyError."""
    for operator in operators():
        if name in (*(one.name for one in operator.functions), *(one.name for one in operator.problems)):
            return operator
    raise KeyError(name)


class About(TypedDict):
    """What processes that run a function are told beside its name."""

    file: str
    results: list[str]
    in_triton: bool
    is_backward: bool
    sums_rows: bool
    rows_at: dict[str, int | None]
    structure: list[int]  # places among its inputs
    heap: dict[str, int]  # places by name
    tables: list[list[int]]  # pairs of places: that of a table, and of what it has the addresses


class Called(TypedDict):
    """The part of a request that says which function it is about."""

    function: str
    about: About


def about(name: str) -> About:
    """Return what processes that run a function are told beside its name: plain data. Of an unknown one, the usual."""
    function, (operator, places) = functions().get(name), _inputs_of(name)
    heap, tables = (operator.heap, operator.tables) if operator else ((), ())
    return {
        "file": operator_of(name).file if function else "",
        "results": list(function.outputs) if function else [],
        "in_triton": function is None or function.in_triton,
        "is_backward": function is not None and function.is_backward,
        "sums_rows": function is not None and function.sums_rows,
        "rows_at": _rows_at(function) if function else {},
        "structure": _structure(name),
        "heap": {one: place for one, place in places.items() if one in heap},
        "tables": [[places[table], places[of]] for table, of in tables if table in places],
    }


def _rows_at(function: Function) -> dict[str, int | None]:
    """Return the dimension of the rows of results; None of one that has none, since all rows add to it."""
    operator = operator_of(function.name)
    shared = [f"grad_{name}" for name in operator.vectors]
    return operator.rows_at | {name: None for name in function.outputs if name in shared}


def _structure(name: str) -> list[int]:
    """Return the places of the inputs that are structure."""
    operator, places = _inputs_of(name)
    return [places[one] for one in places if operator and one in operator.structure]


def _inputs_of(name: str) -> tuple[Operator | None, dict[str, int]]:
    """Return a function's operator and the places of its inputs, of a peer's function those of the submission's."""
    function = functions().get(name.rpartition("__")[2])
    if not function:
        return None, {}
    return operator_of(function.name), {one: place for place, one in enumerate(function.inputs)}


def called(name: str) -> Called:
    """Return the part of a request that says which function it is about."""
    return {"function": name, "about": about(name)}


def named_by(claim: str) -> Function:
    """Return the function with whose name a check's claim begins; raises KeyError."""
    return functions()[re.match(r"\w*", claim)[0]]  # type: ignore[index]


@functools.cache
def of_oracle(name: str) -> Function:
    """Return the first function that is to return what this one of the oracle's does."""
    return next(function for function in functions().values() if function.oracle == name)


def oracle(name: str) -> Callable[..., Any]:
    """Return the oracle's function of this name, in tests/<operator>/oracle.py."""
    return _in_folder(of_oracle(name), "oracle")


def model(function: str) -> Callable[..., Any]:
    """Return what bounds the results of a function: that of its oracle's name in tests/<operator>/models.py."""
    return _in_folder(functions()[function], "models")


def _in_folder(function: Function, module: str) -> Callable[..., Any]:
    folder = operator_of(function.name).name
    return getattr(importlib.import_module(f"tests.{folder}.{module}"), function.oracle)


def named(function: str, tensors: Sequence[Any]) -> dict[str, Any]:
    """Return a function's input tensors by name; raises ValueError where there are more or fewer."""
    return dict(zip(functions()[function].inputs, tensors, strict=True))
