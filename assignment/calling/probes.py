"""What every call must leave unchanged: its inputs, and the memory of earlier results."""

from collections import deque
from collections.abc import Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# bytes of an input's storage; those beyond are views that stride over gigabytes
COMPARED_UP_TO = 64 << 20
REMEMBERED = 256  # results of earlier calls
OF_INPUT = "a result shares its memory with an input: return memory of your own"
OF_EARLIER = "a result lies in the memory of an earlier call's result: make new memory in each call"


class InputsBefore:
    """The tensors of a call as they were before it."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._before = [_bytes_of(tensor).clone() for tensor in tensors]

    def misuse(self, results: Sequence[torch.Tensor]) -> str:
        """Return what a call with these results did to its inputs; "" for nothing."""
        if (position := self.written_to()) is not None:
            return f"argument {position} was written to: inputs must stay as they are"
        return OF_INPUT if self.shares_memory(results) else ""

    def written_to(self) -> int | None:
        """Return the position of the first input whose memory, padding included, has changed."""
        pairs = zip(self._tensors, self._before, strict=True)
        return next((i for i, (tensor, before) in enumerate(pairs) if not _are_equal(_bytes_of(tensor), before)), None)

    def shares_memory(self, results: Sequence[torch.Tensor]) -> bool:
        """Return whether a result lies in the memory of an input."""
        return bool({_address(t) for t in self._tensors} & {_address(t) for t in results if t.numel()})


class Returned:
    """The memory of returned results, as long as the submission keeps it."""

    def __init__(self) -> None:
        self._storages: deque[StorageWeakRef] = deque(maxlen=REMEMBERED)

    def holds(self, results: Sequence[torch.Tensor]) -> bool:
        """Return whether a result lies in the memory of an earlier one."""
        alive = {reference.cdata for reference in self._storages if not reference.expired()}
        return any(StorageWeakRef(t.untyped_storage()).cdata in alive for t in results if t.numel())

    def add(self, results: Sequence[torch.Tensor]) -> None:
        self._storages.extend(StorageWeakRef(t.untyped_storage()) for t in results)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    flat = torch.tensor([], dtype=torch.uint8, device=tensor.device).set_(storage)
    return flat if storage.nbytes() <= COMPARED_UP_TO else flat[:0]


def _are_equal(some: torch.Tensor, others: torch.Tensor) -> bool:
    """Return whether bytes are equal: torch.equal() takes nine times as long as NumPy for those of a CPU."""
    if some.device.type != "cpu":
        return torch.equal(some, others)
    return some.shape == others.shape and bool((some.numpy() == others.numpy()).all())


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
