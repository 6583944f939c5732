"""The timed worker: calls a function on slots of the judge's memory, and keeps the results.

The slots lie in memory of the GPU that the judge owns and rewrites. No host code of a submission is
in this process, so the clock is CUDA's own. The judge checks results that it chooses, after the
inputs are gone.
"""

import functools
import gc
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import torch

from assignment.calling.requests import WrongReturn, results
from assignment.protocol.replies import Ok
from assignment.protocol.requests import Give, Hold, Release, TakeTurns, Timeable
from assignment.protocol.wire import DTYPES
from assignment.pytorch_private import Argument, construct_storage_from_data_pointer, new_shared_cuda, sleep_on_gpu

# The GPU waits before a run, while what is to be launched lines up: somewhat longer than launching took last time.
LEAST_S, MOST_S, LONGER = 0.0025, 0.1, 1.25
CYCLES_A_S = 2e9  # of a multiprocessor, at the most
slots: list[list[torch.Tensor]] = []  # the inputs of each
_outputs: list[list[torch.Tensor]] = []  # where results are to be copied
_kept: list[Any] = []  # what the calls of the last run returned


@dataclass(frozen=True)
class Taken:
    """What calls took, one after the other."""

    seconds: float  # a call, on the GPU
    host_s: float  # a call, until it was launched
    is_held: bool  # the GPU began when all were


class _Wait:
    """How long the GPU waits before the next run."""

    seconds = LEAST_S


def answer(function: Callable | None, request: Timeable) -> tuple[Ok, list]:
    """Return the reply, without tensors; the function is None until one is prepared, after slots are held."""
    match request:
        case Hold():
            hold(request)
        case TakeTurns():
            assert function is not None
            return run(function, request), []
        case Give():
            give(request)
        case Release():
            release()
        case _:
            assert_never(request)
    return Ok((), bare=False), []


def hold(request: Hold) -> None:
    """Map the judge's memory: the slots, each of some inputs, and the outputs."""
    _kept.clear()
    gc.collect()
    torch.cuda.empty_cache()
    _Wait.seconds = LEAST_S
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


def run(function: Callable, request: TakeTurns) -> Ok:
    """Call the function once for each slot named; returns the mean seconds of a call.

    All calls are timed together: kernels could do the work of others ahead, and keep it in memory.
    """
    _kept.clear()
    took = taken([functools.partial(function, *slots[i], **request.options) for i in request.turns], _kept)
    return Ok((), bare=False, events_s=took.seconds, host_s=took.host_s, is_held=took.is_held)


def taken(calls: Sequence[Callable], results: list[Argument]) -> Taken:
    """Make calls while the GPU waits, and keep what they return; a wait that was too short is longer the next time."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    sleep_on_gpu(int(CYCLES_A_S * _Wait.seconds))
    marks[0].record()
    began = time.perf_counter()
    for call in calls:
        results.append(call())
    host_s = time.perf_counter() - began
    marks[1].record()
    is_held = not marks[0].query()
    torch.cuda.synchronize()
    _Wait.seconds = min(max(LEAST_S, LONGER * host_s), MOST_S)
    seconds = marks[0].elapsed_time(marks[1]) / 1e3
    return Taken(seconds / len(calls), host_s / len(calls), is_held)


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
