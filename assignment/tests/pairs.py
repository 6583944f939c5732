"""Small submissions in a recorder and a player, both real."""

import contextlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assignment.judge import program_size
from assignment.judge.pair import RecorderAndPlayer
from assignment.judge.replies import Ok, Recorded
from assignment.protocol import requests
from assignment.protocol.program import Launch, Operation, Program, Step
from assignment.sandbox.stage import Stage
from assignment.submission import Submission
from assignment.tests.graded import RUNG
from tests.operators import called

F = "weighted_sum_forward"
FILE = "cs336_kernels/weighted_sum.py"
X = torch.randn(4, 50, generator=torch.Generator().manual_seed(3))
IMPORTS = """
import torch
import triton
import triton.language as tl
"""
KERNELS = """
@triton.jit
def _copy(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)

def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), 64)
    return y
"""


@dataclass
class Desk:
    """One warm pair, for one submission after the other."""

    stage: Stage
    pair: RecorderAndPlayer

    def take(self, code: str) -> None:
        """Hold a submission of one file; `copied(x)` is there, a launch that copies."""
        text = IMPORTS + KERNELS + textwrap.dedent(code)
        self.pair.restart()
        files = {FILE: text, "cs336_kernels/__init__.py": "from .weighted_sum import *\n"}
        self.stage.replace(Submission({path: content.encode() for path, content in files.items()}))

    def ask(self, function: str, *tensors: Tensor, kind: str = "call", **more: Any) -> tuple[Any, list[Tensor]]:
        """What the judge takes from the pair for a call, and its results."""
        reply, results = self.pair.ask(request(function, kind, more), list(tensors))
        assert reply is not None
        return reply, results

    def run(self, code: str, *tensors: Tensor, function: str = "weighted_sum_forward", **more: Any) -> Any:
        """The reply for a submission whose `function` is defined by the code."""
        self.take(code)
        return self.ask(function, *tensors, **more)[0]

    def record(self, function: str, *tensors: Tensor, kind: str = "call", **more: Any) -> tuple[Recorded, Program]:
        """What the recorder says of a call, and the program that it wrote."""
        said, data = self.pair.record(request(function, kind, more), list(tensors))
        assert said is not None
        assert data is not None
        return said, program_size.read(data)

    def steps(self, code: str, *tensors: Tensor, function: str = "weighted_sum_forward", **more: Any) -> Program:
        """The program of a submission whose `function` is defined by the code; the call must return."""
        self.take(code)
        said, recorded = self.record(function, *tensors, **more)
        assert said.ended is None, said
        return recorded


def request(function: str, kind: str, more: dict[str, Any]) -> Any:
    return getattr(requests, kind.capitalize())(**{**called(function), "options": {}, **more})


def names(recorded: Program) -> list[str]:
    """The operations of PyTorch in a program, in order, and "launch" where a kernel is launched."""
    said = []
    for step in recorded.steps:
        match step:
            case Operation(operation):
                said.append(recorded.operations[operation].removeprefix("aten::").partition(".")[0])
            case Launch():
                said.append("launch")
    return said


def of(recorded: Program, *kinds: type[Step]) -> list[Any]:
    """The steps of these kinds in a program."""
    return [step for step in recorded.steps if isinstance(step, kinds)]


def defined(*lines: str, before: str = "") -> str:
    """A submission whose weighted_sum_forward(x) has these lines."""
    return f"{before}def {F}(x):\n" + "".join(f"    {line}\n" for line in lines)


def result_of(at: Desk, x: Tensor = X, kind: str = "call", **more: Any) -> Tensor:
    """The first result of a call, which must be right as far as the pair can tell."""
    reply, results = at.ask(F, x, kind=kind, **more)
    assert isinstance(reply, Ok), reply
    return results[0]


@contextlib.contextmanager
def desk() -> Iterator[Desk]:
    held = Stage(Submission({FILE: b""}))
    pair = RecorderAndPlayer(held, RUNG)
    try:
        yield Desk(held, pair)
    finally:
        pair.close()
        held.close()
