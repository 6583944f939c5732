"""A machine with one GPU, for host code where there is none: all tensors are in ordinary memory.

What is on the GPU and what is not is known by storage. `Devices` answers PyTorch's functions by that; `CudaOnCpu` is
the one of scripts, where a tensor lies on the GPU unless it was made on the CPU for certain.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch
import triton.testing
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from assignment.pytorch_private import (
    DEVICE_CONSTRUCTORS,
    Argument,
    Arguments,
    Keywords,
    OpOverload,
    has_storage,
    parse_to,
    tensors_of,
)
from assignment.whose import theirs

from .autocast import cast
from .bodies import DispatchMode, following
from .host import Driver
from .one_gpu import answer_as
from .properties import H100
from .streams import GPU, Event

CPU = torch.device("cpu")
DEVICE: Any = torch.Tensor.device.__get__
IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_IS_CPU = torch.Tensor.is_cpu.__get__  # type: ignore[attr-defined]
_TO: Callable[..., torch.Tensor] = torch.Tensor.to
_MOVES = (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu)
_HOW = ("non_blocking", "copy")  # the last arguments of `to`
_PRODUCTS = torch.library.Library("aten", "IMPL")  # what is registered lives as long
_NO_CLOCK = "the simulator has no clock: time kernels on a GPU"


class Devices(TorchFunctionMode):
    """While active, functions of PyTorch answer as on a machine with a GPU."""

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return whether such a machine would have the tensor there."""
        raise NotImplementedError

    def wanted(self, device: str) -> Any:
        """Return a context manager: memory that is made inside lies on this device."""
        raise NotImplementedError

    def __torch_function__(
        self, func: Callable[..., Argument], types: Collection[type], args: Any = (), kwargs: Any = None
    ) -> Argument:
        kwargs = dict(kwargs or {})
        if func in (DEVICE, IS_CUDA, _IS_CPU, torch.Tensor.get_device):
            return self._where(func, args[0])
        if func in _MOVES:
            return self._moved(func, args, kwargs)
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return _type_of(func(args[0]), self._where(DEVICE, args[0]))
        return self.made(func, args, kwargs)

    def _where(self, func: Any, tensor: torch.Tensor) -> Any:
        if tensor.layout != torch.strided or DEVICE(tensor) != CPU:
            return theirs(func, tensor)
        is_on_gpu = self.is_on_gpu(tensor)
        answers = {DEVICE: GPU if is_on_gpu else CPU, IS_CUDA: is_on_gpu, _IS_CPU: not is_on_gpu}
        return answers.get(func, 0 if is_on_gpu else -1)

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call `to`, `cuda` or `cpu`: a copy where the device changes."""
        tensor, rest = args[0], list(args[1:])
        if func in (torch.Tensor.cuda, torch.Tensor.cpu):
            kwargs["device"], rest = ("cuda" if func is torch.Tensor.cuda else "cpu"), []
        elif rest and isinstance(rest[0], torch.Tensor):
            kwargs["dtype"] = rest[0].dtype
            rest[0] = self._where(DEVICE, rest[0])
        named = kwargs.pop("device", None)
        if named is None and rest and not isinstance(rest[0], torch.dtype | bool):
            named = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            kwargs["dtype"] = rest.pop(0)
        kwargs = {k: v for k, v in {**kwargs, **dict(zip(_HOW, rest, strict=False))}.items() if v is not None}
        device = kind_of_device(named)
        if device is None:
            return theirs(_TO, tensor, **kwargs) if kwargs else tensor
        crosses = device in ("cuda", "cpu") and DEVICE(tensor) == CPU and (device == "cuda") != self.is_on_gpu(tensor)
        with self.wanted(device):
            if device not in ("cuda", "cpu"):
                kwargs["device"] = device
            elif DEVICE(tensor) != CPU:
                kwargs["device"] = CPU
            elif crosses:
                kwargs["copy"] = True
            moved = theirs(_TO, tensor, **kwargs) if kwargs else tensor
        if crosses and moved.grad_fn is not None:
            back = "cpu" if device == "cuda" else "cuda"
            moved.grad_fn.register_hook(
                lambda grads, _: tuple(grad if grad is None else self.copied(grad, back) for grad in grads)
            )
        return moved

    def copied(self, tensor: torch.Tensor, device: str) -> torch.Tensor:
        """Return the tensor on this device."""
        moved: torch.Tensor = self._moved(_TO, (tensor, device), {})
        return moved

    def made(self, func: Callable[..., Argument], args: Any, kwargs: Keywords) -> Argument:
        """Call any other function, on the device that it asks for."""
        if func is parse_to:  # Module.to(device=...) reads its arguments by it
            return theirs(func, *args, **kwargs)  # type: ignore[arg-type]
        if func is torch.Tensor.register_hook and len(args) > 1:
            return theirs(func, args[0], following([self], args[1]))
        kwargs.pop("pin_memory", None)  # needs a driver
        if torch.is_autocast_enabled("cuda"):
            args, kwargs = cast(func, args, kwargs, self.is_on_gpu)
        device = kind_of_device(kwargs.get("device"))
        if device not in ("cuda", "cpu"):
            return theirs(func, *args, **kwargs)
        kwargs["device"] = CPU
        with self.wanted(device):
            return theirs(func, *args, **kwargs)


def _type_of(name: str, device: torch.device) -> str:
    """Return "torch.cuda.FloatTensor" for "torch.FloatTensor" on the GPU."""
    return name.replace("torch.", "torch.cuda.", 1) if device == GPU else name


def kind_of_device(device: Any) -> str | None:
    """Return "cuda", "cpu", another type of device, or None."""
    if device is None:
        return None
    if type(device) is int:
        return "cuda"
    return str(device).partition(":")[0]


class StorageDevices(DispatchMode):
    """Which storages of a script lie on the CPU for certain: those made there, and what is computed of such alone."""

    def __init__(self) -> None:
        super().__init__()
        self.default = "cpu"
        self.has_gpu = False  # the script has asked for one
        self.wanted: str | None = None  # where memory lies that is made now
        self._on_cpu: dict[int, StorageWeakRef] = {}  # by the storage's own address, which another may get
        self._pinned = set[int]()  # of these: kernels reach them

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        return not has_storage(tensor) or not self._is_on_cpu(tensor.untyped_storage())

    def refuses(self, tensor: torch.Tensor) -> str:
        """Return why a kernel cannot reach a tensor, as Triton says it; "" where it can."""
        if not self.has_gpu or self.is_on_gpu(tensor) or tensor.untyped_storage()._cdata in self._pinned:
            return ""
        return (
            "Pointer argument cannot be accessed from Triton (cpu tensor?): make the tensor where the others are, for "
            'example torch.empty(..., device="cuda")'
        )

    def _is_on_cpu(self, storage: torch.UntypedStorage) -> bool:
        reference = self._on_cpu.get(storage._cdata)
        return reference is not None and not reference.expired()

    def __torch_dispatch__(
        self, func: OpOverload, types: Collection[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Argument:
        kwargs = kwargs or {}
        tensors = list(filter(has_storage, tensors_of((args, kwargs))))
        given = [tensor.untyped_storage() for tensor in tensors]
        given += [value for value in args if isinstance(value, torch.UntypedStorage)]  # type: ignore[misc]  # of set_
        # a number, which autograd makes of itself, does not say where the result lies
        deciding = [tensor.untyped_storage() for tensor in tensors if tensor.dim()] or given
        result = func(*args, **kwargs)
        is_first = func._schema.name == "aten::lift_fresh"
        inputs = set() if is_first else {storage._cdata for storage in given}
        is_of_cpu = bool(given) and all(map(self._is_on_cpu, deciding))
        for tensor in filter(has_storage, tensors_of(result)):
            storage = tensor.untyped_storage()
            if storage._cdata not in inputs:
                self.put(storage, self.wanted or ("cpu" if is_of_cpu and not is_first else "cuda"))
        return result

    def put(self, storage: torch.UntypedStorage, device: str) -> None:
        """Note where a storage lies."""
        self._pinned.discard(storage._cdata)
        if device == "cpu":
            self._on_cpu[storage._cdata] = StorageWeakRef(storage)
        else:
            self._on_cpu.pop(storage._cdata, None)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, which lies on the CPU, where a kernel may read it too."""
        self.put(tensor.untyped_storage(), "cpu")
        self._pinned.add(tensor.untyped_storage()._cdata)
        return tensor


