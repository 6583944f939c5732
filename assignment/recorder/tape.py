"""The program of host code: numbered storages, PyTorch operations and launches, each with its line.

A tensor is a view of a storage: number, dtype, offset, sizes, strides. Views, `detach`, saved
tensors and subclasses then need no steps, and in-place operations and aliases are recorded as they
are. A storage keeps its number while it lives: a weak reference holds its address.
"""

import base64
import ctypes
import math
import sys
import threading
from collections.abc import Collection, Sequence
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from assignment.protocol import program as programs
from assignment.protocol.messages import Value
from assignment.pytorch_private import (
    Argument,
    Arguments,
    FakeTensor,
    Keywords,
    OpOverload,
    TorchDispatchMode,
    get_unwrapped,
    has_storage,
    is_functorch_wrapped_tensor,
    tensors_of,
)
from assignment.simulator import bodies
from assignment.whose import theirs

from .own_faults import Faults, noted

MAX_CONSTANT = 1 << 20  # bytes of memory that no operation was seen to make
FILLED_UP_TO = 64 << 20  # bytes of fresh memory; larger ones are zero pages
SWEEP_EVERY = 64  # steps
# what fresh memory holds, and what a launch leaves there: finite, whatever it is divided by
DECOY = 0.5
# operations that change a tensor in place, but no memory
_OF_TENSORS = "set detach requires_grad squeeze unsqueeze transpose t as_strided swapaxes swapdims rename"
METADATA = {f"aten::{name}_" for name in _OF_TENSORS.split()}
RESIZING = ("aten::resize_", "aten::resize_as_")


class _WantedInThread(threading.local):
    device = ""  # that this thread's new memory is wanted on; "" if it is not said


