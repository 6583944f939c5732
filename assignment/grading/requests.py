"""What a worker does with a request: calls a function of the submission in one of several ways, and looks at it do so.

A handler takes the function, the request's header and its tensors, and returns groups of tensors and whether the
function returned one bare tensor. On the CPU the simulator watches: what it says of memory and of the results' origin
goes into the reply.
"""

import contextlib
import functools
import gc
import itertools
import random
import signal
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from assignment.grading import protocol
from assignment.grading.probes import Inputs, Returned

MAX_NOTES = 4  # warnings in a reply
MAX_NOTE = 1_000  # characters
MAX_KERNELS = 100  # names of them, in a reply
clone, multiply, copy = torch.Tensor.clone, torch.Tensor.mul_, torch.Tensor.copy_  # as they are before a submission


RESULTS = {  # by how a function's name begins
    "weighted_sum_forward": ("y",),
    "weighted_sum_backward": ("grad_x", "grad_weight"),
    "rmsnorm_forward": ("y", "rstd"),
    "rmsnorm_backward": ("grad_x", "grad_weight"),
    "flash_forward": ("o", "lse"),
    "flash_backward": ("grad_q", "grad_k", "grad_v"),
}


class WrongReturn(Exception):
    """A function returned something else than a plain tensor or a tuple of them."""


def answer(
    function: Callable, header: dict[str, Any], tensors: list, device: str, folder: Path
) -> tuple[dict[str, Any], list]:
    """The reply; its "groups" index the tensors that go with it.

    A kernel that misused memory is told of in a reply of status "fault", whatever became of the exception.
    """
    handler, result_groups = HANDLERS[header["kind"]]
    tensors = moved(tensors, device)
    rehearsed = rehearse(function, header, tensors, folder) if device == "cpu" else []
    before = Inputs(list(tensors))
    with watched(tensors, header, device, folder) as seen:
        try:
            groups, bare = handler(function, header, tensors, seen)
            for group in groups[result_groups] if seen.provenance else ():
                seen.provenance.returned(group)
            if rehearsed:
                seen.provenance.compare(rehearsed)
        except Exception:
            if not seen.faults:
                raise
        if seen.faults:
            return {"status": "fault", "message": told([str(seen.faults[0])], folder)[0]}, []
    if header["kind"] != "again":  # which writes to the inputs itself, and lets the grader compare
        refuse_shared_memory(before, groups[0])
    if header["kind"] == "call":
        groups = [[result.clone() for result in group] for group in groups]  # each in memory of its own
    flat = moved([tensor.detach() for group in groups for tensor in group], "cpu")
    remarks = [*never_stored(header["function"], groups[result_groups], device), *seen.warnings]
    reply = {"status": "ok", "groups": [len(group) for group in groups], "bare": bare, "notes": told(remarks, folder)}
    reply["nans"] = told(seen.nans.values(), folder)
    if header["kind"] == "dry":
        reply["kernels"] = sorted(seen.kernels)[:MAX_KERNELS]
    if tracker := seen.provenance:
        verdicts = tracker.verdicts
        reply |= {"evidence": told(verdicts.evidence, folder), "doubts": told(verdicts.doubts, folder)}
    return reply, flat


def rehearse(function: Callable, header: dict[str, Any], tensors: list, folder: Path) -> list[Any]:
    """The steps of the same call on other values, made before it; [] where it was not made.

    Nobody can tell which of two calls is graded. How an input chooses is decided by the grader's secret seed.
    """
    chance = random.Random(f"{header.get('order')} {header['function']} {[tuple(t.shape) for t in tensors]}")
    if header["kind"] not in REHEARSED or chance.random() > SHARE:
        return []
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors if tensor.is_floating_point()}
    if any(tensor.untyped_storage().nbytes() > protocol.WHOLE_STORAGE_UP_TO for tensor in storages.values()):
        return []
    held = [torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()) for t in storages.values()]
    before, factor = [clone(tensor) for tensor in held], -chance.uniform(0.6, 0.9)
    for tensor in held:
        multiply(tensor, factor)
    try:
        with stopped_after(REHEARSAL_S), watched(tensors, header, "cpu", folder) as seen:
            HANDLERS[header["kind"]][0](function, header, list(tensors), seen)
        return seen.provenance.record.steps
    except (Exception, TooLong):  # its own values may be beyond what the function takes
        return []
    finally:
        for tensor, values in zip(held, before, strict=True):
            copy(tensor, values)
        for tensor in tensors:
            tensor.requires_grad_(False)


class TooLong(BaseException):
    """A rehearsal must leave a slow call its time; no `except Exception` of a submission's is to catch this."""