class CudaOnCpu(Devices):
    """The devices of a script; `places` says which tensors are on the CPU, without it none is."""

    def __init__(self, places: StorageDevices | None = None) -> None:
        super().__init__()
        self._places = places or StorageDevices()

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        return self._places.is_on_gpu(tensor)

    @contextmanager
    def wanted(self, device: str) -> Iterator[None]:
        if device == "cuda":
            _tell()
            self._places.has_gpu = True
        before, self._places.wanted = self._places.wanted, device
        try:
            yield
        finally:
            self._places.wanted = before

    def made(self, func: Callable[..., Argument], args: Any, kwargs: Keywords) -> Argument:
        if func in (torch.as_tensor, torch.asarray) and args and kwargs.get("device") is not None:
            made = super().made(func, args, {**kwargs, "device": None})
            assert isinstance(made, torch.Tensor)
            if not isinstance(args[0], torch.Tensor):
                self._places.put(made.untyped_storage(), "cpu")
            return self.copied(made, str(kind_of_device(kwargs["device"])))
        if kwargs.pop("pin_memory", False):
            return self._places.pin(super().made(func, args, kwargs))  # type: ignore[arg-type]
        if func in DEVICE_CONSTRUCTORS and kwargs.get("device") is None:
            kwargs["device"] = self._places.default
        return super().made(func, args, kwargs)


