"""What a compiler sees of a call: the operators of torch.library that it makes, with data and without.

A compiler calls host code on fake tensors, which have a shape, a dtype, strides and nothing else; an operator answers
by its fake implementation. The tape gets what each operator returned: of a call with data, and of one without.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any
from unittest import mock

import torch

from assignment.calling import requests
from assignment.protocol.messages import Value
from assignment.protocol.program import OperatorCall, View
from assignment.protocol.requests import Traced
from assignment.pytorch_private import (
    Argument,
    Arguments,
    FakeTensor,
    FakeTensorMode,
    Keywords,
    OpOverload,
    disable_current_modes,
    faked,
    tensors_of,
)
from assignment.simulator import bodies
from assignment.simulator.streams import GPU
from assignment.whose import theirs

from .tape import Tape

logging.getLogger("torch._subclasses.fake_tensor").disabled = True  # it prints a stack beside each exception


class Operators(bodies.DispatchMode):
    """Notes each operator of host code on the tape, with the forms of what it returns."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(
        self, func: OpOverload, types: Collection[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Argument:
        result = theirs(func, *args, **(kwargs or {}))
        if bodies.is_custom(func):
            views = map(View.of, tensors_of(result))
            forms: list[list[Value]] = [[view.dtype, [*view.sizes], [*view.strides]] for view in views]
            self._tape.step(OperatorCall(str(func._schema), forms, self._tape.line()))
        return result


def traced(tape: Tape, function: Callable, request: Traced, tensors: Sequence[torch.Tensor]) -> None:
    """Call a differentiable function, and its backward pass, on these tensors and then on fakes of them."""
    with Operators(tape):
        inputs = [tensor.requires_grad_() for tensor in tensors]
        _gradients(requests.differentiable(function, request.options, inputs), inputs)
    tape.begin_again()
    mode = FakeTensorMode()
    with disable_current_modes():
        fakes = [faked(mode, tensor) for tensor in tensors]
        with _on_gpu(tape), mode, Operators(tape):
            output = theirs(function, *fakes, **request.options)
            if not isinstance(output, FakeTensor) or not output.requires_grad:
                raise requests.WrongReturn("returned something other than a tensor with a gradient")
            _gradients(output, fakes)


def _gradients(output: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    theirs(torch.autograd.grad, output, inputs, torch.ones_like(output), allow_unused=True)


@contextlib.contextmanager
def _on_gpu(tape: Tape) -> Iterator[None]:
    """Have host code inside hear that a tensor without data is on the GPU; PyTorch's own needs to know where it is."""
    device: Any = vars(FakeTensor)["device"].fget
    told = property(lambda fake: GPU if tape.is_own(sys._getframe(1)) else device(fake))
    with mock.patch.object(FakeTensor, "device", told):
        yield
