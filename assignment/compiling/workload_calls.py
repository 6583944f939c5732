"""The calls that are compiled for a submission: those of the grade, and larger ones."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from assignment.protocol.messages import Options

from . import launches
from .launches import CompiledLaunch
from .targets import Target

PACKAGE = "cs336_kernels"


@dataclass(frozen=True)
class WorkloadCall:
    """A call of a function of the submission."""

    function: str
    label: str
    tensors: tuple[Tensor, ...] = ()
    options: Options = field(default_factory=dict)
    is_graded: bool = True

    @property
    def title(self) -> str:
        return f"{self.function}, {self.label}" if self.label else self.function


@dataclass
class Noted:
    """The results of a call on one target: its launches, and what stopped it."""

    call: WorkloadCall
    target: Target
    launches: list[CompiledLaunch]
    stopped: BaseException | None = None


def of_submission() -> Iterator[WorkloadCall]:
    """Yield every call that a whole submission is compiled for."""
    from assignment import operators  # not there in a process that compiles

    random = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    for workload in operators.parts("workload"):
        for work, is_graded in workload.compiled():
            tensors = tuple(normal(*spec.shape, dtype=spec.dtype) for spec in work.inputs.values())
            switches = [name.removeprefix("is_") for name, value in work.options.items() if value is True]
            label = ", ".join([named(work.largest.dtype), f"d {work.largest.shape[-1]}", *switches])
            yield WorkloadCall(work.function, label, tensors, work.options, is_graded)


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def load(folder: Path) -> ModuleType:
    """Return the package in the folder; raises whatever its import raises."""
    sys.path.insert(0, str(folder))
    return importlib.import_module(PACKAGE)


def noted(call: WorkloadCall, function: Callable, target: Target) -> Noted:
    """Make the call with its launches recorded; its exception is kept in the result."""
    with launches.recorded(target) as found:
        try:
            function(*call.tensors, **call.options)
        except Exception as error:
            return Noted(call, target, found, error)
    return Noted(call, target, found)
