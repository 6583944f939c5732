"""Whose work a result is: follows operations of PyTorch and launches, and says what no kernel computed.

    tracker = Provenance("/path/of/the/submission/")
    with tracker.call("rmsnorm_forward", [x, weight]):
        y, rstd = rmsnorm_forward(x, weight)
        tracker.returned([y, rstd])
    print(tracker.verdicts.evidence)

Labels are kept by element (`origins`), and operations carry them on (`derivations`). Whatever was not seen to be
written counts as written outside of kernels, so there is no list of forbidden things to get around.
"""

import contextlib
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import dispatcher, interception
from .costs import address, tensors_in
from .derivations import Computed, Operation, derive
from .faults import at, place
from .interception import Functions, in_its_body, in_threads, is_of_python
from .origins import (
    CONSTANT,
    CONSTANTS_COMPARED_UP_TO,
    DELTA,
    FOREIGN,
    FRESH,
    INPUT,
    KERNEL,
    STALE,
    SUM,
    Memory,
    Origins,
    Source,
    worst,
)
from .steps import Recorder, Step, differences, geometry
from .verdicts import Verdicts

MAX_CONSTANT = 16  # elements of a tensor made from Python numbers
MAX_DELTAS = 8  # results of rowsum(A ∘ B), of the size that a call needs: some requests make several
FUSED = ("scaled_dot_product", "_flash_attention", "_efficient_attention", "_cudnn_attention", "multi_head_attention")
LEAVES_PYTORCH = ("Tensor.numpy", "Tensor.__array__", "Tensor.__dlpack__")
_VIEWED = "set detach requires_grad squeeze unsqueeze transpose t as_strided swapaxes swapdims rename movedim permute"
_METADATA = {f"aten::{name}_" for name in _VIEWED.split()}  # operations that change a tensor in place, but no memory
_WATCHING = (__file__, str(interception.__file__))
_HERE, _TORCH = (f"{Path(file).parent}/" for file in (__file__, str(torch.__file__)))
_INTEGERS = (torch.int32, torch.int64)
_PADDED = 256  # rows that padding to tiles may add to each batch

_NOT_LOADABLE = np.ones(256, bool)  # by label: whether a kernel must not load it
_NOT_LOADABLE[[CONSTANT, INPUT, KERNEL, SUM, DELTA, FRESH, STALE]] = False
_NOT_LOADABLE_FORWARD = _NOT_LOADABLE.copy()
_NOT_LOADABLE_FORWARD[SUM] = True


