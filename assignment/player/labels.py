"""Where the values in memory come from: a label for each element of each storage of a program.

Only the player's own code writes them: what a launch stores is seen lane by lane, and `derivations`
works out what an operation of PyTorch makes of labels.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from assignment.protocol.said import Said

# CONSTANT is 0, so that an operation that pads with zeros pads labels as it should.
CONSTANT, FOREIGN, FRESH, INPUT, KERNEL, SUM, DELTA, PRODUCT, STALE, CHOICE = range(10)
FIRST_INPUT = 16  # from here on: where costs are counted, copied from this input; all count as INPUT
FIRST_SOURCE = 32  # from here on: computed by PyTorch, in the order of `Work.sources`
LAST_SOURCE = 254

_RANK = np.arange(256.0)  # of two labels: the higher the less it is a kernel's work
_RANK[[INPUT, FOREIGN, PRODUCT]] = FIRST_INPUT, FIRST_SOURCE - 0.6, FIRST_SOURCE - 0.3

NEXT_CALL = np.arange(256, dtype=np.uint8)  # what becomes of a label when another call begins
NEXT_CALL[[INPUT, KERNEL, SUM, DELTA, *range(FIRST_INPUT, FIRST_SOURCE)]] = STALE
_HAS_WIDTH = np.ones(256, np.uint8)  # by label: whether PyTorch's bytes are those of one number
_HAS_WIDTH[[CONSTANT, FRESH]] = 0
_NEXT_CALL_STORED = np.concatenate([[0], NEXT_CALL[:-1] + 1]).astype(np.uint8)


@dataclass(frozen=True)
class HostOperation:
    """An operation outside of kernels that computed values."""

    what: str  # "aten::_softmax"
    place: Said  # the submission's line
    # of a doubt, for staff to judge: the labels of what was cleaned up, and how often it was
    stands_for: frozenset[int] = frozenset()
    depth: int = 0
    is_unplayed: bool = False  # whether the operation is not played: nothing is known of what it makes


class Memory:
    """The labels of one storage: one for all elements, and exceptions by element.

    Attributes:
        is_unwritten: by label, whether values depend on unwritten memory.
    """

    def __init__(self, tensor: torch.Tensor, label: int, is_unwritten: np.ndarray) -> None:
        self._is_unwritten = is_unwritten
        storage = tensor.untyped_storage()
        # no other storage gets its address as long as this is held
        self.reference = StorageWeakRef(storage)
        self.address, self.nbytes = storage.data_ptr(), storage.nbytes()
        self.unit = max(tensor.itemsize, 1)
        self.place = Said("")  # the submission's line where PyTorch last wrote
        self._label = label
        # by element: the label + 1; 0 where it is that of all
        self._stored: np.ndarray | None = None
        # bytes of the numbers that PyTorch put there: of all, and by element where that differs; 0 for a kernel's bytes
        # and for constants, which are whatever they are read as
        self._width = int(_HAS_WIDTH[label]) * self.unit
        self._widths: np.ndarray | None = None

    def _array(self, unit: int) -> np.ndarray:
        """Return the labels by element, to be changed; elements are of `unit` bytes or less."""
        if self._stored is None:
            self.unit = min(self.unit, unit)
            self._stored = np.zeros(max(-(-self.nbytes // self.unit), 1), np.uint8)
        if unit < self.unit:
            self._stored = self._stored.repeat(self.unit // unit)
            self._widths = None if self._widths is None else self._widths.repeat(self.unit // unit)
            self.unit = unit
        return self._stored

    def _widths_for(self, width: int | np.ndarray) -> np.ndarray | None:
        """Return the widths by element, to be changed; None where all are of this width and stay so."""
        if self._widths is None and np.any(width != self._width):
            self._widths = np.full_like(self._array(self.unit), self._width)
        return self._widths

    def _parts(self, tensor: torch.Tensor, array: np.ndarray) -> list[torch.Tensor]:
        """Return what an array says of the parts of a tensor's elements, each in its shape."""
        elements = torch.from_numpy(array)
        ratio = tensor.itemsize // self.unit
        strides = [stride * ratio for stride in tensor.stride()]
        offset = tensor.storage_offset() * ratio
        return [torch.as_strided(elements, tensor.shape, strides, offset + part) for part in range(ratio)]

    def _labels(self, stored: np.ndarray) -> np.ndarray:
        return np.where(stored == 0, self._label, stored - 1).astype(np.uint8)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the labels of a tensor's elements, in its shape."""
        if self._stored is None:
            return torch.full((), self._label, dtype=torch.uint8).expand(tensor.shape)
        parts = [self._labels(part.numpy()) for part in self._labels_of_parts(tensor)]
        labels = functools.reduce(_worse, parts)
        if len(parts) > 1:  # an element that is written in part
            unwritten = [self._is_unwritten[part] for part in parts]
            is_mixed = functools.reduce(np.logical_or, unwritten) & ~functools.reduce(np.logical_and, unwritten)
            labels = np.where(is_mixed, np.uint8(FOREIGN), labels)
        return torch.from_numpy(labels)

    def _labels_of_parts(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return self._parts(tensor, self._array(tensor.itemsize))

    def are_whole(self, tensor: torch.Tensor) -> bool:
        """Return whether no element was put together by PyTorch of parts of numbers, or is a part of one."""
        if self._widths is None:
            return self._width in (0, tensor.itemsize)
        self._array(tensor.itemsize)  # which are of its width or less
        return not any(((part != 0) & (part != tensor.itemsize)).any() for part in self._parts(tensor, self._widths))

    def counts(self, tensor: torch.Tensor) -> np.ndarray:
        """Return how many elements of the tensor have each label; what is seen many times counts once."""
        return np.bincount(self.of(once(tensor)).flatten().numpy(), minlength=256)

    def is_constant(self) -> bool:
        """Return whether all values are constants."""
        return self._stored is None and self._label == CONSTANT

    def is_of(self, storage: torch.UntypedStorage) -> bool:
        """Return whether the storage is still the one that was made."""
        return (self.address, self.nbytes) == (storage.data_ptr(), storage.nbytes())

    def labels_in(self, tensor: torch.Tensor) -> set[int]:
        """Return the labels that elements of the tensor have."""
        if self._stored is None:
            return {self._label} if tensor.numel() else set()
        counts = torch.bincount(self.of(tensor).flatten(), minlength=256)
        return set(counts.nonzero().flatten().tolist())

    def write(self, tensor: torch.Tensor, labels: torch.Tensor | int) -> None:
        """Record that a tensor on this storage was given values with these labels.

        Which of the elements that share an address was written last is unknown: where their labels differ, it gets
        FOREIGN.
        """
        uniform = labels if isinstance(labels, int) else _uniform(labels)
        overlaps = meets_itself(tensor)
        if uniform is not None and not overlaps and tensor.numel() * tensor.itemsize == self.nbytes:
            self._label, self._stored = uniform, None
            self._width, self._widths = int(_HAS_WIDTH[uniform]) * tensor.itemsize, None
            return
        given = np.asarray(labels if uniform is None else uniform, np.uint8)
        parts = self._labels_of_parts(tensor)
        _put(given + 1, parts)
        if overlaps and uniform is None:
            given = _settled(given, parts[0].numpy())
            _put(given + 1, parts)
        width = _HAS_WIDTH[given] * np.uint8(tensor.itemsize)
        if (widths := self._widths_for(width)) is not None:
            _put(width, self._parts(tensor, widths))

    def kernel_wrote(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """Record that a kernel stored `values` at these offsets in bytes."""
        width = values.dtype.itemsize
        array = self._array(width)
        widths = self._widths_for(0)
        for byte in range(0, width, self.unit):
            array[(offsets + byte) // self.unit] = KERNEL + 1
            if widths is not None:
                widths[(offsets + byte) // self.unit] = 0

    def keep(self, offsets: np.ndarray, width: int) -> Callable[[], None]:
        """Return what gives the elements of `width` bytes at these offsets their labels of now back."""
        each = offsets.reshape(-1, 1) + np.arange(width)
        kept = self._array(width)[each // self.unit]

        def put_back() -> None:
            self._array(width)[each // self.unit] = kept

        return put_back

    def at(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return the labels of the elements of `width` bytes at these offsets in bytes."""
        if self._stored is None:
            return np.full(offsets.shape, self._label, np.uint8)
        parts = [self._stored[(offsets + byte) // self.unit] for byte in range(0, width, self.unit)]
        return functools.reduce(_worse, map(self._labels, parts))

    def may_be_unwritten(self) -> bool:
        """Return whether any element depends on unwritten memory."""
        return self.holds_any(self._is_unwritten)

    def are_unwritten(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return which elements of `width` bytes at these offsets depend on an unwritten byte."""
        if self._stored is None:
            return np.full(offsets.shape, self._is_unwritten[self._label])
        parts = [self._stored[(offsets + byte) // self.unit] for byte in range(0, width, self.unit)]
        return functools.reduce(np.logical_or, [self._is_unwritten[self._labels(part)] for part in parts])

    def holds_any(self, is_bad: np.ndarray) -> bool:
        """Return whether the table is true for the label of any element."""
        if self._stored is None:
            return bool(is_bad[self._label])
        by_stored = np.concatenate([[is_bad[self._label]], is_bad[:-1]])
        return bool(by_stored[self._stored].any())

    def age(self) -> None:
        """Begin another call."""
        self._label = int(NEXT_CALL[self._label])
        if self._stored is not None:
            self._stored = _NEXT_CALL_STORED[self._stored]


def _put(values: np.ndarray, parts: list[torch.Tensor]) -> None:
    """Write an array to each of these, or one value to all elements."""
    for part in parts:
        part.numpy()[...] = values


def _settled(given: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Return the labels with FOREIGN for all elements at an address to which different ones were written."""
    stored[stored != given + 1] = FOREIGN + 1
    return stored - 1


def _worse(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return, of each two labels, the one that is less a kernel's work."""
    return np.where(_RANK[others] > _RANK[some], others, some)


def worst(labels: torch.Tensor) -> int:
    """Return the label of several elements together: the one that is least a kernel's work."""
    return max(labels.unique().tolist(), key=_RANK.item, default=CONSTANT)


def once(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of all elements that the tensor's addresses are of, without what strides of 0 repeat.

    Where elements overlap in another way, and are more than there is memory, it may have more than the tensor's: to
    look at, not for what is written.
    """
    if not tensor.numel():
        return tensor
    seen = tensor[tuple(slice(None) if stride else slice(1) for stride in tensor.stride())]
    return seen if seen.numel() <= reach(seen) else seen.as_strided((reach(seen),), (1,))


def reach(tensor: torch.Tensor) -> int:
    """Return how many elements lie between the first and the last of a tensor that has some, with these."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def meets_itself(tensor: torch.Tensor) -> bool:
    """Return whether elements may share addresses: whether a stride is within the reach of smaller ones."""
    last = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= last:
            return True
        last += max(size - 1, 0) * stride
    return False


def _uniform(labels: torch.Tensor) -> int | None:
    if not labels.numel():
        return CONSTANT
    first = labels.flatten()[0]
    return int(first) if bool((labels == first).all()) else None
