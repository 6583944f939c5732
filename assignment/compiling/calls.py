"""The calls that are compiled for a submission: those of the grade (tests/test_compile.py), and larger ones."""

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import launches
from .launches import Launch
from .targets import Target

PACKAGE = "cs336_kernels"
ROWS = (128, 4096)
TOKENS = 384
WIDTHS = (torch.float32, torch.bfloat16)
GRADED = ((torch.bfloat16, 64), (torch.bfloat16, 128), (torch.float32, 64))  # dtype and d
LARGER = ((torch.bfloat16, 256), (torch.float32, 128))


@dataclass(frozen=True)
class Call:
    """A call of a function of the submission."""

    function: str
    label: str
    tensors: tuple[Tensor, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    is_graded: bool = True

    @property
    def title(self) -> str:
        return f"{self.function}, {self.label}" if self.label else self.function


@dataclass
class Noted:
    """What came of a call on one target: its launches, and what stopped it."""

    call: Call
    target: Target
    launches: list[Launch]
    stopped: BaseException | None = None


def of_submission() -> Iterator[Call]:
    """Every call that a whole submission is compiled for."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=random).to(dtype)

    for dtype in WIDTHS:
        x, weight, label = normal(*ROWS, dtype=dtype), normal(ROWS[1], dtype=dtype), f"{named(dtype)}, n {ROWS[1]}"
        rstd = x.float().square().mean(dim=-1).rsqrt()
        yield Call("weighted_sum_forward", label, (x, weight))
        yield Call("weighted_sum_backward", label, (normal(ROWS[0], dtype=dtype), x, weight))
        yield Call("rmsnorm_forward", label, (x, weight))
        yield Call("rmsnorm_backward", label, (normal(*ROWS, dtype=dtype), x, weight, rstd))
    for function in ("flash_forward_triton", "flash_backward_triton"):
        for dtype, d in (*GRADED, *LARGER):
            q, k, v = (normal(2, TOKENS, d, dtype=dtype) for _ in range(3))
            lse = normal(2, TOKENS, dtype=torch.float32)
            tensors = (q, k, v) if "forward" in function else (v, q, k, v, k, lse)
            is_graded = (dtype, d) in GRADED
            for is_causal in (False, True) if is_graded else (True,):  # which takes as much, and more registers
                label = f"{named(dtype)}, d {d}{', causal' if is_causal else ''}"
                yield Call(function, label, tensors, {"is_causal": is_causal}, is_graded)


def named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def load(folder: Path) -> Any:
    """The package in the folder; raises whatever its import raises."""
    sys.path.insert(0, str(folder))
    return importlib.import_module(PACKAGE)


def noted(call: Call, function: Callable, target: Target) -> Noted:
    """Make the call with its launches noted down. What it raises is kept."""
    with launches.recorded(target) as found:
        try:
            function(*call.tensors, **call.options)
        except Exception as error:
            return Noted(call, target, found, error)
    return Noted(call, target, found)
