"""What a worker does for the grader's clock: calls a function on slots of the grader's memory, and keeps what came.

The slots lie in memory of the GPU that the grader owns and rewrites. Nothing that is said here is believed: the grader
reads its own clock, and looks at results that it chooses after the inputs are gone.
"""

import functools
import gc
import json
import socket
from collections.abc import Callable
from typing import Any

import torch

from assignment.grading.protocol import DTYPES
from assignment.grading.requests import WrongReturn, results
from assignment.grading.start import started

synchronize, Event, profile = torch.cuda.synchronize, torch.cuda.Event, torch.profiler.profile
copy, deterministic = torch.Tensor.copy_, torch.use_deterministic_algorithms  # as they are before a submission
MAX_KERNELS = 100  # names of them, in a reply
MAX_NAME = 300  # characters

line: list[socket.socket] = []  # to the grader, who says on it when to start
_slots: list[list[Any]] = []  # the inputs of each
_outputs: list[list[Any]] = []  # where results are to be copied
_kept: list[Any] = []  # what the calls of the last run returned


def answer(function: Callable, header: dict[str, Any]) -> tuple[dict[str, Any], list]:
    """The reply, without tensors."""
    deterministic(False)  # which would have every torch.empty filled with NaN
    try:
        more = HANDLERS[header["kind"]](function, header)
    finally:
        deterministic(True, warn_only=True)
    return {"status": "ok", "groups": [], "bare": False, **more}, []


def hold(function: Callable, header: dict[str, Any]) -> dict[str, Any]:
    """See the grader's memory: the slots, each of some inputs, and the outputs."""
    _kept.clear()
    torch.cuda.empty_cache()
    gc.collect()
    gc.disable()  # until the process ends: no collection falls into what is timed
    storage = shared(json.dumps(header["memory"]))

    def view(offset: int, dtype: str, shape: list[int]) -> Any:
        tensor = torch.empty(0, dtype=DTYPES[dtype], device=storage.device)
        strides = torch.empty(shape, device="meta").stride()
        return tensor.set_(storage, offset // tensor.element_size(), shape, strides)

    _slots[:] = [[view(*spec) for spec in slot] for slot in header["slots"]]
    _outputs[:] = [[view(*spec) for spec in outputs] for outputs in header["outputs"]]
    return {}


@functools.cache
def shared(handle: str) -> Any:
    """The memory of another process, as its _share_cuda_() describes it."""
    torch.cuda.init()
    device, memory, size, offset, counter, counter_offset, event, is_synchronized = json.loads(handle)
    return torch.UntypedStorage._new_shared_cuda(
        device, bytes.fromhex(memory), size, offset, bytes.fromhex(counter), counter_offset, bytes.fromhex(event),
        is_synchronized,
    )  # fmt: skip


def run(function: Callable, header: dict[str, Any]) -> dict[str, Any]:
    """Call the function once for each slot named; the seconds between CUDA's events are a second witness."""
    _kept.clear()
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    options = header["options"]
    with started(line[0], header["id"]) as order:
        start.record()
        for i in order:
            _kept.append(function(*_slots[i], **options))
        end.record()
        synchronize()
    return {"events_s": start.elapsed_time(end) / 1e3}


def give(function: Callable, header: dict[str, Any]) -> dict[str, Any]:
    """Copy the results of some calls of the last run into the grader's memory."""
    with started(line[0], header["id"]) as positions:
        for position, outputs in zip(positions, _outputs, strict=False):
            tensors, _ = results(_kept[position])
            if len(tensors) != len(outputs):
                raise WrongReturn(f"returned {len(tensors)} tensors, expected {len(outputs)}")
            for i, (tensor, output) in enumerate(zip(tensors, outputs, strict=True), 1):
                if (tensor.shape, tensor.dtype) != (output.shape, output.dtype):
                    came = f"{tensor.dtype} {tuple(tensor.shape)}"
                    raise WrongReturn(f"result {i} is {came}, expected {output.dtype} {tuple(output.shape)}")
                copy(output, tensor)
        synchronize()
    return {}


def trace(function: Callable, header: dict[str, Any]) -> dict[str, Any]:
    """The kernels that one call launches, with their time on the GPU in microseconds, as CUDA's profiler sees them."""
    _kept.clear()
    with profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        function(*_slots[0], **header["options"])
        synchronize()
    times: dict[str, float] = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            name = str(event.name)[:MAX_NAME]
            times[name] = times.get(name, 0.0) + event.device_time_total
    return {"launched": sorted(times.items(), key=lambda item: -item[1])[:MAX_KERNELS]}


def release(function: Callable, header: dict[str, Any]) -> dict[str, Any]:
    """Let go of the grader's memory."""
    for held in (_slots, _outputs, _kept):
        held.clear()
    shared.cache_clear()
    return {}


HANDLERS: dict[str, Callable[[Callable, dict[str, Any]], dict[str, Any]]]
HANDLERS = {"hold": hold, "run": run, "give": give, "trace": trace, "release": release}
