"""A machine with a GPU, as host code sees it: tensors are on "cuda", memory can be allocated there.

All tensors are in ordinary memory. The tape records by storage which of them a GPU machine would
have on its GPU.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
import triton

from assignment.pytorch_private import Argument
from assignment.simulator.cuda import Devices, kind_of_device
from assignment.simulator.host import Driver
from assignment.simulator.one_gpu import answer_as
from assignment.simulator.properties import Properties
from assignment.simulator.streams import GPU, Raised
from assignment.simulator.triton_private import GPUTarget, driver
from assignment.whose import theirs

from .own_faults import noted
from .tape import Tape, strided

_device_of_storage = torch.UntypedStorage.device.__get__
_LEAVING = {torch.Tensor.tolist: "tolist", torch.Tensor.numpy: "numpy", torch.Tensor.__array__: "__array__"}


class Answers(Mapping):
    """The properties of a GPU; which of them are read is noted in `asked`."""

    def __init__(self, properties: Properties, asked: set[str]) -> None:
        self._properties, self._asked = properties, asked

    def __getitem__(self, name: str) -> int | str:
        self._asked.add(name)
        return self._properties[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._properties)

    def __len__(self) -> int:
        return len(self._properties)


class OnGpu(Devices):
    """While active, functions of PyTorch answer as on a machine with a GPU, as the tape knows where tensors are."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape, self.faults = tape, tape.faults

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        return self._tape.is_on_gpu(tensor)

    def wanted(self, device: str) -> "wanted":
        return wanted(self._tape, device)

    @noted
    def __torch_function__(
        self, func: Callable[..., Argument], types: Collection[type], args: Any = (), kwargs: Any = None
    ) -> Argument:
        if func in _LEAVING:
            self._tape.note_read(_LEAVING[func], strided(args))
        return super().__torch_function__(func, types, args, kwargs)


class wanted:  # noqa: N801 - used as a function
    """A context manager: memory that is made inside lies on this device."""

    def __init__(self, tape: Tape, device: str) -> None:
        self._thread, self._device = tape.of_thread, device

    def __enter__(self) -> None:
        self._before, self._thread.device = self._thread.device, self._device

    def __exit__(self, *_: Raised) -> None:
        self._thread.device = self._before


def install(tape: Tape, target: GPUTarget, answers: Answers) -> None:
    """Have PyTorch and Triton answer as a machine with this GPU, for the rest of the process."""
    answer_as(answers)
    driver.set_active(_Driver(target, answers))
    pytorch: Any = torch
    pytorch.compile = pytorch.jit.script = _as_it_is
    pytorch._disable_dynamo = _as_it_is  # loading it, for the body of each custom operator, takes a second
    pytorch.jit.trace = lambda function, *example, **options: function
    pytorch.set_default_device = lambda device: setattr(tape, "default_device", kind_of_device(device) or "cpu")
    pytorch.get_default_device = lambda: torch.tensor([]).device
    pytorch.Tensor.record_stream = lambda tensor, stream: None
    pytorch.UntypedStorage.device = property(
        lambda storage: GPU if tape.holds_on_gpu(storage) else _device_of_storage(storage)
    )
    pytorch.Tensor.pin_memory = lambda tensor, device=None: tensor
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = bench


def bench(
    fn: Callable,
    warmup: float | None = None,
    rep: float | None = None,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> float | list[float]:
    """Stand in for triton.testing.do_bench where there is no clock: everything takes a millisecond."""
    if quantiles is not None:
        return [1.0] * n if (n := theirs(len, quantiles)) > 1 else 1.0
    return [1.0] if return_mode == "all" else 1.0


class _Driver(Driver):
    """A driver that notes queries of the target, of which only the capability varies."""

    def get_current_target(self) -> GPUTarget:
        self._properties["major"]
        return super().get_current_target()

    def get_active_torch_device(self) -> torch.device:
        return GPU


def _as_it_is(model: Callable | None = None, *how: Any, **options: Any) -> Callable:
    """Stand in for torch.compile, torch.jit.script and what leaves a function out: they return the function itself."""
    return model if model is not None else functools.partial(_as_it_is, **options)