@contextlib.contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Raise TooLong inside when the time is over."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


_returned = Returned()


def refuse_shared_memory(inputs: Inputs, results: list) -> None:
    """Raise WrongReturn if a call wrote to its inputs, or returned memory that is not a new result's own."""
    if (position := inputs.written_to()) is not None:
        raise WrongReturn(f"argument {position} was written to: inputs must stay as they are")
    if inputs.shares_memory(results):
        raise WrongReturn("a result shares its memory with an input: return memory of your own")
    if _returned.holds(results):
        raise WrongReturn("a result lies in the memory of an earlier call's result: make new memory in each call")
    _returned.add(results)


@contextlib.contextmanager
def watched(tensors: list, header: dict[str, Any], device: str, folder: Path) -> Iterator[Any]:
    """What the simulator says of the launches inside: faults and warnings; nothing on a GPU."""
    if device != "cpu":
        yield types.SimpleNamespace(faults=[], warnings=[], nans={}, provenance=None)
        return
    from assignment.simulator import calls

    kind, tracker = header["kind"], provenance_of(folder)
    with (
        calls.call(tensors, header.get("order", 0), kind == "costs", tracker) as seen,
        tracker.call(header["function"], tensors, is_backward="times" in header, is_dry=kind == "dry"),
    ):
        seen.is_dry = kind == "dry"
        yield seen


@functools.cache
def provenance_of(folder: Path) -> Any:
    """What this process knows about the values that the submission in the folder has made."""
    from assignment.simulator.provenance import Provenance

    return Provenance(f"{folder}/")


def told(texts: Iterable[str], folder: Path) -> list[str]:
    """The first messages, cut to a length that a reply may have, with the submission's own paths."""
    return [text.replace(f"{folder}/", "")[:MAX_NOTE] for text in itertools.islice(texts, MAX_NOTES)]


def never_stored(function: str, groups: list[list], device: str) -> list[str]:
    """A line for each result of the function with elements that nobody wrote."""
    if device != "cpu":
        return []
    from assignment.simulator.undefined import unwritten_in

    known = next((names for start, names in RESULTS.items() if function.startswith(start)), ())
    lines = []
    for group in groups:
        names = known if len(known) == len(group) else [f"result {i} of {len(group)}" for i in range(1, len(group) + 1)]
        for name, result in zip(names, group, strict=True):
            if where := unwritten_in(result):
                line = f"never stored: {where[0]} of the {result.numel()} elements of {name}, the first at {where[1]}"
                is_all = where[0] == result.numel()
                lines.append(line + (": was something stored to a copy of it, as reshape may make?" if is_all else ""))
    return lines


