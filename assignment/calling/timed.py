"""The timed worker: calls a function on slots of the judge's memory, and keeps the results.

The slots lie in memory of the GPU that the judge owns and rewrites. No host code of a submission is
in this process, so the clock is CUDA's own. The judge checks results that it chooses, after the
inputs are gone.
"""

import functools
import gc
import json
import math
from collections.abc import Callable
from typing import Any, assert_never

import torch

from assignment.calling.requests import WrongReturn, results
from assignment.protocol.replies import Ok
from assignment.protocol.requests import Give, Hold, Release, TakeTurns, Timeable
from assignment.protocol.wire import DTYPES
from assignment.pytorch_private import construct_storage_from_data_pointer, new_shared_cuda, sleep_on_gpu

# cycles, some milliseconds: the GPU waits so long before a run, and what is to be launched lines up
AHEAD = 5_000_000
slots: list[list[torch.Tensor]] = []  # the inputs of each
_outputs: list[list[torch.Tensor]] = []  # where results are to be copied
_kept: list[Any] = []  # what the calls of the last run returned


def answer(function: Callable | None, request: Timeable) -> tuple[Ok, list]:
    """Return the reply, without tensors; the function is None until one is prepared, after slots are held."""
    seconds = 0.0
    match request:
        case Hold():
            hold(request)
        case TakeTurns():
            assert function is not None
            seconds = run(function, request)
        case Give():
            give(request)
        case Release():
            release()
        case _:
            assert_never(request)
    return Ok((), bare=False, events_s=seconds), []


def hold(request: Hold) -> None:
    """Map the judge's memory: the slots, each of some inputs, and the outputs."""
    _kept.clear()
    gc.collect()
    torch.cuda.empty_cache()
    gc.disable()  # until the process ends: no collection falls into what is timed
    memory = shared(json.dumps(request.memory))
    slots[:] = [[placed(memory, *spec) for spec in slot] for slot in request.slots]
    _outputs[:] = [[placed(memory, *spec) for spec in outputs] for outputs in request.outputs]


def placed(memory: torch.UntypedStorage, offset: int, dtype: str, shape: list[int]) -> torch.Tensor:
    """Return a contiguous tensor at some byte of a storage, as the whole of a new storage.

    A caller's inputs look like that. It is valid as long as the memory is.
    """
    size = DTYPES[dtype].itemsize * math.prod(shape)
    own = construct_storage_from_data_pointer(memory.data_ptr() + offset, memory.device, size)
    return torch.empty(0, dtype=DTYPES[dtype], device=memory.device).set_(own).view(shape)


@functools.cache
def shared(handle: str) -> torch.UntypedStorage:
    """Return the memory of another process, as its _share_cuda_() describes it."""
    torch.cuda.init()
    device, memory, size, offset, counter, counter_offset, event, is_synchronized = json.loads(handle)
    return new_shared_cuda(
        device, bytes.fromhex(memory), size, offset, bytes.fromhex(counter), counter_offset, bytes.fromhex(event),
        is_synchronized,
    )  # fmt: skip


def run(function: Callable, request: TakeTurns) -> float:
    """Call the function once for each slot named; returns the mean seconds of a call.

    All calls are timed together: kernels could do the work of others ahead, and keep it in memory.
    """
    _kept.clear()
    turns, options = request.turns, request.options
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    sleep_on_gpu(AHEAD)
    marks[0].record()
    for i in turns:
        _kept.append(function(*slots[i], **options))
    marks[1].record()
    torch.cuda.synchronize()
    return marks[0].elapsed_time(marks[1]) / 1e3 / len(turns)


def give(request: Give) -> None:
    """Copy the results of some calls of the last run into the judge's memory."""
    for position, outputs in zip(request.positions, _outputs, strict=False):
        tensors, _ = results(_kept[position])
        if len(tensors) != len(outputs):
            raise WrongReturn(f"returned {len(tensors)} tensors, expected {len(outputs)}")
        for i, (tensor, output) in enumerate(zip(tensors, outputs, strict=True), 1):
            if (tensor.shape, tensor.dtype) != (output.shape, output.dtype):
                came = f"{tensor.dtype} {tuple(tensor.shape)}"
                raise WrongReturn(f"result {i} is {came}, expected {output.dtype} {tuple(output.shape)}")
            output.copy_(tensor)
    torch.cuda.synchronize()


def release() -> None:
    """Release the judge's memory."""
    for held in (slots, _outputs, _kept):
        held.clear()
    shared.cache_clear()
