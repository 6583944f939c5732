"""The tensors that a launch may touch, and which of them an address belongs to.

A kernel gets each tensor's address with the tensor's number in the upper 16 bits, which pointer
arithmetic does not change: an address outside its own tensor is recognised even where another
tensor lies there.
"""

import ctypes
import gc
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from assignment.pytorch_private import is_in_memory

from . import suspects
from .faults import OutOfBounds, Place, Program, at, describe, element, place, source_line
from .layout import Layout
from .numerics import ADDRESS
from .shadow import Shadow, SparseShadow
from .trace import Traffic
from .undefined import began_fresh

WRAPPED = 1 << 32  # elements that an offset of 32 bits loses
NUMBER_AT = 48  # bits: user addresses have 47
_MAPPED_WHOLE = 1 << 24  # elements of a storage up to which all of it has a shadow


class FollowedMemory(Protocol):
    """The memory of an argument, of which a follower knows where its values come from."""

    address: int

    def kernel_wrote(self, offsets: np.ndarray, values: np.ndarray) -> None:
        """Handle a store of these values."""

    def keep(self, offsets: np.ndarray, width: int) -> Callable[[], None]:
        """Return what gives these elements their labels of now back."""

    def at(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return the labels of these elements."""

    def may_be_unwritten(self) -> bool:
        """Return whether some byte may hold what nothing has written."""

    def are_unwritten(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Return which elements hold a byte that nothing has written."""


class HeapTensor(NamedTuple):
    """A tensor of a rank that kernels of all ranks may reach."""

    rank: int
    name: str
    tensor: torch.Tensor
    shadow: Shadow


class Region:
    """One tensor argument of a launch: the window of memory that it may reach."""

    def __init__(self, name: str, tensor: torch.Tensor, number: int, is_input: bool) -> None:
        self.name, self.tensor, self.number, self.is_input = name, tensor, number, is_input
        self.layout = Layout.of(tensor)
        self.itemsize = tensor.itemsize
        self.address = tensor.data_ptr()
        self.open_to(self.layout, self.address)
        self.began_fresh = False  # its storage was made without values
        self.may_be_unwritten = False
        self.shadow: Shadow | None = None  # made at the first access, when all arguments are known
        storage = tensor.untyped_storage()
        is_huge = storage.nbytes() // self.itemsize > _MAPPED_WHOLE
        # of its first byte; -1: elements are numbered
        self.shadow_origin = -1 if is_huge else storage.data_ptr()
        self.traffic: Traffic | None = None
        self.is_followed = False  # whether these were asked for:
        self.origins: FollowedMemory | None = None  # where its values come from
        self.owner: int | None = None  # the rank on whose heap it lies
        self.is_noted = False  # as one that a launch stores to
        self.is_suspect = False  # whether a kernel must not load some of them

    def open_to(self, layout: Layout, address: int) -> None:
        """Let the region reach what this layout at this address covers, and nothing else."""
        self.reach, self.start, self.nbytes = layout, address, layout.nbytes
        self.origin = np.uint64((self.number << NUMBER_AT) + address) if address else np.uint64(0)
        self.is_dense = layout.is_dense
        self._arrays: dict[np.dtype, np.ndarray] = {}

    @property
    def tagged_address(self) -> np.uint64:
        return np.uint64((self.number << NUMBER_AT) + self.address)

    def offsets(self, addresses: np.ndarray, width: int) -> np.ndarray | None:
        """Return bytes from the window's start; None unless all accesses lie inside elements."""
        offsets = addresses - self.origin
        if int(offsets.max()) + width > self.nbytes:  # what lies before the window wraps around
            return None
        offsets = offsets.view(np.int64)
        return offsets if self.is_dense or self.reach.holds(offsets, width).all() else None

    def memory(self, dtype: np.dtype) -> np.ndarray:
        """Return the window as a flat array of this type."""
        array = self._arrays.get(dtype)
        if array is None:
            raw: Any = (ctypes.c_char * self.nbytes).from_address(self.start)
            array = self._arrays[dtype] = np.frombuffer(raw, dtype, self.nbytes // dtype.itemsize)
        return array

    def shadow_offsets(self, offsets: np.ndarray) -> np.ndarray:
        """Convert bytes from the window's start to bytes from the shadow's start."""
        if self.shadow_origin < 0:
            return self.reach.compact(offsets) * self.itemsize
        return offsets + (self.start - self.shadow_origin)

    def name_at(self, offset: int) -> str:
        """Return "x[3, 17]", for an offset from the window's start."""
        return element(self.name, self.layout.coordinates(offset + self.start - self.address))


class Regions:
    """The tensors of one launch."""

    def __init__(
        self, kernel: str, grid: Program, inputs: Sequence[torch.Tensor], storages: Mapping[int, list[torch.Tensor]]
    ) -> None:
        """Begin without arguments, beside what the caller of host code has passed, and its storages by address."""
        self._kernel, self._grid, self._inputs, self._storages = kernel, grid, inputs, storages
        self.program: Program = (0, 0, 0)  # that runs
        self._by_number: dict[int, Region] = {}
        self._strays: list[Region] = []
        self._shadows: dict[Hashable, Shadow] = {}
        self._heap: dict[int, Region] = {}  # what all ranks may reach, by address of the storage
        self.whose: Callable[[int], str] = lambda storage: ""  # says which other rank has a storage

    def reach(self, heap: Sequence[HeapTensor], whose: Callable[[int], str]) -> None:
        """Let the launch reach the symmetric heap too, before it has arguments."""
        self.whose = whose
        for part in heap:
            region = Region(part.name, part.tensor, len(self._by_number) + 1, is_input=False)
            region.shadow, region.owner = part.shadow, part.rank
            region.began_fresh = region.may_be_unwritten = began_fresh(part.tensor)
            region.shadow_origin = storage = part.tensor.untyped_storage().data_ptr()
            self._shadows[storage] = part.shadow
            self._by_number[region.number] = self._heap[storage] = region
            self._storages = {**self._storages, storage: [part.tensor]}

    def tagged(self, addresses: np.ndarray) -> np.ndarray:
        """Return addresses with the numbers of the tensors of the heap in which they lie."""
        for region in self._heap.values():
            offsets = addresses - np.uint64(region.address)  # what lies before wraps around
            addresses = np.where(offsets < np.uint64(region.nbytes), region.tagged_address + offsets, addresses)
        return addresses

    def __iter__(self) -> Iterator[Region]:
        return iter(self._by_number.values())

    @property
    def most(self) -> int:
        """The largest number of a tensor."""
        return len(self._by_number)

    def admit(self, name: str, tensor: torch.Tensor) -> Region:
        """Add an argument; its address as the kernel gets it is the region's tagged_address."""
        number, on = len(self._by_number) + 1, self._heap.get(tensor.untyped_storage().data_ptr())
        if on and on.tensor.is_set_to(tensor):
            return on
        region = Region(name, tensor, number, on is None and self._is_input(tensor))
        if on:
            region.name, region.owner, region.shadow = f"rank {on.owner}'s {name}", on.owner, on.shadow
            region.began_fresh = region.may_be_unwritten = on.began_fresh
        self._by_number[number] = region
        return region

    def _is_input(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._storages

    def shadow(self, region: Region) -> Shadow:
        """Return the storage's shadow, or one of the region alone where the storage is huge."""
        if region.shadow is None:
            storage = region.tensor.untyped_storage()
            if region.shadow_origin >= 0:
                on_it = [r for r in [region, *self] if r.shadow_origin == region.shadow_origin]
                unit = min(r.itemsize for r in on_it)
                region.shadow = self._shadows.setdefault(region.shadow_origin, Shadow(storage.nbytes(), unit))
            else:
                region.shadow = self._shadow_of_huge(region, storage)
        return region.shadow

    def _shadow_of_huge(self, region: Region, storage: torch.UntypedStorage) -> Shadow:
        """Return the shadow of a region alone; where others reach into its range, one that they share."""
        on_it = [r for r in self if r.tensor.untyped_storage().data_ptr() == storage.data_ptr()]
        reach = region.start, region.reach.dims
        if all((other.start, other.reach.dims) == reach for other in on_it):
            return self._shadows.setdefault(reach, Shadow(region.reach.numel * region.itemsize, region.itemsize))
        return self._shadows.setdefault(("huge", storage.data_ptr()), SparseShadow())

    def pieces(self, region: Region, offsets: np.ndarray, width: int) -> tuple[Shadow, np.ndarray]:
        """Return the shadow of a region, and the pieces of accesses at these offsets."""
        shadow = self.shadow(region)
        if isinstance(shadow, SparseShadow):
            return shadow, shadow.pieces(offsets + region.start, width)
        return shadow, shadow.pieces(region.shadow_offsets(offsets), width)

    def find(self, addresses: np.ndarray, width: int, action: str) -> tuple[Region, np.ndarray] | None:
        """Return the region of all the addresses, and their offsets; None if there are several.

        Raises OutOfBounds.
        """
        region = self._by_number.get(int(addresses.item(0)) >> NUMBER_AT)
        offsets = region.offsets(addresses, width) if region else None
        if region and offsets is not None:
            return region, offsets
        if region and region.owner is not None and (found := self._of_other_rank(region, addresses, width)):
            return found
        if len(self.by_tensor(addresses, action)) > 1:
            return None
        region = region or self._stray(int(addresses.item(0)), action)
        self._widen(region, addresses, width, action)
        offsets = region.offsets(addresses, width)
        if offsets is None:
            raise self._fault(region, addresses, width, action)
        return region, offsets

    def _of_other_rank(self, region: Region, addresses: np.ndarray, width: int) -> tuple[Region, np.ndarray] | None:
        """Return the same tensor of another rank, to which the distance of addresses may lead."""
        addresses = self.tagged(addresses & ADDRESS)
        other = self._by_number.get(int(addresses.item(0)) >> NUMBER_AT)
        if other is None or other.owner in (None, region.owner):
            return None
        offsets = other.offsets(addresses, width)
        is_same = other.tensor.shape == region.tensor.shape
        return (other, offsets) if is_same and offsets is not None else None

    def by_tensor(self, addresses: np.ndarray, action: str) -> list[np.ndarray]:
        """Return masks of the lanes that belong to one tensor each."""
        numbers = addresses >> np.uint64(NUMBER_AT)
        masks = [numbers == number for number in np.unique(numbers) if number in self._by_number]
        rest = ~np.logical_or.reduce(masks) if masks else np.ones(addresses.shape, bool)
        while rest.any():
            region = self._stray(int(addresses[rest].item(0)), action)
            inside = (addresses >= np.uint64(region.start)) & (addresses < np.uint64(region.start + region.nbytes))
            masks.append(rest & inside)
            rest &= ~inside
        return masks

    def _stray(self, address: int, action: str) -> Region:
        """Return the tensor at an address that came as an integer, itself or in a table.

        That may be an argument or any other tensor.
        """
        for region in self._strays:
            if region.start <= address < region.start + region.nbytes:
                return region
        arguments = [region.tensor for region in self]
        others = sorted(_live_tensors(), key=lambda tensor: -Layout.of(tensor).nbytes)
        for tensor in [*arguments, *self._inputs, *others]:
            if tensor.data_ptr() <= address < tensor.data_ptr() + Layout.of(tensor).nbytes:
                if other := self.whose(tensor.untyped_storage().data_ptr()):
                    text = f"{OutOfBounds.kind}: program {self.program} of {self._kernel} {action} a tensor of {other}"
                    remedy = "  it is not on the symmetric heap: no other rank can reach it"
                    raise OutOfBounds(text, at(place()), remedy)
                region = Region("(a tensor)", tensor, 0, self._is_input(tensor))
                self._strays.append(region)
                return region
        who = f"program {self.program} of {self._kernel}"
        text = f"{OutOfBounds.kind}: {who} {action} address {address & int(ADDRESS):#x}, of no tensor"
        raise OutOfBounds(text, at(place()))

    def _widen(self, region: Region, addresses: np.ndarray, width: int, action: str) -> None:
        """Let the region reach a tensor of which it is a view, if all addresses then lie inside.

        A launch must not store into another of its arguments in this way.
        """
        if region.offsets(addresses, width) is not None:
            return
        storage = region.tensor.untyped_storage().data_ptr()
        known = self._storages.get(storage)
        arguments = [r.tensor for r in self if r.tensor.untyped_storage().data_ptr() == storage]
        others = arguments + (known if known is not None else _on_storage(storage))
        is_strict = region.number > 0 and (known is not None or not self._inputs)
        for tensor in others:
            if (is_strict and not _is_part(region.tensor, tensor)) or not _holds(
                tensor, region, addresses, width
            ).all():
                continue
            outside = ~_holds(region.tensor, region, addresses, width)
            siblings = [t for t in arguments if t is not region.tensor and t is not tensor]
            if action == "loads" or not any((_holds(t, region, addresses, width) & outside).any() for t in siblings):
                region.open_to(Layout.of(tensor), tensor.data_ptr())
                region.shadow = None
                return

    def _fault(self, region: Region, addresses: np.ndarray, width: int, action: str) -> OutOfBounds:
        offsets = (addresses - region.tagged_address).view(np.int64).ravel()
        outside = offsets[~region.layout.holds(offsets, width)]
        below, above = int((outside < 0).sum()), int((outside + width > region.layout.nbytes).sum())
        parts = [(below, "before its first element"), (above, "past its last element")]
        parts.append((outside.size - below - above, "in gaps between its elements"))
        where = " and ".join(f"{count} {text}" for count, text in parts if count)
        lanes = f"{outside.size} of {addresses.size} active lanes: {where}" if addresses.size > 1 else where[2:]
        index = region.name_at(int(outside[0]) + region.address - region.start)
        if int(outside[0]) >= 0 and (row := region.layout.beyond(int(outside[0]))):
            index += f", or {element(region.name, row)}"
        in_kernel = place()
        reason = _wrapped(region.layout, outside[:1], width) or self._suspect(region, offsets, in_kernel)
        reason = reason or _beside(region.layout, int(outside[0]))
        return OutOfBounds(
            f"{OutOfBounds.kind}: program {self.program} of {self._kernel} {action} {index}, "
            f"but {region.name} is {describe(region.tensor)}",
            at(in_kernel),
            f"  {lanes}{reason}",
        )

    def _suspect(self, region: Region, offsets: np.ndarray, where: Place) -> str:
        """Return the likely cause, if every lane of the access agrees on it."""
        others = [(other.name, other.layout) for other in self if other is not region and other.layout.numel]
        elements = offsets // region.itemsize
        line = source_line(where)
        access = suspects.SuspectAccess(region.name, region.layout, elements, others, self.program, self._grid, line)
        return suspects.likely(access)


def _wrapped(layout: Layout, offset: np.ndarray, width: int) -> str:
    """Return the hint, on its own line, that a 32-bit offset overflowed; "" if it did not."""
    if layout.holds(offset + WRAPPED * layout.itemsize, width).all():
        return "\n  an offset of 32 bits has wrapped around: the element lies 2³¹ or more further, use .to(tl.int64)"
    return ""


def _beside(layout: Layout, offset: int) -> str:
    """Return the hint that an offset between elements lies next to one; "" if it does not."""
    index = layout.coordinates(offset)
    if layout.shape and all(0 <= i < n for i, n in zip(index, layout.shape, strict=True)):
        return f"\n  it lies beside that element: is every index multiplied by its own stride of {layout.strides}?"
    return ""


def _holds(tensor: torch.Tensor, region: Region, addresses: np.ndarray, width: int) -> np.ndarray:
    """Return which of a region's addresses lie in elements of the tensor."""
    origin = np.uint64((region.number << NUMBER_AT) + tensor.data_ptr())
    return Layout.of(tensor).holds((addresses - origin).view(np.int64), width)


def _is_part(view: torch.Tensor, whole: torch.Tensor) -> bool:
    """Return whether `view` is `whole` at some indices, or a run of its outermost rows.

    No inner dimension may be cut short: what lies beyond, such as the end of padded rows, is not
    the view's to read.
    """
    if view.dtype != whole.dtype or whole.data_ptr() > view.data_ptr():
        return False
    cut, dims = _moving(view), _moving(whole)
    for stride, size in cut:
        runs = _runs(dims, stride)
        is_outermost = (stride, size) == cut[-1]
        if size not in runs and not (is_outermost and runs and runs[-1] >= size and _reaches_end(dims, stride, runs)):
            return False
    return True


def _moving(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """Return (stride, size) where the size is above 1 and the stride not 0, smallest first."""
    return sorted((t, n) for t, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and t)


def _runs(dims: list[tuple[int, int]], stride: int) -> list[int]:
    """Return the lengths of the runs of elements `stride` apart, over contiguous dimensions."""
    lengths, count = [], 1
    for step, size in dims:
        if step == stride * count:
            count *= size
            lengths.append(count)
    return lengths


def _reaches_end(dims: list[tuple[int, int]], stride: int, runs: list[int]) -> bool:
    step, size = dims[-1]
    return stride * runs[-1] == step * size


def _live_tensors() -> list[torch.Tensor]:
    """Return every tensor on the CPU that a Python object holds."""
    found = []
    for held in gc.get_objects():
        try:
            if issubclass(type(held), torch.Tensor) and is_in_memory(held):
                found.append(held)
        except Exception:  # a subclass may forbid to ask
            continue
    return found


def _on_storage(storage: int) -> list[torch.Tensor]:
    tensors = [t for t in _live_tensors() if t.untyped_storage().data_ptr() == storage]
    return tensors + [t._base for t in tensors if t._base is not None]