class Tape(bodies.DispatchMode):
    """Records what the operations inside do.

    One class, because numbers, views and steps are tables of one program, filled under one lock by what PyTorch calls.
    """

    def __init__(self, folder: str) -> None:
        """Start a tape; `folder` holds the submission's files, whose lines are recorded."""
        super().__init__()
        self._folder = folder
        # of storages that live, by address of their implementation
        self._numbers: dict[int, int] = {}
        self._references: dict[int, StorageWeakRef] = {}  # by number
        # contents of memory of unknown origin, by number
        self._constants: dict[int, bytes] = {}
        self._next = 0
        self.chunk = 0  # the number of the program that is being written
        # numbers of storages that a GPU machine would have on its GPU
        self.on_gpu: set[int] = set()
        self.of_thread = _WantedInThread()
        self.lock = threading.RLock()  # tables are filled by one thread at a time
        self.default_device = "cpu"
        self.is_strict = True  # whether tensors of two devices may not be mixed
        self.faults = Faults()
        self.modes: list[TorchDispatchMode | TorchFunctionMode] = [self]  # that are on while a submission's code runs
        self._new_chunk()

    def _new_chunk(self) -> None:
        self.chunk += 1
        self._views: dict[programs.View, int] = {}
        self._operations: dict[str, int] = {}
        self._lines: dict[programs.HostLine, int] = {}
        self._sizes: dict[int, int] = {}
        self._steps: list[programs.Step] = []
        self._since_sweep = 0

    def take(self, kernels: list[dict[str, Value]], groups: list[list[torch.Tensor]], bare: bool) -> programs.Program:
        """Return the program since the last time; `groups` are its results."""
        results = [[self.view(tensor) for tensor in group] for group in groups]
        self.sweep()
        tables = list(self._views), self._sizes, list(self._operations), list(self._lines)
        program = programs.Program(*tables, kernels, self._steps, results, bare)
        self._new_chunk()
        return program

    # what steps are made of

    def step(self, step: programs.Step) -> None:
        with self.lock:
            self._steps.append(step)
            self._since_sweep += 1
            if self._since_sweep > SWEEP_EVERY:
                self.sweep()

    def sweep(self) -> None:
        """Record which storages have been freed."""
        self._since_sweep = 0
        gone = [number for number, reference in self._references.items() if reference.expired()]
        for number in gone:
            del self._numbers[self._references[number].cdata]
            self._gone(number)
        if gone:
            self._steps.append(programs.Free(gone))

    def _gone(self, number: int) -> None:
        del self._references[number]
        self._constants.pop(number, None)
        self.on_gpu.discard(number)

    def begin_again(self) -> None:
        """Record that the judge's handler calls the function a second time."""
        self.step(programs.Repeat())

    def inputs(self, tensors: Sequence[torch.Tensor], is_on_gpu: bool) -> None:
        """Begin a call with these tensors."""
        for tensor in tensors:
            number, is_new = self._number(tensor)
            if is_new and is_on_gpu:
                self.on_gpu.add(number)
        self.step(programs.Inputs([self.view(tensor) for tensor in tensors]))

    def _number(self, tensor: torch.Tensor) -> tuple[int, bool]:
        """Return the number of a tensor's storage, and whether it is new."""
        if not has_storage(tensor):
            raise TypeError(f"expected a strided tensor with memory of its own, got {type(tensor).__name__}")
        storage = tensor.untyped_storage()
        if (number := self._numbers.get(storage._cdata)) is not None:
            return number, False
        number = self._numbers[storage._cdata] = self._next
        self._references[number] = StorageWeakRef(storage)
        self._sizes[number] = storage.nbytes()
        self._next += 1
        return number, True

    def view(self, tensor: torch.Tensor) -> int:
        """Return a view's number in this chunk; memory of unknown origin becomes a constant."""
        with self.lock:
            number, is_new = self._number(tensor)
            if is_new:
                self._place(number)
                self._constant(number, tensor)
            elif number in self._constants:
                self._recheck(number, tensor)
            return self._view(number, tensor)

    def _view(self, number: int, tensor: torch.Tensor) -> int:
        return self._views.setdefault(programs.View.of(tensor, number), len(self._views))

    def dtype(self, view: int) -> str:
        """Return the dtype of a view of this chunk."""
        return list(self._views)[view].dtype

    def _constant(self, number: int, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.nbytes() > MAX_CONSTANT:
            self.step(programs.Foreign(number, self.line()))
            return
        content = bytes_of(storage)
        self._constants[number] = content
        self.step(programs.Constant(number, base64.b64encode(content).decode(), self.line()))

    def _recheck(self, number: int, tensor: torch.Tensor) -> None:
        if bytes_of(tensor.untyped_storage()) != self._constants[number]:
            del self._constants[number]
            self.step(programs.Foreign(number, self.line()))

    def _place(self, number: int, sources: Sequence[torch.Tensor] = ()) -> None:
        """Record where new memory lies: on the device asked for, or its operands' device."""
        device = self.of_thread.device or ("cuda" if any(map(self.is_on_gpu, sources)) else self.default_device)
        if device.startswith("cuda"):
            self.on_gpu.add(number)

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        """Return whether a machine with a GPU would have the tensor there."""
        if isinstance(tensor, FakeTensor):
            return True
        if is_functorch_wrapped_tensor(tensor):  # of torch.vmap, for example
            return self.is_on_gpu(get_unwrapped(tensor))
        return has_storage(tensor) and self.holds_on_gpu(tensor.untyped_storage())

    def holds_on_gpu(self, storage: torch.UntypedStorage) -> bool:
        return self._numbers.get(storage._cdata) in self.on_gpu

    def is_own(self, frame: FrameType) -> bool:
        """Return whether a frame is of the submission's code."""
        return frame.f_code.co_filename.startswith(self._folder)

    def line(self) -> int:
        """Return the number of the submission's current line."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not self.is_own(frame):
            frame = frame.f_back
        line = programs.HostLine()
        if frame is not None:
            path = frame.f_code.co_filename.removeprefix(self._folder)
            line = programs.HostLine(path, frame.f_lineno, frame.f_code.co_name)
        return self._lines.setdefault(line, len(self._lines))

    # what PyTorch does

    @noted
    def __torch_dispatch__(
        self, func: OpOverload, types: Collection[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Argument:
        kwargs = kwargs or {}
        if bodies.is_custom(func):
            return theirs(func, *args, **kwargs)
        if func._can_decompose() and (parts := self._decomposed(func, args, kwargs)) is not NotImplemented:
            return parts
        with self.lock:
            return self._operation(func, args, kwargs)

    def _decomposed(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> Argument:
        with self:
            return theirs(func.decompose, *args, **kwargs)

    def _operation(self, func: OpOverload, args: Arguments, kwargs: Keywords) -> Argument:
        inputs = strided((args, kwargs))
        self._refuse_mixed(func, inputs)
        if func._schema.name in METADATA:
            return theirs(func, *args, **kwargs)
        if func._schema.name in RESIZING:
            return self._resized(func, args, kwargs)
        known = {tensor.untyped_storage()._cdata for tensor in inputs}
        is_view = func.is_view and not func._schema.is_mutable
        before = () if is_view else self._arguments(args, kwargs)
        result = theirs(func, *args, **kwargs)
        if is_without_memory(result):
            return result
        outputs = strided(result)
        if is_view and all(tensor.untyped_storage()._cdata in known for tensor in outputs):
            for tensor in outputs:
                self.view(tensor)
            return result
        before = before or self._arguments(args, kwargs)
        if not isinstance(result, torch.Tensor | tuple | list | None):
            self.note_read(func._schema.name, inputs)
            return result
        self._write(func, before, inputs, outputs)
        return result

    def note_read(self, name: str, tensors: Sequence[torch.Tensor]) -> None:
        """Record that host code reads a value of these tensors; of unknown ones it may go on to write to the memory."""
        with self.lock:
            numbered = [(self._numbers.get(tensor.untyped_storage()._cdata), tensor) for tensor in tensors]
            views = [self._view(number, tensor) for number, tensor in numbered if number is not None]
            self.step(programs.Read(name, views, self.line()))

    def _write(self, func: OpOverload, arguments: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        for tensor in outputs:
            number, is_new = self._number(tensor)
            if is_new:
                self._place(number, inputs)
        if "empty" in func._schema.name:
            for tensor in outputs:
                fill(tensor)
        if func._schema.is_mutable:
            self._forget_constants(func, inputs)
        if not inputs and outputs and any(argument.name == "dtype" for argument in func._schema.arguments):
            arguments[1]["dtype"] = self.encode(outputs[0].dtype)  # whatever the default is
        views = [self._view(self._number(tensor)[0], tensor) for tensor in outputs]
        self._note(f"{func._schema.name}.{func._overloadname}", arguments[0], arguments[1], views)

    def _resized(self, func: OpOverload, args: Any, kwargs: Keywords) -> Argument:
        """Call resize_: larger memory is new memory, into which what was there is copied."""
        tensor = args[0]
        if not is_followed(tensor):
            return theirs(func, *args, **kwargs)
        storage = tensor.untyped_storage()
        self.view(tensor)
        n_before, old = storage.nbytes(), self._numbers[storage._cdata]
        result = theirs(func, *args, **kwargs)
        if storage.nbytes() > n_before:
            del self._numbers[storage._cdata]
            new, _ = self._number(tensor)
            if old in self.on_gpu:
                self.on_gpu.add(new)
            whole = self._flat(new, str(tensor.dtype).removeprefix("torch."), storage.nbytes() // tensor.itemsize)
            size, kind = list(self._views)[whole].sizes, {"dtype": self.encode(tensor.dtype)}
            self._note("aten::empty.memory_format", [list(size)], kind, [whole])
            if n_before:
                start, source = (self._flat(number, "uint8", n_before) for number in (new, old))
                self._note("aten::copy_.default", [{"t": start}, {"t": source}], {}, [start])
            else:
                fill(tensor)
            self._gone(old)
            self._steps.append(programs.Free([old]))
        return result

    def _flat(self, number: int, dtype: str, n_elements: int) -> int:
        """Return the view of a storage's first elements."""
        return self._views.setdefault(programs.View(number, dtype, 0, (n_elements,), (1,)), len(self._views))

    def _note(self, name: str, args: list[Value], kwargs: dict[str, Value], views: list[int]) -> None:
        operation = self._operations.setdefault(name, len(self._operations))
        self.step(programs.Operation(operation, args, kwargs, views, self.line()))

    def _forget_constants(self, func: OpOverload, inputs: list[torch.Tensor]) -> None:
        """Forget constants in memory that an operation has written to."""
        for tensor in inputs:
            number = self._numbers.get(tensor.untyped_storage()._cdata)
            if number in self._constants:
                self._constants[number] = bytes_of(tensor.untyped_storage())

    def _arguments(self, args: Arguments, kwargs: Keywords) -> tuple[Any, dict[str, Value]]:
        kept = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
        return self.encode(args), {name: self.encode(value) for name, value in kept.items()}

    def _refuse_mixed(self, func: OpOverload, inputs: list[torch.Tensor]) -> None:
        """Raise what PyTorch raises where a tensor on the CPU meets one on the GPU."""
        if not self.is_strict or func._schema.name in ("aten::copy_", "aten::_to_copy"):
            return
        larger = [tensor for tensor in inputs if tensor.dim()]
        if len({self.is_on_gpu(tensor) for tensor in larger}) > 1 and "index" not in func._schema.name:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found cuda:0 and cpu, in {func._schema.name}: "
                "make them where the inputs are, device=x.device"
            )

    def encode(self, value: Argument) -> Value:
        """Return an argument of an operation as JSON."""
        if isinstance(value, torch.Tensor):
            return {"t": self.view(value)} if is_followed(value) else {"x": type(value).__name__}
        if isinstance(value, list | tuple):
            return [self.encode(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return {"f": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.dtype | torch.memory_format):
            kind = "dtype" if isinstance(value, torch.dtype) else "format"
            return {kind: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device | torch.layout):
            return None
        return {"x": type(value).__name__}


def strided(tree: Argument | Keywords | tuple[Sequence[Argument], Keywords]) -> list[torch.Tensor]:
    """Return all tensors in nested arguments or results that have a storage."""
    return [tensor for tensor in tensors_of(tree) if is_followed(tensor)]


def is_without_memory(tree: Argument | Keywords | tuple[Sequence[Argument], Keywords]) -> bool:
    """Return whether a result is of meta tensors, which have a shape and nothing else."""
    found = tensors_of(tree)
    return bool(found) and all(tensor.device.type == "meta" for tensor in found)


def is_followed(tensor: torch.Tensor) -> bool:
    is_plain = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return is_plain and tensor.device.type == "cpu"


def fill(tensor: torch.Tensor) -> None:
    """Give fresh memory finite values."""
    if tensor.untyped_storage().nbytes() <= FILLED_UP_TO:
        tensor.fill_(DECOY)


def bytes_of(storage: torch.UntypedStorage) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def lies_in_memory(tensor: torch.Tensor) -> bool:
    """Return whether all elements of a strided tensor are in its storage, which may have been made smaller."""
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return not tensor.numel() or int(last + 1) * tensor.itemsize <= tensor.untyped_storage().nbytes()
