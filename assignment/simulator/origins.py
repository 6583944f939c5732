"""Where the values in memory come from: a label for each element of each storage that a submission can touch.

A storage is known by its address. Beside the labels it has a copy of its bytes as they were after the last write that
was seen; bytes that differ from it were written by something else than a kernel or an operation of PyTorch's.
"""

import contextlib
import ctypes
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._mode_utils import no_dispatch

from .costs import address
from .steps import Constants, Digest, Name
from .undefined import INTEGERS, PATTERN

# Labels. CONSTANT is 0, so that an operation that pads with zeros pads labels as it should.
CONSTANT, FOREIGN, FRESH, INPUT, KERNEL, SUM, DELTA, PRODUCT, STALE = range(9)
FIRST_SOURCE = 16  # from here on: computed by PyTorch, in the order of `Origins.sources`
LAST_SOURCE = 255

_NEXT_CALL = np.arange(256, dtype=np.uint8)  # what a label becomes when another call begins
_NEXT_CALL[[INPUT, KERNEL, SUM, DELTA, PRODUCT]] = STALE
INPUTS_COMPARED_UP_TO = 64 << 20  # bytes of a storage; larger inputs are views that stride over gigabytes
_IS_CONSTANT = np.arange(256) == CONSTANT
CONSTANTS_COMPARED_UP_TO = 1 << 20  # bytes of a storage
COMPARED_UP_TO = 1 << 30  # bytes of any other; larger ones have one label and no copy, and no kernel's work in them


@dataclass(frozen=True)
class Source:
    """An operation outside of kernels that computed values."""

    what: str  # "torch.softmax (aten::_softmax)"
    place: str  # the submission's line, as text for a report
    is_doubt: bool = False  # whether it is for staff to judge