_untold: list[str] = []  # how a note ends that is printed once a script asks for a GPU


def _tell() -> None:
    if _untold:
        print(f"note: cuda tensors are made on the CPU, {_untold.pop()}", file=sys.stderr)


def patch(places: StorageDevices, where: str = "where the simulator runs kernels") -> None:
    """Replace what a TorchFunctionMode does not reach, for the rest of the process.

    `where` ends the note that is printed once a script asks for a GPU; without it there is none.
    """
    if where:
        _untold.append(where)
    answer_as(H100)
    pytorch: Any = torch
    pytorch.cuda.Event = _Event
    from_numpy = torch.from_numpy

    def of_numpy(array: np.ndarray) -> torch.Tensor:
        tensor: torch.Tensor = theirs(from_numpy, array)
        places.put(tensor.untyped_storage(), "cpu")
        return tensor

    pytorch.from_numpy = of_numpy
    pytorch.Tensor.record_stream = lambda tensor, stream: None
    Driver.get_active_torch_device = lambda driver: GPU  # type: ignore[assignment,method-assign]
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _no_clock
    pytorch.set_default_device = lambda device: setattr(places, "default", kind_of_device(device) or "cpu")
    pytorch.get_default_device = lambda: torch.tensor([]).device
    pytorch.Tensor.pin_memory = lambda tensor, device=None: places.pin(tensor.clone())
    pytorch._C._dynamo.guards._empty_strided_cuda = _empty_strided
    for name in ("mm", "bmm", "addmm", "baddbmm"):  # which PyTorch has for CUDA alone
        _PRODUCTS.impl(f"{name}.dtype", _product(getattr(torch, name)), "CPU")
        _PRODUCTS.impl(f"{name}.dtype_out", _product(getattr(torch, name)), "CPU")


class _Event(Event):
    """An event that orders streams, and tells no time."""

    def elapsed_time(self, end: Event) -> NoReturn:
        raise RuntimeError(_NO_CLOCK)


def _empty_strided(size: Iterable[int], stride: Iterable[int], dtype: torch.dtype) -> torch.Tensor:
    """Stand in for what the output of torch.compile allocates by."""
    return torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="cuda")


def _product(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a matrix product whose result has the dtype that is asked for."""

    def call(*args: Argument, out: torch.Tensor | None = None, **kwargs: Argument) -> torch.Tensor:
        (dtype,) = (value for value in args if isinstance(value, torch.dtype))
        result = function(*(value.to(dtype) for value in args if isinstance(value, torch.Tensor)), **kwargs)
        return result if out is None else out.copy_(result)

    return call


def _no_clock(*args: Argument, **kwargs: Argument) -> NoReturn:
    raise RuntimeError(_NO_CLOCK)
