"""Support for scripts that ask for a GPU: "cuda" is an alias of the CPU.

Tensors do not move: `.cuda()` and `.cpu()` return the tensor itself, and its `device` is the CPU.
Other devices, such as "meta", are not changed.
"""

import sys
from collections.abc import Callable, Collection
from typing import NoReturn

import torch
import triton.testing
from torch.overrides import TorchFunctionMode

from assignment.pytorch_private import Argument, Arguments, Keywords

from .one_gpu import PYTORCHS_GENERATOR, answer_as, generators
from .properties import H100

_CPU = torch.device("cpu")
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_untold: list[str] = []  # how a note ends that is printed once a script asks for a GPU
_NO_CLOCK = "the simulator has no clock: time kernels on a GPU"


class CudaOnCpu(TorchFunctionMode):
    """While active, PyTorch's functions run on the CPU what they are asked to run on a GPU."""

    def __torch_function__(
        self,
        func: Callable[..., Argument],
        types: Collection[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Argument:
        if func == _IS_CUDA:
            return True
        # so are the default device, and that of `with torch.device("cuda")`
        if func is torch.device:
            return on_cpu(func(*args, **(kwargs or {})))  # type: ignore[arg-type]
        if func is torch.Tensor.cuda:
            return torch.Tensor.to(args[0], on_cpu("cuda"))  # type: ignore[arg-type]
        if func is torch.Tensor.to and len(args) > 1:
            args = (args[0], _named(args[1]), *args[2:])
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = on_cpu(_named(kwargs["device"]))
        return func(*map(on_cpu, args), **kwargs)


def on_cpu(value: Argument) -> Argument:
    """Return `value`, or the CPU if it is a CUDA device or the name of one."""
    kind = value.type if isinstance(value, torch.device) else value
    if not isinstance(kind, str) or kind.partition(":")[0] != "cuda":
        return value
    if _untold:
        print(f"note: cuda tensors are made on the CPU, {_untold.pop()}", file=sys.stderr)
    return _CPU


def _named(device: Argument) -> Argument:
    """Return a device for a GPU's number, which PyTorch accepts in place of a device."""
    return f"cuda:{device}" if isinstance(device, int) else device


def patch(where: str = "where the simulator runs kernels") -> None:
    """Replace what a TorchFunctionMode does not reach, for the rest of the process.

    `where` ends the note that is printed once a script asks for a GPU; without it there is none.
    """
    if where:
        _untold.append(where)
    answer_as(H100)
    torch.cuda.Event = _no_clock  # type: ignore[assignment, misc]
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _no_clock
    torch.Generator = generators(  # type: ignore[assignment, misc]
        lambda device: PYTORCHS_GENERATOR(on_cpu(_named(device)))  # type: ignore[arg-type]
    )


def _no_clock(*args: Argument, **kwargs: Argument) -> NoReturn:
    raise RuntimeError(_NO_CLOCK)