class Memory:
    """One storage: the labels of its elements, and its bytes after the last write that was seen."""

    def __init__(self, tensor: torch.Tensor, label: int) -> None:
        storage = tensor.untyped_storage()
        self.reference = StorageWeakRef(storage)
        self.address, self.nbytes = storage.data_ptr(), storage.nbytes()
        self.dtype, self.unit = tensor.dtype, max(tensor.itemsize, 1)
        self.is_compared = self.nbytes <= (INPUTS_COMPARED_UP_TO if label == INPUT else COMPARED_UP_TO)
        self.line: Any = None  # of the submission, where PyTorch last wrote: code and number
        self.name: Name | None = None  # which memory of a call it is: the same in another call of the same kind
        self._constants: Constants | Digest | None = None
        self._label = label  # of all elements, as long as there is no array
        self._labels: torch.Tensor | None = None
        self._copy: np.ndarray | None = None
        if label != FRESH:
            self.remember()

    def _raw(self) -> np.ndarray:
        raw: Any = (ctypes.c_char * self.nbytes).from_address(self.address)
        return np.frombuffer(raw, np.uint8)

    def remember(self) -> None:
        """What the memory holds now was written in a way that was seen."""
        if self.is_compared and self.nbytes:
            self._copy = self._raw().copy()

    def verify(self) -> None:
        """Label FOREIGN what has changed since, and what was never written but does not hold a fresh value."""
        if not self.is_compared or not self.nbytes:
            return
        if self._copy is None:
            self._verify_fresh()
            return
        raw = self._raw()
        if np.array_equal(raw, self._copy):
            return
        self._constants = None
        whole = self.nbytes // self.unit * self.unit
        differs = (raw != self._copy)[:whole].reshape(-1, self.unit).any(axis=1)
        self.array()[: differs.size][torch.from_numpy(differs)] = FOREIGN
        self._copy = raw.copy()

    def _verify_fresh(self) -> None:
        found = _holds_fresh_values(self._raw(), self.dtype)
        self.remember()
        if not found.all():
            self.array()[: found.size][torch.from_numpy(~found)] = FOREIGN

    def array(self) -> torch.Tensor:
        """The labels by element, to be changed."""
        if self._labels is None:
            with no_dispatch():  # who counts what PyTorch makes does not mean these
                self._labels = torch.full((max(self.nbytes // self.unit, 1),), self._label, dtype=torch.uint8)
        return self._labels

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The labels of a tensor's elements, in its shape; a view where the memory has labels by element."""
        if self._labels is None:
            return torch.full((), self._label, dtype=torch.uint8).expand(tensor.shape)
        ratio = tensor.itemsize // self.unit
        if ratio * self.unit != tensor.itemsize:  # a narrower type than that which the memory was made for
            return torch.tensor(worst(self._labels), dtype=torch.uint8).expand(tensor.shape)
        strides = [stride * ratio for stride in tensor.stride()]
        return torch.as_strided(self._labels, tensor.shape, strides, tensor.storage_offset() * ratio)

    def labels_in(self, tensor: torch.Tensor) -> set[int]:
        """The labels that elements of the tensor have."""
        if self._labels is None:
            return {self._label}
        counts = torch.bincount(self.of(tensor).flatten(), minlength=256)
        return set(counts.nonzero().flatten().tolist())

    def write(self, tensor: torch.Tensor, labels: torch.Tensor | int) -> None:
        """A tensor on this storage was given values with these labels; all that it holds now is known."""
        self._constants = None
        covers = tensor.numel() * tensor.itemsize == self.nbytes
        uniform = labels if isinstance(labels, int) else _uniform(labels)
        if not self.is_compared:
            self._label = uniform if uniform is not None else worst(torch.as_tensor(labels))
        elif covers and uniform is not None:
            self._label, self._labels = uniform, None
        elif tensor.itemsize % self.unit:
            self.array()[:] = uniform if uniform is not None else worst(torch.as_tensor(labels))
        else:
            self.array()
            self.of(tensor)[...] = labels
        self.remember()

    def kernel_wrote(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """A kernel stored `values` at these offsets in bytes from the storage's start."""
        if not self.is_compared:
            self._label = FOREIGN
            return
        assert self._copy is not None  # a launch begins with verify()
        self._constants = None
        width = values.dtype.itemsize
        whole = self.nbytes // width * width
        self._copy[:whole].view(values.dtype)[offsets // width] = values
        labels = self.array().numpy()
        for byte in range(0, width, self.unit):
            labels[(offsets + byte) // self.unit] = KERNEL

    def at(self, offsets: np.ndarray) -> np.ndarray:
        """The labels of the elements at these offsets in bytes."""
        if self._labels is None:
            return np.full(offsets.shape, self._label, np.uint8)
        return self._labels.numpy()[offsets // self.unit]

    def holds_any(self, is_bad: np.ndarray) -> bool:
        """Whether any element has a label for which the table says so."""
        return bool(is_bad[self._label] if self._labels is None else is_bad[self._labels.numpy()].any())

    @property
    def is_constant(self) -> bool:
        """Whether all of it is."""
        return self._labels is None and self._label == CONSTANT

    def constants(self) -> Constants | Digest | None:
        """What it holds that is constant; None where nothing is."""
        if not self.nbytes or not self.holds_any(_IS_CONSTANT):
            return None
        if self._constants is None:
            elements = self._raw()[: self.nbytes // self.unit * self.unit].reshape(-1, self.unit)
            is_constant = np.ones(1, bool) if self.is_constant else self.array().numpy()[: len(elements)] == CONSTANT
            is_constant = np.broadcast_to(is_constant, len(elements))
            is_one = bool((elements == elements[:1]).all())
            if is_one:
                self._constants = Constants(np.broadcast_to(elements[:1].copy(), elements.shape), is_constant)
            elif self.nbytes <= CONSTANTS_COMPARED_UP_TO:
                self._constants = Constants(elements.copy(), is_constant)
            else:
                self._constants = Digest(hashlib.sha256(elements[is_constant]).hexdigest())
        return self._constants

    @contextlib.contextmanager
    def without_earlier_work(self) -> Iterator[None]:
        """What earlier calls left in it is NaN inside, and there again afterwards."""
        if not self.is_compared or not self.nbytes or not self.holds_any(np.arange(256) == STALE):
            yield
            return
        raw, labels = self._raw(), np.broadcast_to(self.array().numpy(), self.nbytes // self.unit)
        before = raw.copy()
        raw[: self.nbytes // self.unit * self.unit].reshape(-1, self.unit)[labels == STALE] = 0xFF
        self.remember()
        try:
            yield
        finally:
            if not self.reference.expired():
                raw[:] = before
                self.remember()

    def age(self) -> None:
        """Another call begins."""
        self._constants = None
        self._label = int(_NEXT_CALL[self._label])
        if self._labels is not None:
            self._labels = torch.from_numpy(_NEXT_CALL[self._labels.numpy()])


class Origins:
    """All storages that are known, by address."""

    def __init__(self) -> None:
        self._memories: dict[int, Memory] = {}
        self._names: dict[Name, Memory] = {}
        self.name: Callable[[Memory, Callable[[Name], bool]], None]  # gives new memory a name that is not taken
        self.sources: list[Source] = []

    def begin(self, inputs: Iterable[torch.Tensor]) -> None:
        """A call with these tensors begins; what is left of earlier ones is stale."""
        self._memories = {a: memory for a, memory in self._memories.items() if not memory.reference.expired()}
        self._names = {name: memory for name, memory in self._names.items() if not memory.reference.expired()}
        for memory in self._memories.values():
            memory.verify()
            memory.age()
        for position, tensor in enumerate(inputs):
            memory = self._memories[address(tensor)] = Memory(tensor, INPUT)
            memory.name = Name(f"input {position}")

    def made(self, tensor: torch.Tensor, label: int) -> Memory:
        """A storage has come into being."""
        memory = self._memories[address(tensor)] = Memory(tensor, label)
        self.name(memory, self._is_taken)
        if memory.name:
            self._names[memory.name] = memory
        return memory

    def _is_taken(self, name: Name) -> bool:
        """Whether memory that is still there has this name."""
        return name in self._names and not self._names[name].reference.expired()

    @contextlib.contextmanager
    def without_earlier_work(self) -> Iterator[None]:
        """What earlier calls have left in memory is not there inside."""
        with contextlib.ExitStack() as stack:
            for memory in [memory for memory in self._memories.values() if not memory.reference.expired()]:
                stack.enter_context(memory.without_earlier_work())
            yield

    def of(self, tensor: torch.Tensor) -> Memory:
        """The memory of a tensor; one that nobody was seen to make is FOREIGN."""
        memory = self._memories.get(address(tensor))
        storage = tensor.untyped_storage()
        if memory is None or memory.reference.expired() or memory.nbytes != storage.nbytes():
            memory = self.made(tensor, FOREIGN)
        return memory

    def knows(self, tensor: torch.Tensor) -> bool:
        memory = self._memories.get(address(tensor))
        return memory is not None and not memory.reference.expired()

    def own_storages(self) -> set[int]:
        """Where the labels are."""
        held = [memory._labels for memory in self._memories.values()]
        return {labels.untyped_storage()._cdata for labels in held if labels is not None}

    def label_for(self, source: Source) -> int:
        """The label of what this source computes."""
        if source not in self.sources:
            self.sources.append(source)
        return min(FIRST_SOURCE + self.sources.index(source), LAST_SOURCE)

    def source(self, label: int) -> Source:
        return self.sources[label - FIRST_SOURCE]

    def is_doubt(self, label: int) -> bool:
        return label >= FIRST_SOURCE and self.source(label).is_doubt


def worst(labels: torch.Tensor) -> int:
    """The label of several elements together: that of the one that is least a kernel's work."""
    present = set(labels.unique().tolist())
    computed = [label for label in present if label >= FIRST_SOURCE]
    ranked = [*computed, *(label for label in (FOREIGN, PRODUCT) if label in present)]
    return ranked[0] if ranked else max(present, default=CONSTANT)


def _uniform(labels: torch.Tensor) -> int | None:
    if not labels.numel():
        return CONSTANT
    first = labels.flatten()[0]
    return int(first) if bool((labels == first).all()) else None


def _holds_fresh_values(raw: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Which elements hold what memory without values holds here: see undefined.fill_fresh_memory()."""
    values = torch.from_numpy(raw[: raw.size // dtype.itemsize * dtype.itemsize].copy()).view(dtype)
    if dtype == torch.bool or dtype.is_complex:
        return (values if dtype == torch.bool else values.isnan()).numpy()
    if dtype.is_floating_point:
        bits = values.view(INTEGERS[dtype.itemsize])
        nan = torch.tensor([math.nan], dtype=dtype).view(bits.dtype)
        return ((bits == nan) | (bits == PATTERN.get(dtype.itemsize, int(nan)))).numpy()
    largest = torch.iinfo(dtype).max
    return ((values == largest) | (values == min(PATTERN.get(dtype.itemsize, largest), largest))).numpy()
