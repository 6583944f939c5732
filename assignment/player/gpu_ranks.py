"""Plays the programs of one rank on a GPU, in a process beside those of the others, over PyTorch's symmetric memory."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from assignment.calling.requests import moved
from assignment.protocol.program import Program
from assignment.protocol.requests import OnRank
from assignment.pytorch_private import SymmetricHeap

from .play import Turn


def play(
    turn: Callable[[Program, list[torch.Tensor]], Turn],
    device: str,
    request: OnRank,
    programs: list[Program],
    tensors: list[torch.Tensor],
) -> list[list[torch.Tensor]]:
    """Return the results of each call of this rank, of which `turn` is a play that has not begun.

    Raises what playing one does. A process that fails leaves the others waiting: it is for the judge to stop them.
    """
    heap, about, size = _heap(request), request.about, len(tensors) // request.calls
    calls = [tensors[first : first + size] for first in range(0, len(tensors), size)]
    shared = {place: _shared(heap, calls[0][place]) for place in sorted(about["heap"].values())}
    own = {place: tensor for place, (tensor, _) in shared.items()}
    for table, of in about["tables"]:
        [own[table]] = moved([calls[0][table]], device)
        own[table].copy_(torch.tensor(shared[of][1]))
    results = []
    heap.meet("filled")
    with torch.no_grad():
        for program, call in zip(programs, calls, strict=True):
            inputs = [own.get(place, tensor) for place, tensor in enumerate(moved(call, device))]
            results.append(turn(program, inputs).run().groups[0])
    heap.meet("played")
    return results


def _heap(request: OnRank) -> SymmetricHeap:
    """Return what this process shares with the other ranks, on a GPU of its own where there are enough."""
    n, folder = torch.cuda.device_count(), Path(os.environ["TRITON_CACHE_DIR"]).parent
    os.environ["TMPDIR"] = str(folder)  # where PyTorch's sockets are
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # which needs more rights
    os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = str(int(n < request.ranks))
    torch.cuda.set_device(request.rank % n)
    return SymmetricHeap(request.meeting, str(folder), request.rank, request.ranks)


def _shared(heap: SymmetricHeap, tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """Return a tensor of this layout on the heap, and its addresses on all ranks; floats are NaN before any store."""
    storage = tensor.untyped_storage()
    whole, addresses = heap.shared(storage.nbytes())
    whole.fill_(0xFF)
    if not tensor.is_floating_point():
        whole.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
    offset = int(tensor.storage_offset())
    here = whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), offset)
    return here, [address + offset * tensor.itemsize for address in addresses]
