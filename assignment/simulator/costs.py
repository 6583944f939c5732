"""What a call moves, tensor by tensor: the traffic of its launches and of PyTorch's operations between them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .calls import Call
from .trace import as_data


class HostTraffic(TorchDispatchMode):
    """Bytes that PyTorch's operations read and write, by storage, and which storages were made from which.

    Views and fresh memory cost nothing, and constant fills are counted apart. Every tensor is kept until the end, so
    that no address comes up twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: dict[int, int] = defaultdict(int)
        self.written: dict[int, int] = defaultdict(int)
        self.filled = 0  # bytes written by torch.zeros and other constant fills, which are not in `written`
        self.made_from: dict[int, set[int]] = defaultdict(set)
        self.largest = 0  # elements of the largest tensor made
        self._kept: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._note(func, tensors_in((args, kwargs)), tensors_in(result))
        return result

    def _note(self, func: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
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
        for source in sources:
            self.read[address(source)] += held(source) * source.itemsize
        if name.removeprefix("new_").removesuffix("_like") in _FILLS:
            self.filled += sum(held(t) * t.itemsize for t in [*made, *changed])
            return
        for target in [*made, *changed]:
            self.written[address(target)] += held(target) * target.itemsize
            self.made_from[address(target)] |= {
                address(s) for s in sources if 2 * s.numel() >= target.numel() and s.numel() <= 2 * target.numel()
            } - {address(target)}

    def copies_of(self, storage: int) -> set[int]:
        """The storage, and those whose content was made from it in its size."""
        return self._closure(storage, lambda found: [t for t, sources in self.made_from.items() if found & sources])

    def sources_of(self, storage: int) -> set[int]:
        """The storage, and those that its content was made from."""
        return self._closure(storage, lambda found: [s for t in found for s in self.made_from.get(t, ())])

    @staticmethod
    def _closure(start: int, step: Any) -> set[int]:
        found = {start}
        while new := set(step(found)) - found:
            found |= new
        return found


_FILLS = ("zeros", "ones", "full", "scalar_tensor", "zero_", "fill_")
_OVERWRITING = ("copy_",)  # what was there before is not read


def _changed(func: Any, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that an operation writes to in place."""
    if not func._schema.is_mutable:
        return []
    known = {address(t) for t in inputs}
    return [t for t in outputs if address(t) in known] or inputs[:1]


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def held(tensor: torch.Tensor) -> int:
    """Elements in memory: those of an expanded dimension are one."""
    return min(tensor.numel(), tensor.untyped_storage().nbytes() // tensor.itemsize)


def summary(call: Call, host: HostTraffic, inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[str, Any]:
    """Bytes read of each input and written of each output, by kernels and by PyTorch, copies of them included.

    "tile_rows" are the most rows of an input, or of its copy, that one load touched.
    """
    loaded: dict[int, int] = defaultdict(int)
    stored: dict[int, int] = defaultdict(int)
    rows: dict[int, int] = defaultdict(int)
    for traffic in (t for launch in call.launches for t in launch.tensors):
        loaded[traffic.storage] += traffic.loaded + traffic.updated
        stored[traffic.storage] += traffic.stored + traffic.updated
        rows[traffic.storage] = max(rows[traffic.storage], traffic.tile_rows)
    of_caller = {address(t) for t in inputs}
    copies = [host.copies_of(address(t)) for t in inputs]
    origins = [host.sources_of(address(t)) - of_caller for t in outputs]
    return {
        "read": [_total(storages, loaded, host.read) for storages in copies],
        "written": [_total(storages, stored, host.written) for storages in origins],
        "tile_rows": [max(rows[s] for s in storages) for storages in copies],
        "launches": [as_data(launch) for launch in call.launches],
    }


def _total(storages: Iterable[int], *counts: dict[int, int]) -> int:
    return sum(count.get(storage, 0) for storage in storages for count in counts)
