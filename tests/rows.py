"""What operators on rows share: x of shape (..., d) and a weight of shape (d,)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Generator, Tensor

from tests import common, layouts, operators
from tests.families import (
    DTYPES,
    LOW_PRECISION,
    SLACK,
    Case,
    Cases,
    Rounds,
    Subject,
    Test,
    built,
    compiles,
    contract,
    in_dtypes,
    laid_out,
    mistakes,
    moved,
    shapes,
    size,
    speed,
    traffic,
    values,
    with_options,
)
from tests.inputs import MOST, TILE, between, drawn, longer, normal

Shape = tuple[int, ...] | Callable[[Generator], tuple[int, ...]]  # of x


def long_matrix(rng: Generator) -> tuple[int, ...]:
    return longer(rng), TILE


def wide_matrix(rng: Generator) -> tuple[int, ...]:
    return TILE, longer(rng)


def wide_batches(rng: Generator) -> tuple[int, ...]:
    return between(rng, 1, 2), TILE, longer(rng)


def batches_of_rows(rng: Generator) -> tuple[int, ...]:
    return between(rng, 2, 3), TILE, TILE


def many_rows(rng: Generator) -> tuple[int, ...]:
    """Some 2,000 rows, whose quarters are odd: rows a quarter apart are not those of one program."""
    return 4 * (2 * between(rng, 208, 304) + 1), TILE


PLAIN = shapes(
    {
        "a matrix": long_matrix,
        "three dimensions": wide_batches,
        "four dimensions": lambda rng: (1, *batches_of_rows(rng)),
        "several tiles in each program": Rounds(lambda n: (n, TILE), first=TILE, tile=TILE // 2, most=1 << 15),
    }
)
RAGGED = shapes(
    {
        "one element": (1, 1),
        "one row, no batch dimension": (96,),
        "d = 1": (70, 1),
        "d = 8": (33, 8),
        "d = 40": (3, 17, 40),
        "d = 80": (2, 3, 5, 80),
        "fewer rows than a tile": (5, 64),
        "one row past a tile, one column past a tile": (129, 129),
        "primes": (101, 67),
        "any size": lambda rng: (3, between(rng, 1, MOST), between(rng, 1, MOST)),
        "one wide row": (1, 1000),
        "over a thousand rows": (1031, 5),
    }
)
WIDE = shapes(
    {
        "wider than a block": lambda rng: (3, between(rng, 17_000, 20_000)),
        "one past a power of two": lambda rng: (2, 2 ** between(rng, 11, 13) + 1),
        "several tiles in each program": Rounds(lambda n: (n, 17_000), first=2, tile=1, most=528),
    }
)
BATCHES = shapes({"ordinary": wide_matrix, "empty batch": (0, 32)})
COSTLY = shapes({"a matrix": long_matrix, "three dimensions": wide_batches})
# Constant, unlike all others: what was compiled is remembered by its shapes, and saves half of a run.
COMPILED = shapes({"128 rows of 4096": (128, 4096)})
RACED_WIDTHS = (1024, 4096, 8192)
RACED_TWICE = 32768  # columns, which may be read twice
ONE_WALK = "one walk for all that is found of a row, and one that computes the result"

USUAL_GRADIENT = batches_of_rows
GRADIENTS = {
    ".sum().backward()": {"summed": True},
    "x only": {"wrt": (0,), "shape": wide_batches},
    "weight only": {"wrt": (1,)},
    "twice with retain_graph": {"times": 2},
    "another forward pass in between": {"interleaved": True},
}


def expanded_x(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Every row of x, the only one with more than one dimension, is the first with stride 0."""
    return [x[(0,) * (x.ndim - 1)].expand(x.shape) for x in tensors]


SHAPES = shapes({"three dimensions": batches_of_rows, "a matrix": wide_matrix})
FORWARD_STRIDES = laid_out(SHAPES, layouts.each({"each its own": layouts.each_its_own, "x expanded": expanded_x}))
BACKWARD_STRIDES = laid_out(
    SHAPES,
    layouts.each(
        {
            "each its own": layouts.each_its_own,
            "expanded gradient": layouts.expanded_gradient,
            "x expanded": lambda tensors: [tensors[0], *expanded_x(tensors[1:])],
        }
    ),
)
FORWARD_OFFSETS = laid_out(SHAPES, layouts.far({"x": (0, layouts.ROWS)}))


