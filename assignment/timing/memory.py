"""The grader's memory on a GPU: slots of inputs, and a place for results, that workers see through CUDA IPC."""

import ctypes
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 256  # bytes: what cudaMalloc gives, so that no kernel finds a slot worse than memory of its own
POISON = 0xFF  # NaN in every float type
IDLE = 0.01  # of what poisoning takes on an idle GPU; one that is idle differs by 0.3 %
MAX_POISONED = 30  # times
POOL_ELEMENTS = 1 << 26
FLUSHED = 1 << 28  # bytes written before a run: several times the cache of any GPU


@dataclass(frozen=True)
class Spec:
    """A contiguous tensor to be."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class Memory:
    """One allocation, of which each workload takes what it needs."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
        secret = torch.Generator("cuda").manual_seed(secrets.randbits(63))
        self._normal = torch.randn(POOL_ELEMENTS, device="cuda", generator=secret)
        self._shared = self._bytes.untyped_storage()._share_cuda_()  # its parts are told in reductions.py of PyTorch

    @property
    def nbytes(self) -> int:
        return self._bytes.numel()

    def handle(self) -> list[Any]:
        """What a worker needs to see the memory, as JSON."""
        return [part.hex() if isinstance(part, bytes) else part for part in self._shared]

    def lay_out(self, groups: Sequence[Sequence[Spec]]) -> tuple[list[list[Tensor]], list[list[list[Any]]]]:
        """Tensors for the specs of each group, and the same places for a worker: offset, dtype and shape."""
        position = 0
        tensors: list[list[Tensor]] = []
        places: list[list[list[Any]]] = []
        for group in groups:
            tensors.append([])
            places.append([])
            for spec in group:
                part = self._bytes[position : position + spec.nbytes]
                tensors[-1].append(part.view(spec.dtype).view(spec.shape))
                name = str(spec.dtype).removeprefix("torch.")
                places[-1].append([position, name, list(spec.shape)])
                position += aligned(spec.nbytes)
        return tensors, places

    def settle(self) -> None:
        """Wait until all is written, with the cache full of other things."""
        self._flushed.fill_(0)
        ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()  # what anybody has pinned there
        torch.cuda.synchronize()

    def poison(self) -> float:
        """No value that was here before can be read any more; the seconds that it took show what else was running."""
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        self._bytes.fill_(POISON)
        ended.record()
        torch.cuda.synchronize()
        return began.elapsed_time(ended) / 1e3

    def poison_until_idle(self, usual_s: float) -> float:
        """Again and again until it takes no longer than on an idle GPU; the seconds that it took longer in all.

        Whose work is still running shares the GPU with it, in turns.
        """
        longer = 0.0
        for _ in range(MAX_POISONED):
            if (more := self.poison() - usual_s) <= IDLE * usual_s:
                break
            longer += more
        return longer

    def randomize(self, tensor: Tensor, generator: torch.Generator) -> None:
        """Fill with normally distributed values, from places of the pool that nobody can know."""
        flat, half = tensor.view(-1), self._normal.numel() // 2
        for start in range(0, flat.numel(), half):
            part = flat[start : start + half]
            first = int(torch.randint(self._normal.numel() - part.numel(), (), generator=generator))
            part.copy_(self._normal[first : first + part.numel()])


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