def call(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """The results."""
    outputs, bare = results(function(*tensors, **header["options"]))
    return [outputs], bare


def again(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """Call, overwrite the inputs in place with a second problem, call again.

    Returns the first results as they are after the second call, the inputs after the first call, the second results,
    the inputs after the second call; storages are left shared where they are.
    """
    middle = len(tensors) // 2
    inputs, others = tensors[:middle], tensors[middle:]
    first, bare = results(function(*inputs, **header["options"]))
    after_first = [tensor.clone() for tensor in inputs]
    for tensor, other in zip(inputs, others, strict=True):
        tensor.copy_(other)
    before = seen.provenance.record.begin_again() if seen.provenance else []
    seen.n_launches = 0  # programs run in the order of the first call
    second, bare_again = results(function(*inputs, **header["options"]))
    if seen.provenance:
        seen.provenance.compare(before)
    if (bare_again, len(second)) != (bare, len(first)):
        raise WrongReturn("returned another number of tensors when it was called again")
    return [first, after_first, second, inputs], bare


def gradients(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """The gradients for the inputs in "wrt", as many times as asked, of the result or of its sum."""
    wrt, times = header["wrt"], header["times"]
    grad = tensors.pop() if header["has_grad"] else None
    inputs = [tensor.requires_grad_() if i in wrt else tensor for i, tensor in enumerate(tensors)]
    output = differentiable(function, header, inputs)
    if grad is not None and grad.shape != output.shape:
        raise WrongReturn(f"returned shape {tuple(output.shape)}, expected {tuple(grad.shape)}")
    if header["interleaved"]:
        flipped = {name: not value if isinstance(value, bool) else value for name, value in header["options"].items()}
        others = [(tensor.detach() / 2).requires_grad_() for tensor in inputs]
        differentiable(function, {**header, "options": flipped}, others)
    wanted = [inputs[i] for i in wrt]
    end = output if grad is not None else output.sum()
    return [list(torch.autograd.grad(end, wanted, grad, retain_graph=i + 1 < times)) for i in range(times)], False


def differentiable(function: Callable, header: dict[str, Any], inputs: list) -> Any:
    """The one tensor that a differentiable function returns."""
    outputs, bare = results(function(*inputs, **header["options"]))
    if not bare:
        raise WrongReturn("returned a tuple, expected a torch.Tensor")
    if not outputs[0].requires_grad:
        raise WrongReturn("returned a tensor without a gradient: it must come from a torch.autograd.Function")
    return outputs[0]


def kept(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """How many bytes of tensors live on after a differentiable call, beside its inputs and its result."""
    inputs = [tensor.requires_grad_() for tensor in tensors]
    differentiable(function, header, inputs)  # what is made once for all, such as a workspace, is there from now on
    before = reachable_storages()
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):  # seen by gc
        output = differentiable(function, header, inputs)
    after = reachable_storages()
    ours = {output.untyped_storage()._cdata, *before, *(seen.provenance.own_storages() if seen.provenance else ())}
    return [[torch.tensor(sum(size for key, size in after.items() if key not in ours))]], True


def costs(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """What the call reads of each input and writes of each result, in bytes; the last group holds the figures.

    It is the second call that counts: tuning, and workspaces that are made once for all, are behind it.
    """
    from assignment.simulator.costs import HostTraffic, summary

    results(function(*tensors, **header["options"]))
    seen.launches.clear()
    with HostTraffic() as host:
        outputs, bare = results(function(*tensors, **header["options"]))
    figures = summary(seen, host, tensors, outputs)
    numbers = [figures["read"], figures["tile_rows"], figures["written"]]
    return [outputs, [torch.tensor(row, dtype=torch.int64) for row in numbers]], bare


def largest(function: Callable, header: dict[str, Any], tensors: list, seen: Any) -> tuple[list[list], bool]:
    """The results, and the number of elements of the largest tensor that PyTorch makes during the call."""
    from assignment.simulator.costs import HostTraffic

    with HostTraffic() as host:
        outputs, bare = results(function(*tensors, **header["options"]))
    return [outputs, [torch.tensor(host.largest)]], bare


REHEARSED = ("call", "gradients")
SHARE = 0.25  # of these
REHEARSAL_S = 5.0  # at most; the deadline is that of both calls
HANDLERS = {  # by kind of request, with the groups that hold results
    "call": (call, slice(0, 1)),
    "dry": (call, slice(0, 0)),
    "gradients": (gradients, slice(None)),
    "again": (again, slice(0, None, 2)),
    "kept": (kept, slice(0, 0)),
    "costs": (costs, slice(0, 1)),
    "largest": (largest, slice(0, 1)),
}


def reachable_storages() -> dict[int, int]:
    """The storages of all tensors that Python objects hold, with their sizes in bytes."""
    gc.collect()
    sizes: dict[int, int] = {}
    for held in [obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor)]:
        with contextlib.suppress(Exception):  # a sparse tensor has no storage; a subclass may forbid to ask
            sizes[held.untyped_storage()._cdata] = held.untyped_storage().nbytes()
    return sizes


def results(returned: Any) -> tuple[list, bool]:
    """What a function returned, as a list of plain tensors, and whether it was one tensor and no tuple."""
    bare = not isinstance(returned, tuple | list)
    outputs = [returned] if bare else list(returned)
    for output in outputs:
        if type(output) is not torch.Tensor:
            name = "None" if output is None else type(output).__name__
            raise WrongReturn(f"returned {name}{'' if bare else ' in a tuple'}, expected a torch.Tensor")
        if output.layout != torch.strided:
            raise WrongReturn(f"returned a {output.layout} tensor, expected a strided one")
        if output.dtype not in protocol.DTYPES.values():
            raise WrongReturn(f"returned a tensor of {output.dtype}, expected the dtype of the inputs, or float32")
    return outputs, bare


def moved(tensors: list, device: str) -> list:
    """The tensors on another device, with their layouts and shared storages as they are.

    Of a storage that is mostly untouched only what the tensors see is copied.
    """
    storages: dict[int, Any] = {}
    out = []
    for tensor in tensors:
        if tensor.device.type == device:
            out.append(tensor)
            continue
        storage = tensor.untyped_storage()
        is_large = storage.nbytes() > protocol.WHOLE_STORAGE_UP_TO
        if storage._cdata not in storages:
            storages[storage._cdata] = (
                torch.UntypedStorage(storage.nbytes(), device=device) if is_large else storage.to(device=device)
            )
        there = tensor.new_empty(0, device=device)
        there.set_(storages[storage._cdata], tensor.storage_offset(), tensor.shape, tensor.stride())
        if is_large:
            there.copy_(tensor)
        out.append(there)
    return out
