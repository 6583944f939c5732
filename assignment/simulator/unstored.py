"""Elements of a kernel's output that no program stored, found when PyTorch reads them.

Only elements that an operation reads count, not padding that is sliced off before. They are
recognised by the pattern of fresh memory, so those of integer tensors are not noticed, nor reads by
NumPy.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from assignment.pytorch_private import (
    Argument,
    Arguments,
    Keywords,
    OpOverload,
    disable_current_modes,
    is_in_memory,
    tensor_str,
)

from .bodies import DispatchMode
from .calls import Call
from .costs import tensors_in
from .faults import element
from .frames import innermost
from .layout import Layout
from .undefined import unwritten_in

KIND = "never stored"
_SELECTING = ("index", "index_select", "gather", "masked_select", "take", "where", "masked_fill", "embedding")
_MAKING = ("_like", "new_")  # of a tensor's shape, not of its elements


@dataclass
class _Output:
    """A storage that a launch stored to, and the arguments that lie on it."""

    reference: StorageWeakRef
    address: int
    arguments: dict[tuple[int, Sequence[int]], tuple[str, Layout]] = field(default_factory=dict)
    is_reported: bool = False


class UnstoredReads(DispatchMode):
    """While active, checks every operation that reads what launches stored to, also those of earlier calls."""

    def __init__(self) -> None:
        super().__init__()
        self._call, self._found = Call(), list[str]()
        self._outputs: dict[int, _Output] = {}  # by address of the storage

    @contextlib.contextmanager
    def during(self, call: Call) -> Iterator[list[str]]:
        """Be active while the call's launches run; yields the list of what is found, one text for each output."""
        outputs = {} if self._call.faults else self._outputs  # what a fault left undone is its own doing
        self._outputs = {at: output for at, output in outputs.items() if not output.reference.expired()}
        self._call, self._found = call, []
        call.on_store = self._note
        # these two read without telling a TorchDispatchMode
        looks = {"tolist": self._look, "__repr__": self._look_at_shown}
        with self, contextlib.ExitStack() as stack:
            for name, look in looks.items():
                stack.enter_context(_before(torch.Tensor, name, look))
            yield self._found

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        """Record that a launch stores to its argument `name`."""
        storage = tensor.untyped_storage()
        output = self._outputs.get(storage.data_ptr())
        if output is None or output.reference.expired():
            output = self._outputs[storage.data_ptr()] = _Output(StorageWeakRef(storage), storage.data_ptr())
        key = tensor.data_ptr(), tensor.stride()
        if key not in output.arguments:
            layout = Layout(tuple(tensor.shape), tuple(tensor.stride()), tensor.itemsize)
            output.arguments[key] = name, layout

    def __torch_dispatch__(
        self, func: OpOverload, types: Collection[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Argument:
        kwargs = kwargs or {}
        # what a launch leaves behind when it stops at a fault is the fault's doing
        is_worth_it = self._outputs and not self._call.faults
        reports = [self._report(tensor) for tensor in _read_by(func, args, kwargs)] if is_worth_it else []
        result = func(*args, **kwargs)
        if any(reports) and not (_name(func) in _SELECTING and unwritten_in(result) is None):
            self._keep([report for report in reports if report])
        return result

    def _look(self, tensor: torch.Tensor) -> None:
        """Check a read of all elements."""
        with disable_current_modes():
            report = None if self._call.faults else self._report(tensor)
        self._keep([report] if report else [])

    def _look_at_shown(self, tensor: torch.Tensor) -> None:
        """Check a read of the elements that print(tensor) shows."""
        if tensor.numel() > tensor_str.PRINT_OPTS.threshold:
            tensor_str.get_summarized_data(tensor)  # an operation that reads them
        else:
            self._look(tensor)

    def _report(self, tensor: torch.Tensor) -> tuple[_Output, str] | None:
        """Report a read of this tensor, if a launch stored to it and left elements out."""
        output = self._output(tensor)
        found = unwritten_in(tensor) if output is not None else None
        if output is None or found is None:
            return None
        count, index = found
        name, place = _argument(output, tensor, index)
        return output, (
            f"{KIND}: {name} has {count} of {tensor.numel()} elements that no kernel wrote, "
            f"the first {element(name, place)}\n  read {innermost()}"
        )

    def _keep(self, reports: list[tuple[_Output, str]]) -> None:
        for output, text in reports:
            if not output.is_reported:
                output.is_reported = True
                self._found.append(text)
                if self._call.recording:
                    self._call.recording.never_stored(text, output.address)

    def _output(self, tensor: torch.Tensor) -> _Output | None:
        if not is_in_memory(tensor):
            return None
        output = self._outputs.get(tensor.untyped_storage().data_ptr())
        return None if output is None or output.reference.expired() else output


@contextlib.contextmanager
def _before(owner: type[torch.Tensor], name: str, first: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Make a method call `first` before itself."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def both(self: torch.Tensor, *args: Argument, **kwargs: Argument) -> Argument:
        first(self)
        return method(self, *args, **kwargs)

    is_own = name in vars(owner)
    setattr(owner, name, both)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, method)
        else:
            delattr(owner, name)


def _argument(output: _Output, tensor: torch.Tensor, index: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return the launch argument that holds an element of `tensor`, and its index there."""
    steps = sum(i * stride for i, stride in zip(index, tensor.stride(), strict=True))
    address = tensor.data_ptr() + steps * tensor.itemsize
    for (start, _), (name, layout) in output.arguments.items():
        if layout.holds(np.array([address - start]), tensor.itemsize).all():
            return name, layout.coordinates(address - start)
    return f"the storage of {next(iter(output.arguments.values()))[0]}", index


def _read_by(func: OpOverload, args: tuple, kwargs: Keywords) -> list[torch.Tensor]:
    """Return the tensors whose elements an operation reads, without those that it writes to."""
    if func.is_view or any(part in _name(func) for part in _MAKING):
        return []
    arguments = func._schema.arguments
    named = {argument.name: argument for argument in arguments}
    given = [*zip(arguments, args, strict=False), *((named[name], value) for name, value in kwargs.items())]
    return tensors_in(
        [value for argument, value in given if not (argument.alias_info and argument.alias_info.is_write)]
    )


def _name(func: OpOverload) -> str:
    """Return "add", for torch.ops.aten.add.Tensor."""
    name: str = func._schema.name.partition("::")[2]
    return name
