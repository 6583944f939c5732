"""The grader's memory on a GPU: slots of inputs and results that workers see through CUDA IPC."""

import secrets
from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.operators.workloads import Spec
from assignment.protocol.messages import Place

# bytes: what cudaMalloc gives, so that no kernel finds a slot worse than memory of its own
ALIGNMENT = 256
POISON = 0xFF  # NaN in every float type
POOL_ELEMENTS = 1 << 26
FLUSHED = 1 << 28  # bytes written before a run: several times the cache of any GPU


class BufferMemory:
    """One allocation, of which each workload takes what it needs."""

    _used = 0  # bytes that were laid out last

    def __init__(self, nbytes: int) -> None:
        self._bytes = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        self._flushed = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
        secret = torch.Generator("cuda").manual_seed(secrets.randbits(63))
        self._normal = torch.randn(POOL_ELEMENTS, device="cuda", generator=secret)
        # its parts are told in reductions.py of PyTorch
        self._shared = self._bytes.untyped_storage()._share_cuda_()

    @property
    def nbytes(self) -> int:
        return self._bytes.numel()

    def handle(self) -> list[int | str]:
        """Return what a worker needs to map the memory, as JSON."""
        return [part.hex() if isinstance(part, bytes) else part for part in self._shared]

    def lay_out(self, groups: Sequence[Sequence[Spec]]) -> tuple[list[list[Tensor]], list[list[Place]]]:
        """Return tensors for the specs of each group, and their places for a worker.

        A place is an offset, a dtype and a shape.
        """
        position = self._used = 0
        tensors: list[list[Tensor]] = []
        places: list[list[Place]] = []
        for group in groups:
            tensors.append([])
            places.append([])
            for spec in group:
                part = self._bytes[position : position + spec.nbytes]
                tensors[-1].append(part.view(spec.dtype).view(spec.shape))
                name = str(spec.dtype).removeprefix("torch.")
                places[-1].append((position, name, list(spec.shape)))
                position += aligned(spec.nbytes)
        self._used = position
        return tensors, places

    def settle(self) -> None:
        """Wait until all is written, with the cache full of other data."""
        self._flushed.fill_(0)
        torch.cuda.synchronize()

    def poison(self) -> None:
        """Overwrite every value that was laid out."""
        self._bytes[: self._used].fill_(POISON)
        torch.cuda.synchronize()

    def randomize(self, tensor: Tensor, generator: torch.Generator) -> None:
        """Fill with normally distributed values, from secret places of the pool."""
        flat, half = tensor.view(-1), self._normal.numel() // 2
        for start in range(0, flat.numel(), half):
            part = flat[start : start + half]
            first = int(torch.randint(self._normal.numel() - part.numel(), (), generator=generator))
            part.copy_(self._normal[first : first + part.numel()])


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
