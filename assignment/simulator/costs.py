"""What a call moves, by tensor: by its launches, and by PyTorch's operations between them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import torch

from assignment.pytorch_private import Argument, Arguments, Keywords, OpOverload, tensors_of

from .bodies import DispatchMode
from .layout import Layout
from .trace import LaunchCost, Traffic

COSTS = ("read", "tile_rows", "written", "beside")  # of a call, in this order
Counts = Callable[[torch.Tensor], np.ndarray]


class HostTraffic(DispatchMode):
    """Bytes that PyTorch's operations read and write, by storage, and which storages are copies.

    Views and fresh memory cost nothing, and constant fills are counted separately. Every tensor is
    kept until the end, so that no address is reused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[Window, int]] = []
        self.written: list[tuple[Window, int]] = []
        # bytes written by torch.zeros and other constant fills, which are not in `written`
        self.filled = 0
        self.made_from: dict[int, set[int]] = defaultdict(set)
        self.largest = 0  # elements of the largest tensor made
        self.by_label = np.zeros(256, np.int64)  # bytes read, by the label that says where they come from
        self._kept: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Collection[type], args: Arguments = (), kwargs: Keywords | None = None
    ) -> Argument:
        result = func(*args, **(kwargs or {}))
        self.note(func, tensors_in((args, kwargs)), tensors_in(result))
        return result

    def note(
        self, func: OpOverload, inputs: list[torch.Tensor], outputs: list[torch.Tensor], counts: Counts | None = None
    ) -> None:
        """Count what an operation reads and writes; `counts` says of a tensor how many elements have each label."""
        self._kept += outputs
        self.largest = max([self.largest, *map(held, outputs)])
        changed = _changed(func, inputs, outputs)
        known = {address(t) for t in inputs}
        made = [t for t in outputs if address(t) not in known]
        is_view = outputs and not made and not changed
        if is_view or "empty" in func.__name__:
            return
        name = func._schema.name.removeprefix("aten::")
        overwritten = {id(t) for t in changed} if name in _OVERWRITING else set()
        takes_shape_only = name.endswith("_like") or name.startswith("new_")
        sources = [] if takes_shape_only else [t for t in inputs if id(t) not in overwritten]
        self.read += [(window(source), held(source) * source.itemsize) for source in sources]
        self.by_label += sum(counts(source) * source.itemsize for source in sources) if counts else 0
        if name.removeprefix("new_").removesuffix("_like") in _FILLS:
            self.filled += sum(held(t) * t.itemsize for t in [*made, *changed])
            return
        amounts: dict[int, int] = defaultdict(int)
        for source in sources:
            amounts[address(source)] += source.numel()
        for target in [*made, *changed]:
            self.written.append((window(target), held(target) * target.itemsize))
            size, to = target.numel(), address(target)  # of a copy: no reduction, no expansion
            self.made_from[to] |= {of for of, n in amounts.items() if size / 16 <= n <= 2 * size and of != to}

    def copies_of(self, storage: int) -> set[int]:
        """Return the storage, and the storages of its size that were made from it."""
        return self._closure(storage, lambda found: [t for t, sources in self.made_from.items() if found & sources])

    def sources_of(self, storage: int) -> set[int]:
        """Return the storage, and the storages that it was made from."""
        return self._closure(storage, lambda found: [s for t in found for s in self.made_from.get(t, ())])

    @staticmethod
    def _closure(start: int, step: Callable[[set[int]], Iterable[int]]) -> set[int]:
        found = {start}
        while new := set(step(found)) - found:
            found |= new
        return found


_FILLS = ("zeros", "ones", "full", "scalar_tensor", "zero_", "fill_")
_OVERWRITING = ("copy_",)  # what was there before is not read


def _changed(func: OpOverload, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors that an operation writes to in place."""
    if not func._schema.is_mutable:
        return []
    known = {address(t) for t in inputs}
    return [t for t in outputs if address(t) in known] or inputs[:1]


Window = tuple[int, int, int]  # storage, first byte and end, as addresses


def window(tensor: torch.Tensor) -> Window:
    """Return the memory from the tensor's first element to its last."""
    start = tensor.data_ptr()
    return address(tensor), start, start + Layout.of(tensor).nbytes


def tensors_in(tree: Argument | Keywords | tuple[Sequence[Argument], Keywords | None]) -> list[torch.Tensor]:
    """Return all strided tensors in nested arguments or results; others have no storage."""
    return [tensor for tensor in tensors_of(tree) if tensor.layout == torch.strided]


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def held(tensor: torch.Tensor) -> int:
    """Return the number of elements in memory: an expanded dimension counts once."""
    return min(tensor.numel(), tensor.untyped_storage().nbytes() // max(tensor.itemsize, 1))


def summary(
    launches: Iterable[LaunchCost],
    host: HostTraffic,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    labels: Sequence[int] = (),
) -> dict[str, int | list[int]]:
    """Return the bytes read of each input and written of each output, copies by PyTorch included.

    "tile_rows" are the most rows of one batch of an input, or of its copy, that one load touched. Where elements have
    labels, those of each input say what was copied from it; otherwise sizes do, for people. "beside" are all
    bytes that are in neither figure.
    """
    of_caller = {address(t) for t in inputs}
    copies = [host.copies_of(address(t)) for t in inputs]
    origins = [host.sources_of(address(t)) - of_caller for t in outputs]
    traffics = [traffic for launch in launches for traffic in launch.tensors]
    by_label = host.by_label + sum((t.by_label for t in traffics), np.zeros(256, np.int64))
    read = [_moved(t, found, traffics, "loaded", host.read) for t, found in zip(inputs, copies, strict=True)]
    copies = [{t.storage for t in traffics if t.by_label[label]} for label in labels] or copies
    read = [int(by_label[label]) for label in labels] or read
    written = [_moved(t, found, traffics, "stored", host.written) for t, found in zip(outputs, origins, strict=True)]
    moved = sum(t.moved(action) for t in traffics for action in t.counts)
    moved += sum(nbytes for _, nbytes in host.read + host.written)
    return {
        "read": read,
        "written": written,
        "beside": max(moved - sum(read) - sum(written), 0),
        "tile_rows": [max((t.tile_rows for t in traffics if t.storage in found), default=0) for found in copies],
    }


def _moved(
    tensor: torch.Tensor, storages: set[int], traffics: list[Traffic], action: str, by_host: list[tuple[Window, int]]
) -> int:
    """Return the bytes moved of a tensor's part of its storage, and of its other storages."""
    storage, start, end = window(tensor)
    total = 0
    for traffic in (t for t in traffics if t.storage in storages):
        first, last = 0, None
        if traffic.storage == storage and traffic.is_mapped_whole:
            first, last = (start - storage) // traffic.itemsize, (end - storage) // traffic.itemsize
        total += traffic.moved(action, first, last) + traffic.moved("updated", first, last)
    for (place, first_byte, end_byte), nbytes in by_host:
        if place in storages and (place != storage or (first_byte < end and start < end_byte)):
            total += nbytes
    return total
