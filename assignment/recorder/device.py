"""A machine with a GPU, as host code sees it: tensors are on "cuda", memory can be allocated there.

All tensors are in ordinary memory. The tape records by storage which of them a GPU machine would
have on its GPU.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
import triton
from torch.overrides import TorchFunctionMode

from assignment.protocol.program import Read
from assignment.pytorch_private import Argument, Keywords
from assignment.simulator.host import Driver
from assignment.simulator.one_gpu import PYTORCHS_GENERATOR, answer_as, generators
from assignment.simulator.properties import Properties
from assignment.simulator.streams import GPU, Raised
from assignment.simulator.triton_private import GPUTarget, driver
from assignment.whose import theirs

from .own_faults import noted
from .tape import Tape

CPU = torch.device("cpu")
_device: Any = torch.Tensor.device.__get__
_is_cuda = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_is_cpu = torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]
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


class OnGpu(TorchFunctionMode):
    """While active, functions of PyTorch answer as on a machine with a GPU."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape, self.faults = tape, tape.faults

    @noted
    def __torch_function__(
        self, func: Callable[..., Argument], types: Collection[type], args: Any = (), kwargs: Any = None
    ) -> Argument:
        kwargs = dict(kwargs or {})
        if func in (_device, _is_cuda, _is_cpu, torch.Tensor.get_device):
            return self._where(func, args[0])
        if func in _LEAVING:
            self._tape.step(Read(_LEAVING[func], self._tape.line()))
        if func in _MOVES:
            return self._moved(func, args, kwargs)
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return _type_of(func(args[0]), self._where(_device, args[0]))
        return self._made(func, args, kwargs)

    def _where(self, func: Any, tensor: torch.Tensor) -> Any:
        if tensor.layout != torch.strided or _device(tensor) != CPU:
            return theirs(func, tensor)
        is_on_gpu = self._tape.is_on_gpu(tensor)
        answers = {_device: GPU if is_on_gpu else CPU, _is_cuda: is_on_gpu, _is_cpu: not is_on_gpu}
        return answers.get(func, 0 if is_on_gpu else -1)

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call `to`, `cuda` or `cpu`: a copy where the device changes."""
        tensor, rest = args[0], list(args[1:])
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            kwargs["device"], rest = ("cuda" if func is torch.Tensor.cuda else "cpu"), []
        elif rest and isinstance(rest[0], torch.Tensor):
            kwargs["dtype"] = rest[0].dtype
            rest[0] = self._where(_device, rest[0])
        named = kwargs.pop("device", None)
        if named is None and rest and not isinstance(rest[0], torch.dtype | bool):
            named = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            kwargs["dtype"] = rest.pop(0)
        kwargs = {k: v for k, v in {**kwargs, **dict(zip(_HOW, rest, strict=False))}.items() if v is not None}
        device = _kind(named)
        if device is None:
            return theirs(_to, tensor, **kwargs) if kwargs else tensor
        with wanted(self._tape, device):
            if device not in ("cuda", "cpu"):
                kwargs["device"] = device
            elif _device(tensor) != CPU:
                kwargs["device"] = CPU
            elif (device == "cuda") != self._tape.is_on_gpu(tensor):
                kwargs["copy"] = True
            return theirs(_to, tensor, **kwargs) if kwargs else tensor

    def _made(self, func: Callable[..., Argument], args: Any, kwargs: Keywords) -> Argument:
        """Call any other function, with its device recorded."""
        kwargs.pop("pin_memory", None)  # needs a driver
        device = _kind(kwargs.get("device"))
        if device not in ("cuda", "cpu"):
            return theirs(func, *args, **kwargs)
        kwargs["device"] = CPU
        with wanted(self._tape, device):
            return theirs(func, *args, **kwargs)


class wanted:  # noqa: N801 - used as a function
    """A context manager: memory that is made inside lies on this device."""

    def __init__(self, tape: Tape, device: str) -> None:
        self._thread, self._device = tape.of_thread, device

    def __enter__(self) -> None:
        self._before, self._thread.device = self._thread.device, self._device

    def __exit__(self, *_: Raised) -> None:
        self._thread.device = self._before


_HOW = ("non_blocking", "copy")  # the last arguments of `to`
_to: Callable[..., torch.Tensor] = torch.Tensor.to
_MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)


def _type_of(name: str, device: torch.device) -> str:
    """Return "torch.cuda.FloatTensor" for "torch.FloatTensor" on the GPU."""
    return name.replace("torch.", "torch.cuda.", 1) if device == GPU else name


def _kind(device: Any) -> str | None:
    """Return "cuda", "cpu", another type of device, or None."""
    if device is None:
        return None
    if type(device) is int:
        return "cuda"
    return str(device).partition(":")[0]


def install(tape: Tape, target: GPUTarget, answers: Answers) -> None:
    """Have PyTorch and Triton answer as a machine with this GPU, for the rest of the process."""
    answer_as(answers)
    driver.set_active(_Driver(target, answers))
    pytorch: Any = torch
    pytorch.compile = pytorch.jit.script = _as_it_is
    pytorch.jit.trace = lambda function, *example, **options: function
    pytorch.Generator = generators(_generator)
    pytorch.cuda.default_generators = (_OnGpu(),)
    pytorch.set_default_device = lambda device: setattr(tape, "default_device", _kind(device) or "cpu")
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


class _OnGpu(PYTORCHS_GENERATOR):
    device = GPU


def _generator(device: Any) -> torch.Generator:
    return _OnGpu() if _kind(device) == "cuda" else theirs(PYTORCHS_GENERATOR, device)


class _Driver(Driver):
    """A driver that notes queries of the target, of which only the capability varies."""

    def get_current_target(self) -> GPUTarget:
        self._properties["major"]
        return super().get_current_target()

    def get_active_torch_device(self) -> torch.device:
        return GPU


def _as_it_is(model: Callable | None = None, *how: Any, **options: Any) -> Callable:
    """Stand in for torch.compile and torch.jit.script: they return the function itself."""
    return model if model is not None else functools.partial(_as_it_is, **options)
