"""What is timed: a function on inputs of one size, with the least that it must move and compute.

Bytes are those that have to cross the GPU's memory bus once, operations those of the products of matrices.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests import compare, operators

COPYING = "copying"  # the peer that stands for an amount of memory to move
ELEMENTS = 1 << 28  # of x, at every width
CHECKED_ROWS = 32
CHECKED_COLUMNS = 8
Check = Callable[[Sequence[Tensor]], float]  # of results; returns the largest error over its bound, or raises Mismatch


@dataclass(frozen=True)
class Spec:
    """A contiguous tensor to be.

    Attributes:
        values: of structure, which is the same in all calls.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    values: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


@dataclass(frozen=True)
class Panel:
    """A picture of a bench: a value against the size, a line for each contestant.

    Of two functions the second is drawn broken; of one, what has an option on.
    """

    title: str
    functions: tuple[str, ...]
    size: str  # of a bench's row: "n" or "d"
    size_in_words: str
    value: str  # of a bench's row; microseconds are drawn by their logarithm
    value_in_words: str
    d: int | None = None  # the only one that is drawn


def panel_of_rows(title: str, operator: str) -> Panel:
    """Return the picture of an operator on rows: bytes a second by the width, forward and backward."""
    return Panel(
        title=f"{title}: forward (full lines), backward (broken)",
        functions=(f"{operator}_forward", f"{operator}_backward"),
        size="d",
        size_in_words="width d",
        value="tb_per_s",
        value_in_words="TB/s",
    )


def nothing_compiled() -> list[tuple["Workload", bool]]:
    """Return what is compiled for GPUs that are not there: practice is compiled by its own check."""
    return []


def pick_rows(
    work: "Workload",
    named: dict[str, Tensor],
    chance: random.Random,
    is_strict: bool,
    model_of: Callable[["Workload", list[int]], Callable[..., dict[str, compare.Expected]]] | None = None,
) -> Check:
    """Return a check of rows of all results, but of columns of the vectors' gradients, to which each row adds.

    model_of: the model of some rows, where it depends on which they are.
    """
    fewer = 1 if is_strict else 4
    n_rows, d = work.largest.shape
    rows = sorted(chance.sample(range(n_rows), min(n_rows, CHECKED_ROWS // fewer)))
    columns = sorted(chance.sample(range(d), min(d, CHECKED_COLUMNS // fewer)))
    vectors = operators.operator_of(work.function).vectors
    by_row = {name: (tensor.clone() if name in vectors else tensor[rows]).cpu() for name, tensor in named.items()}
    summed = [name for name in work.outputs if name.removeprefix("grad_") in vectors]
    by_column = {}
    if summed:
        by_column = {
            name: (tensor[..., columns] if name in vectors or tensor.ndim == 2 else tensor.clone()).cpu()
            for name, tensor in named.items()
        }
    model = operators.model(work.function)

    def check(results: Sequence[Tensor]) -> float:
        of_rows = model_of(work, rows) if model_of else model
        expected = of_rows(*by_row.values(), **work.options)
        if by_column:
            of_columns = model(*by_column.values(), **work.options)
            expected |= {name: of_columns[name] for name in summed}
        where = [columns if name in summed else rows for name in work.outputs]
        came = tuple(result[part].cpu() for result, part in zip(results, where, strict=True))
        return compare.worst_margin(came if len(came) > 1 else came[0], expected)

    return check


def hand_on_nothing(named: dict[str, Tensor]) -> None:
    """Leave the inputs as they are: no forward pass left any."""


@dataclass(frozen=True)
class Workload:
    """A function of the submission with its inputs' and results' shapes."""

    function: str
    inputs: dict[str, Spec]
    outputs: dict[str, Spec]
    options: dict[str, Any] = field(default_factory=dict)
    operations: float = 0.0  # of products of matrices
    arithmetic: float = 0.0  # of elements, where there is no product
    hand_on: Callable[[dict[str, Tensor]], None] = hand_on_nothing  # writes what a forward pass would have left
    picked: Callable[["Workload", dict[str, Tensor], random.Random, bool], Check] = pick_rows

    @property
    def nbytes(self) -> int:
        """What must be read and written at least."""
        return sum(spec.nbytes for spec in (*self.inputs.values(), *self.outputs.values()))

    @property
    def largest(self) -> Spec:
        """The input that tells its size."""
        return operators.operator_of(self.function).largest(self.inputs)

    def fill(self, tensors: Sequence[Tensor], memory: Any, generator: torch.Generator) -> None:
        """Write new values of the memory's into one slot; for a backward pass, what a forward pass would have left."""
        named = dict(zip(self.inputs, tensors, strict=True))
        for name, tensor in named.items():
            if (values := self.inputs[name].values) is None:
                memory.randomize(tensor, generator)
            else:
                tensor.copy_(torch.tensor(values).reshape(tensor.shape))
        self.hand_on(named)

    def pick(self, tensors: Sequence[Tensor], chance: random.Random, is_strict: bool = True) -> Check:
        """A check of some part of the results, which is drawn now."""
        return self.picked(self, dict(zip(self.inputs, tensors, strict=True)), chance, is_strict)


def built(function: str, shape: Sequence[int], dtype: torch.dtype, options: dict[str, Any]) -> Workload:
    """The work of a function of the submission at one size."""
    from assignment.operators import part  # which build on this module

    is_backward = operators.functions()[function].is_backward
    return part(function, "workload").workload(*shape, dtype, backward=is_backward, **options)