class Provenance(TorchDispatchMode):
    """What a process knows about the origin of its tensors' values."""

    def __init__(self, folder: str) -> None:
        """`folder` holds the submission's files: its lines are named."""
        super().__init__()
        self._folder = folder
        self._origins = Origins()
        self._launching: set[int] = set()  # the threads that launch a kernel
        self._forget()

    def _forget(self) -> None:
        self.forget_verdicts()
        self.record = Recorder(self.memory, self.verdicts.frame)
        self._origins.name = self.record.name
        self._expected: set[int] = set()  # numbers that any step may have
        self._max_delta = 0  # elements that one result of rowsum(A ∘ B) may have
        self._delta = 0  # elements that all of them have
        self._has_short_rows = False
        self._needs_kernels = True
        self._allows_sums = False

    def forget_verdicts(self) -> None:
        self.verdicts = Verdicts(self._origins, self._folder)

    @contextlib.contextmanager
    def call(
        self, function: str, inputs: Sequence[torch.Tensor], is_backward: bool = False, is_dry: bool = False
    ) -> Iterator[None]:
        """Everything inside belongs to a call of this function on these tensors; in a dry one kernels do nothing."""
        self._forget()
        self._needs_kernels = not function.endswith("_pytorch")
        self._allows_sums = is_backward or "backward" in function
        if function.startswith("flash") and self._allows_sums and inputs and inputs[0].dim() > 1:
            self._has_short_rows = inputs[0].shape[-1] == 1
            rows = inputs[0].numel() // max(inputs[0].shape[-1], 1)
            self._max_delta = 2 * rows + _PADDED * math.prod(inputs[0].shape[:-2])
        if self._needs_kernels:
            self._expected = geometry(inputs)
            with no_dispatch():  # labels are tensors too, and not to be followed
                self._origins.begin(inputs)
        with contextlib.ExitStack() as inside:
            inside.enter_context(_disable_current_modes())  # one that was left on would answer
            if is_dry:
                inside.enter_context(self._origins.without_earlier_work())
            for mode in (self, Functions(self._hear), in_threads(self, self._hear)):
                inside.enter_context(mode)
            yield

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch.compile is kept away from this class: loading it for that takes two seconds."""
        return False

    # what PyTorch does

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind not in (torch.Tensor, torch.nn.Parameter) for kind in types):
            self.verdicts.accuse_here(f"a subclass of torch.Tensor answers {func._schema.name} in PyTorch's place")
        if not self._needs_kernels:
            self._hear(func._schema.name)
            return func(*args, **kwargs)
        if threading.get_ident() in self._launching:
            if not _is_simulators():
                self.verdicts.accuse_here(f"{func._schema.name} is called inside of a kernel")
            return func(*args, **kwargs)
        if dispatcher.is_replaced(func):
            self.verdicts.accuse_here(f"an operation of PyTorch was replaced: {func.name()}")
        inputs = [t for t in tensors_in((args, kwargs)) if _is_followed(t)]
        if func._schema.is_mutable:
            self._verify(inputs)
        with no_dispatch():
            self.record.step(func._schema.name, (func._overloadname, args, kwargs))
            if func._schema.is_mutable:
                self.record.uses(inputs)
        is_own = is_of_python(func)
        with in_its_body(self, self._hear, func) if is_own else contextlib.nullcontext():
            result = func(*args, **kwargs)
        outputs = [t for t in tensors_in(result) if _is_followed(t)]
        targets = [] if is_own else self._written(func, (args, kwargs), inputs, outputs)
        if targets:
            self._verify([t for t in inputs if not func._schema.is_mutable])
            self._note(func, args, kwargs, targets)
        return result

    def _written(self, func: Any, call: Any, inputs: list[Any], outputs: list[Any]) -> list[torch.Tensor]:
        """The tensors whose memory an operation has made or changed; none for views."""
        known = {address(t) for t in inputs}
        if not func._schema.is_mutable:
            return [t for t in outputs if address(t) not in known]
        if func._schema.name in _METADATA:
            return []
        arguments = _by_name(func, *call)
        changed = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        written = [t for name in changed for t in tensors_in(arguments.get(name, [])) if _is_followed(t)]
        return written or [t for t in outputs if address(t) in known] or inputs[:1]

    def _verify(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            if self._origins.knows(tensor):
                self._origins.of(tensor).verify()

    def _note(self, func: Any, args: Any, kwargs: Any, targets: list[torch.Tensor]) -> None:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        arguments = {k: v for k, v in _by_name(func, args, kwargs).items() if k != "out"}
        if name.startswith("_foreach_"):
            for number, target in enumerate(targets):
                own = {k: v[number] if isinstance(v, list | tuple) else v for k, v in arguments.items()}
                self._label(func, name.removeprefix("_foreach_"), own, (args, kwargs), [target])
            return
        self._label(func, name, arguments, (args, kwargs), targets)

    def _label(self, func: Any, name: str, arguments: dict[str, Any], call: Any, targets: list[torch.Tensor]) -> None:
        """Work out the labels of what an operation has written, and write them down."""
        args, kwargs = call
        if name == "copy" and func._schema.is_mutable:
            arguments = {"src": arguments["src"]}
        operation = Operation(name, arguments, self, targets[0], self._max_delta, self._has_short_rows)
        labels = Computed() if dispatcher.is_replaced(func) else derive(operation, func, args, kwargs)
        if isinstance(labels, int) and labels == DELTA:
            self._delta += targets[0].numel()
            labels = labels if self._delta <= MAX_DELTAS * self._max_delta else Computed()
        if isinstance(labels, Computed):
            labels = self._origins.label_for(Source(func._schema.name, self.verdicts.line(), labels.is_doubt))
        if not func._schema.is_mutable and not (isinstance(labels, int) and labels in (CONSTANT, FRESH)):
            with no_dispatch():
                self.record.uses(tensors_in((args, kwargs)))
        for target in targets:
            self._write(target, labels)

    def _write(self, target: torch.Tensor, labels: torch.Tensor | int) -> None:
        memory = self._origins.of(target) if self._origins.knows(target) else self._origins.made(target, FRESH)
        memory.line = self.verdicts.frame()
        if isinstance(labels, int) and labels == FRESH:
            return
        if isinstance(labels, torch.Tensor):
            fits = labels.dim() <= target.dim() and labels.numel() in (1, target.numel())
            labels = labels.expand(target.shape) if fits else worst(labels)
        memory.write(target, labels)

    def memory(self, tensor: torch.Tensor) -> Memory | None:
        """Of a tensor; None where there is nothing to follow."""
        if not _is_followed(tensor) or not tensor.numel():
            return None
        return self._origins.of(tensor) if self._origins.knows(tensor) else self._from_python(tensor)

    def _from_python(self, tensor: torch.Tensor) -> Memory:
        """Memory that nobody was seen to make: torch.tensor(0.5), torch.tensor(table), torch.from_numpy(array)."""
        is_table = tensor.dtype in _INTEGERS and tensor.untyped_storage().nbytes() <= CONSTANTS_COMPARED_UP_TO
        may_be_constant = tensor.numel() <= MAX_CONSTANT or is_table
        return self._origins.made(tensor, CONSTANT if may_be_constant else FOREIGN)

    def own_storages(self) -> set[int]:
        """The storages of labels, which no submission has made."""
        return self._origins.own_storages()

    def is_doubt(self, label: int) -> bool:
        """Whether what has this label is for staff to judge."""
        return self._origins.is_doubt(label)

    def _hear(self, name: str) -> None:
        """A function or an operation of PyTorch's is called; what it does is seen where kernels are asked for."""
        if self._needs_kernels:
            return
        if any(part in name for part in FUSED):
            self.verdicts.accuse_here(f"{name} is a fused attention: write the loop over tiles yourself")
        elif name.endswith(LEAVES_PYTORCH):
            self.verdicts.accuse_here(f"{name} leaves PyTorch: compute with its operations")

    # what kernels do

    def admit(self, tensor: torch.Tensor) -> Memory | None:
        """The memory of a launch's argument, checked; None where there is nothing to follow."""
        if not self._needs_kernels:
            return None
        with no_dispatch():
            memory = self.memory(tensor)
            if memory:
                memory.verify()
        return memory

    def launched(self, kernel: str, *arguments: Any) -> None:
        """A launch begins, with these arguments, grid and literals."""
        if not self._needs_kernels:
            self.verdicts.accuse_here(f"kernel {kernel} is launched; this problem is for PyTorch alone")
            return
        with no_dispatch():
            self.record.launch(kernel, arguments)

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Operations inside are the simulator's own, or a kernel's, which must have none."""
        self._launching.add(threading.get_ident())
        try:
            yield
        finally:
            self._launching.discard(threading.get_ident())

    def brought(self, function: str, constant: Any) -> None:
        """A function that is not Triton's gave a kernel this constant."""
        if self._needs_kernels:
            self.record.feed(function, constant)

    def is_suspect(self, memory: Memory) -> bool:
        """Whether it holds a value that no kernel may load."""
        return memory.holds_any(self._not_loadable())

    def _not_loadable(self) -> np.ndarray:
        return _NOT_LOADABLE if self._allows_sums else _NOT_LOADABLE_FORWARD

    def loaded(self, memory: Memory, offsets: np.ndarray, kernel: str, element: Callable[[int], str]) -> None:
        """A kernel loaded elements at these offsets in bytes, of memory that is suspect."""
        labels = memory.at(offsets.ravel())
        bad = np.flatnonzero(self._not_loadable()[labels])
        if bad.size:
            label, where = int(labels[bad[0]]), place()
            what = f"kernel {kernel} loads {element(int(bad[0]))}, which was {self.verdicts.words(label, memory)}"
            self.verdicts.blame(label, f"{what}\n{at(where)}", about=(label, where))

    def compare(self, before: list[Step]) -> None:
        """Steps before that were another call's, on other values in the same shapes and memory."""
        found = differences(before, self.record.steps, self._expected)
        if found.is_too_much and not self.record.has_threads:
            self.verdicts.accuse(str(found))
        elif found.count:
            self.verdicts.doubt(str(found))

    # what the call returns

    def returned(self, results: Sequence[torch.Tensor]) -> None:
        """The call is over: every element must be a kernel's work."""
        if not self._needs_kernels:
            return
        with no_dispatch():
            for number, result in enumerate(results, start=1):
                if result.numel() and _is_followed(result):
                    self._judge(result, f"result {number} of {len(results)}" if len(results) > 1 else "the result")

    def _judge(self, result: torch.Tensor, name: str) -> None:
        memory = self._origins.of(result)
        memory.verify()
        labels = memory.of(result)
        allowed = [KERNEL, FRESH, *([SUM] if self._allows_sums else [])]
        wrong = ~torch.isin(labels, torch.tensor([*allowed, CONSTANT], dtype=torch.uint8))
        if not wrong.any() and not _is_one_value(result.detach()[labels == CONSTANT]):
            wrong = labels == CONSTANT
        if wrong.any():
            first = wrong.nonzero()[0].tolist()
            label = int(labels[tuple(first)])
            share = f"{int(wrong.sum())} of {result.numel()} elements of {name}"
            self.verdicts.blame(label, f"{share}, the first at {first}, were {self.verdicts.words(label, memory)}")


def _is_simulators() -> bool:
    """Whether the operation that runs was called by the simulator itself: erf is PyTorch's."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith((_TORCH, *_WATCHING)):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_HERE)


def _by_name(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operation."""
    return {**dict(zip([a.name for a in func._schema.arguments], args, strict=False)), **kwargs}


def _is_followed(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized


def _is_one_value(values: torch.Tensor) -> bool:
    return not values.numel() or bool(((values == values[0]) | ((values != values) & (values[0] != values[0]))).all())
