"""What a launch or a warm-up gives back: a kernel, launched by [grid], and what only the compiler knows of it."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import torch
import triton.language as tl

from assignment.protocol.messages import Value

from .kernel_values import Grid, LaunchArgument, static
from .streams import NotThere
from .triton_private import InterpretedFunction

_ROOT = Path(__file__).parents[2]
_PATIENCE_S = 120
_USUAL = {"warps": 4, "stages": 3}
_BY_COMPILER = ("registers", "spills", "shared")


class Figures(Protocol):
    """What a compiled kernel is asked for: registers, spills, shared (bytes), warps, stages."""

    def __getitem__(self, name: str) -> int: ...


class CompiledStandIn:
    """The result of a launch or a warm-up: launchable, with the compiled kernel's figures."""

    n_max_threads = 1024
    module = function = 0

    def __init__(self, launch: Callable[..., None], figures: Figures) -> None:
        self._launch, self._figures = launch, figures
        self.metadata = Metadata(figures)

    n_regs = property(lambda self: self._figures["registers"])
    n_spills = property(lambda self: self._figures["spills"])
    asm = property(lambda self: self._figures.code)

    def _init_handles(self) -> None: ...

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        return lambda *args, **options: self._launch(grid, *args)


class Metadata:
    """The metadata of a compiled kernel."""

    num_ctas, name = 1, "kernel"

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    shared = property(lambda self: self._figures["shared"])
    num_warps = property(lambda self: self._figures["warps"])
    num_stages = property(lambda self: self._figures["stages"])


class CompilersFigures:
    """A kernel's figures, compiled for an H100 when the first is asked for, in a process of its own.

    In this one Triton's language is the simulator's.
    """

    def __init__(
        self,
        kernel: InterpretedFunction,
        values: Mapping[str, LaunchArgument],
        options: Mapping[str, LaunchArgument],
    ) -> None:
        self._kernel, self._values = kernel, values
        self._options = {name: static(value) for name, value in options.items() if name not in values}

    def __getitem__(self, name: str) -> int:
        if name in _BY_COMPILER:
            return self._compiled[name]  # type: ignore[return-value]
        return self._options.get(f"num_{name}", _USUAL[name])

    @property
    def code(self) -> dict[str, str]:
        """Its code by language, as "ptx"."""
        return self._compiled["asm"]  # type: ignore[return-value]

    @functools.cached_property
    def _compiled(self) -> dict[str, Value]:
        """What the compiler answers; raises NotThere, with the reason, where it cannot be asked."""
        answer: dict[str, Value] = {}
        try:
            answer = _answer_to(self._question())
            why = answer.get("error")
        except (TypeError, ValueError, subprocess.SubprocessError, OSError) as error:
            why = str(error)
        if why:
            remedy = "python -m assignment.compiling SCRIPT prints registers and shared memory"
            who = self._kernel.__name__
            raise NotThere(f"{who}: only the compiler knows its registers and its code, and {why}: {remedy}")
        return answer

    def _question(self) -> dict[str, Value]:
        options: dict[str, Value] = {
            name: x for name, x in self._options.items() if isinstance(x, bool | int | float | str)
        }
        return {
            "path": str(Path(self._kernel.fn.__code__.co_filename).resolve()),
            "module": self._kernel.fn.__module__,
            "kernel": self._kernel.__name__,
            "arguments": {name: _described(value) for name, value in self._values.items()},
            "options": options,
        }


def _answer_to(question: dict[str, Value]) -> dict[str, Value]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "assignment.compiling.asked"]
    done = subprocess.run(
        command, input=json.dumps(question), cwd=_ROOT, env=environment, capture_output=True, text=True,
        timeout=_PATIENCE_S,
    )  # fmt: skip
    said = done.stdout.strip().rpartition("\n")[2]  # imports may print
    answer: dict[str, Value] = json.loads(said) if said else {"error": done.stderr.strip().rpartition("\n")[2]}
    return answer


def _described(value: LaunchArgument) -> Value:
    """Return an argument as the compiler needs it, as JSON; raises TypeError for one that cannot be written so."""
    value = static(value)
    if isinstance(value, torch.Tensor) or (hasattr(value, "data_ptr") and hasattr(value, "dtype")):
        dtype = str(getattr(value, "base", value).dtype).removeprefix("torch.")
        return {"tensor": dtype, "aligned": value.data_ptr() % 16 == 0}
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} is not passed on to it")
