"""A submission that reshapes first meets what a check of strides or of offsets is about."""

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from tests import operators
from tests.families import Case, Subject

MEMORY = 16 << 30  # of which nearly nothing is touched
INNER = {
    "vector_add": 0,
    "flash_attention": 2,
    "grouped_matmul": 3,
    "allgather_matmul": 3,
}  # dimensions that are no batch, of the largest tensor; of others one


def checks(ending: str) -> Iterator[tuple[str, Callable]]:
    """The checks of all operators whose names end so."""
    for path in sorted(operators.HERE.glob("*/test_*.py")):
        module = importlib.import_module(f"tests.{path.parent.name}.{path.stem}")
        for name, test in vars(module).items():
            if name.startswith("test_") and name.endswith(ending):
                yield f"{path.parent.name}-{name}", test


def calls(test: Callable) -> Iterator[dict[str, Tensor]]:
    """The inputs of each case by name, as they are once all batch dimensions are reshaped into one."""
    subject: Subject = inspect.getclosurevars(test).nonlocals["subject"]
    marks = test.pytestmark  # type: ignore[attr-defined]
    [cases] = [mark.args[1] for mark in marks if mark.name == "parametrize"]
    operator = operators.operator_of(subject.function)
    n_inner = INNER.get(operator.name, 1)
    names = [one for one in operators.functions()[subject.function].inputs if one not in dict(operator.tables)]
    for number, case in enumerate(cases):
        named = dict(zip(names, reshaped(case, subject, number, n_inner), strict=True))
        yield {name: x for name, x in named.items() if name not in operator.heap}


def reshaped(case: Case, subject: Subject, number: int, n_inner: int) -> Iterator[Tensor]:
    tensors = case.tensors(subject, torch.Generator().manual_seed(number), MEMORY)
    tensors = tensors if isinstance(tensors[0], Tensor) else tensors[0]  # of the first rank
    batch = tensors[0].shape[: max(x.ndim for x in tensors) - n_inner]
    for x in tensors:
        yield x.reshape(-1, *x.shape[len(batch) :]) if x.shape[: len(batch)] == batch else x


def dense(x: Tensor) -> tuple[int, ...]:
    return torch.empty(x.shape, device="meta").stride()


@pytest.mark.parametrize("test", [pytest.param(test, id=name) for name, test in checks("_strides")])
def test_no_stride_serves_for_another(test):
    """Neither that of a contiguous tensor nor that of another input, in any dimension"""
    seen = list(calls(test))
    for name, axis in ((name, axis) for name, x in seen[0].items() for axis in range(x.ndim)):
        assert any(call[name].stride(axis) != dense(call[name])[axis] for call in seen), (name, axis)
    for (one, x), (other, y) in itertools.combinations(seen[0].items(), 2):
        for axis in range(x.ndim if x.ndim == y.ndim else 0):
            assert any(call[one].stride(axis) != call[other].stride(axis) for call in seen), (one, other, axis)


@pytest.mark.parametrize("test", [pytest.param(test, id=name) for name, test in checks("_offsets")])
def test_offsets_are_over_32_bits_in_every_case(test):
    for call in calls(test):
        reach = [sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) for x in call.values()]
        assert max(reach) >= 2**31 - 1
