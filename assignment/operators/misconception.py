"""A misconception: what a student plausibly computed, as a small model, and what to tell of it."""

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

TILES = (16, 32, 64, 128)  # that kernels use
MOST_PAIRS = 40  # of a function
FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT32_LEAST = 2.0**-149


@dataclass(frozen=True)
class Call:
    """A call of the submission whose result was wrong."""

    function: str  # as the oracle calls it
    tensors: Sequence[Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] | None = None  # that were looked at; all
    way: str = ""  # in which it may have been done, of those in Models.ways

    def looked_at(self, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return outputs if self.outputs is None else [outputs[i] for i in self.outputs]

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs: of a backward pass that of the incoming gradient."""
        return self.tensors[0].dtype


# All that somebody may have computed instead: each the outputs in float64. More than one where it depends on tiles.
Model = Callable[[Call], Iterable[Sequence[Tensor]]]


@dataclass(frozen=True)
class Misconception:
    """One way to be wrong."""

    name: str  # unique
    says: str  # "Your o equals …": what was computed, in one sentence
    look: str  # where to look, without the solution
    section: str  # of the handout, file and anchor
    model: Model
    is_by_batch: bool = True  # what it computes of an entry of the batch depends on no other entry
    is_rare: bool = False  # told only where no other explains as much


def table(
    chapter: str, rows: str, models: Mapping[str, Model], across: Container[str] = (), prefix: str = ""
) -> list[Misconception]:
    """Return misconceptions from a table: a line "name | section | what it says | where to look" for each.

    Indented lines go on.

    Args:
        chapter: of the handout, which the sections are in.
        models: what each computes, by name.
        across: those in which the entries of a batch act on each other.
        prefix: of names, which are unique.

    Raises:
        ValueError: unless table and models have the same names.
    """
    lines = re.sub(r"\n +", " ", rows.strip()).splitlines()
    told = {name: cells for name, *cells in (line.split(" | ") for line in lines)}
    if told.keys() != models.keys():
        raise ValueError(f"expected a line and a model of each; got one only of {sorted(told.keys() ^ models.keys())}")
    return [
        Misconception(prefix + name, says, look, f"handout/{chapter}.md#{section}", models[name], name not in across)
        for name, (section, says, look) in told.items()
    ]


@dataclass(frozen=True)
class Pair:
    """Two misconceptions at once, by their names, and what both together compute."""

    one: str
    other: str
    model: Model


def nothing_apart(call: Call, misread: Sequence[Tensor]) -> list[Sequence[Tensor]]:
    """Return no results: one kernel reads everything."""
    return []


@dataclass(frozen=True)
class Models:
    """What is known of a function that may come out wrong.

    Attributes:
        misconceptions: the likelier first.
        section: of the handout, on what goes wrong.
        right: what it returns for the call's tensors, if not what the oracle says.
        apart: further results where some of the tensors are misread: by a part of the work that is a kernel of its own.
        n_inner: dimensions of the input that tells its size that are no batch.
        is_by_entry: whether each entry of the batch is a problem of its own.
        ways: in which the work of a call may be done, all of them right, the likelier first.
        pairs: of the misconceptions, which are tried where none alone explains a result; at most MOST_PAIRS.
    """

    misconceptions: list[Misconception]
    section: str
    right: Callable[[Call], Sequence[Tensor]] | None = None
    apart: Callable[[Call, Sequence[Tensor]], list[Sequence[Tensor]]] = nothing_apart
    n_inner: int = 1
    is_by_entry: bool = False
    ways: Callable[[Call], Iterable[str]] = lambda call: ("",)
    pairs: Sequence[Pair] = ()


def exp(x: Tensor) -> Tensor:
    """Return eˣ as float32 has it: infinite where that is too large, zero where it is too small."""
    y = x.exp()
    return torch.where(y > FLOAT32_MAX, math.inf, torch.where(y < FLOAT32_LEAST, 0.0, y))


def rounded(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the rounding to that dtype, and back to float64."""
    return lambda x: x.to(dtype).double()


def exact(x: Tensor) -> Tensor:
    return x


def padded_width(d: int) -> int:
    return 1 << (d - 1).bit_length()