def backward_offsets(gradient: slice) -> Cases:
    """The incoming gradient stretched along these dimensions, or x along its rows."""
    return laid_out(SHAPES, layouts.far({"the gradient": (0, gradient), "x": (1, layouts.ROWS)}))


FORWARD_MISTAKES = {
    "weight too short": lambda x, weight, *others: (x, weight[:-1], *others),
    "rows too short": lambda x, *vectors: (x[:, :-1], *vectors),
}
BACKWARD_MISTAKES = {
    "weight too short": lambda grad, x, weight, *left: (grad, x, weight[:-1], *left),
    "rows too short": lambda grad, x, weight, *left: (grad, x[:, :-1], weight, *left),
}
MISTAKE_SHAPE = (4, 24)


def row_inputs(rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """x and a weight whose entries are negative, zero and far from 1, so that a forgotten weight shows."""
    shape = drawn(shape, rng)
    weight = normal(rng, shape[-1]) * 2 + 0.5
    if shape[-1] > 4:
        weight[shape[-1] // 2] = 0
    return normal(rng, *shape, dtype=dtype), weight.to(dtype)


def shifted_inputs(rng: Generator, shape: Shape, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """x whose rows have means of their own, a weight as that of row_inputs, and a bias far from 0."""
    x, weight = row_inputs(rng, shape, dtype)
    x = (x.float() + 2 * normal(rng, *x.shape[:-1], 1)).to(dtype)
    return x, weight, (normal(rng, x.shape[-1]) - 1.5).to(dtype)


def of_all_sizes(x: Tensor) -> Tensor:
    """Rows from tiny to large, and one of zeros."""
    x = x * torch.logspace(-5, 2, len(x)).view(-1, *[1] * (x.ndim - 1))
    x[len(x) // 2] = 0
    return x


def with_outliers(x: Tensor, large: float, larger: float, spike: float) -> Tensor:
    """Of four rows one is `larger`, one `large` and one has a spike."""
    x = x.clone()
    x[::4] *= larger
    x[1::4] *= large
    x[2::4, 5] = spike
    return x


def every_other_small(x: Tensor) -> Tensor:
    """Every other row is so small that the default eps shows."""
    x = x.clone()
    x[::2] *= 1e-3
    return x


def of_eps(shape: Shape, default_shape: Shape, *values_of_eps: float) -> Cases:
    """The default, and others."""
    return {"default": Case(default_shape)} | {f"{eps}": Case(shape, options={"eps": eps}) for eps in values_of_eps}


@dataclass(frozen=True)
class Pass:
    """A forward or a backward pass as its common checks call it.

    Attributes:
        subject: what most of them call.
        low: the cases in 16 bits.
        read: inputs as large as x.
        written: results that are written once.
        reach: of a copy's speed, for full points.
        plain: what the checks of cost call, if it is something else.
        wide: rows wider than any block.
        costly: of the checks of cost.
        changes: further calls that raise ValueError.
        ways: the options of every case, by a name; the default ones.
        outliers: builders of inputs for a check of outliers.
        twice: cases with rows so wide that inputs may be read twice, and the reach for such rows.
    """

    subject: Subject
    low: Cases
    read: Sequence[str]
    written: Sequence[str]
    reach: float
    plain: Subject | None = None
    wide: Cases = field(default_factory=lambda: WIDE)
    costly: Cases = field(default_factory=lambda: COSTLY)
    changes: Mapping[str, Callable[..., Sequence[Tensor]]] = field(default_factory=dict)
    ways: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    outliers: Sequence[Callable[..., Sequence[Tensor]]] = ()
    twice: tuple[Cases, float] = field(default_factory=lambda: ({}, 1.0))

    def every(self, cases: Cases) -> Cases:
        """Return the cases with the options of each."""
        return with_options(cases, self.ways) if self.ways else cases


def checks(
    name: str,
    forward: Pass,
    backward: Pass,
    compiled: Cases | None = None,
    elements: int = 1 << 28,
    but: common.Claims = MappingProxyType({}),
) -> dict[str, Test]:
    """Return the checks that operators on rows have in common, by name: points and claims are in tests/common.py.

    Args:
        name: the operator's.
        compiled: what is compiled, if it is not a case of float32 and one of bfloat16.
        elements: of x on a GPU: half a GB in bfloat16, so that a launch by Python takes less than what it launches.
        but: points and claims of some checks, where they are other ones, by name without "test_".
    """
    operator = next(one for one in operators.operators() if one.name == name)
    sides = {side: _families(own, operator, elements) for side, own in (("forward", forward), ("backward", backward))}
    families = {f"test_{side}_{name}": family for side, own in sides.items() for name, family in own.items()}
    subjects = [each.plain or each.subject for each in (forward, backward)]
    compiled = compiled or forward.every(in_dtypes(COMPILED, DTYPES))
    families["test_compiles"] = partial(compiles, subjects=subjects, cases=compiled)
    return {name: families[name](*said) for name, said in common.listed(operator, but).items()}


def _families(own: Pass, operator: operators.Operator, elements: int) -> dict[str, Callable[..., Test]]:
    """Return what makes the checks of a pass, of points and claim."""
    raced = {f"{d}": Case((elements // d, d), torch.bfloat16) for d in (*RACED_WIDTHS, RACED_TWICE)}
    raced_twice = {f"{RACED_TWICE}": raced.pop(f"{RACED_TWICE}")}
    inputs = operators.functions()[own.subject.function].inputs
    is_backward = operators.functions()[own.subject.function].is_backward
    strides = BACKWARD_STRIDES if is_backward else FORWARD_STRIDES
    offsets = laid_out(SHAPES, layouts.far({name: (inputs.index(name), layouts.ROWS) for name in own.read}))
    shared = [name for name in inputs if name in own.read or name in operator.vectors]
    changes = {f"{name} too short": _shortened(inputs.index(name)) for name in shared if len(shared) > 1}
    costly = partial(traffic, subject=own.plain or own.subject, read=own.read, written=own.written)
    return {
        "ragged": partial(values, subject=own.subject, cases=own.every(RAGGED)),
        "wide": partial(values, subject=own.subject, cases=own.every(own.wide)),
        "16_bit": partial(values, subject=own.subject, cases=own.every(in_dtypes(own.low, LOW_PRECISION))),
        "strides": partial(values, subject=own.subject, cases=own.every(strides)),
        "offsets": partial(values, subject=own.subject, cases=own.every(offsets)),
        "contract": partial(contract, subject=own.subject, cases=own.every(BATCHES), has_rows=not is_backward),
        "mistakes": partial(mistakes, subject=own.subject, shape=MISTAKE_SHAPE, changes=changes | {**own.changes}),
        "traffic": partial(costly, cases=own.every(in_dtypes(own.costly, DTYPES))),
        "speed": partial(speed, cases=raced, against="copying", reach=own.reach),
        "outliers": partial(values, subject=own.subject, cases=own.every(built(own.outliers))),
        "wide_traffic": partial(costly, cases=own.twice[0], read=[], beyond=_at_most_twice(own.read)),
        "wide_speed": partial(speed, cases=raced_twice, against="copying", reach=own.twice[1]),
    }


def _at_most_twice(names: Sequence[str]) -> Callable[[Any, Mapping[str, Tensor], Case], None]:
    """Return a check of costs: what reads one of these inputs more than twice is too much."""

    def beyond(costs: Any, tensors: Mapping[str, Tensor], case: Case) -> None:
        for nbytes, (name, tensor) in zip(costs.read, tensors.items(), strict=True):
            if name in names:
                moved("read", name, nbytes, size(tensor), 2, SLACK * size(tensor), ONE_WALK)

    return beyond


def _shortened(position: int) -> Callable[..., Sequence[Tensor]]:
    """Return a change of inputs: one of them has a column too few."""
    return lambda *tensors: [x[..., :-1] if i == position else x for i, x in enumerate(tensors)]
