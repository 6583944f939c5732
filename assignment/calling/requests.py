"""Handlers of requests: each calls a function of the submission in one of several ways.

A handler takes the function, the request and its tensors, and what else it needs; it returns groups of tensors
and whether the function returned one bare tensor.
"""

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, assert_never

import torch

from assignment.calling.probes import OF_EARLIER, InputsBefore, Returned
from assignment.protocol import wire
from assignment.protocol.messages import Options
from assignment.protocol.replies import MAX_NOTE, Fault, Ok, told
from assignment.protocol.requests import Again, Call, Called, Costs, Direct, Gradients, Inferred, Kept, Largest, Ranks
from assignment.protocol.said import Said
from assignment.whose import theirs

if TYPE_CHECKING:
    from assignment.simulator import calls
    from assignment.simulator.faults import MemoryFault


class WrongReturn(Exception):
    """A function returned something other than a plain tensor or a tuple of them."""


def answer(function: Callable, request: Direct, tensors: list, device: str, folder: Path) -> tuple[Fault | Ok, list]:
    """Return the reply of a process that runs host code and kernels: on a GPU, or for a debugger.

    Its "groups" index the tensors that go with it. If a kernel misused memory, the reply has status
    "fault", whatever became of the exception.
    """
    tensors = moved(tensors, device)
    before = InputsBefore(list(tensors))
    with watched(tensors, request, device) as seen:
        try:
            groups, bare = handled(function, request, tensors, seen)
        except Exception:
            if not seen.faults:
                raise
        if seen.faults:
            return _fault(seen.faults[0], folder), []
    if not isinstance(request, Again):  # which writes to the inputs itself, and lets the grader compare
        refuse_shared_memory(before, groups[0])
    if isinstance(request, Call):
        # each in memory of its own
        groups = [[result.clone() for result in group] for group in groups]
    flat = moved([tensor.detach() for group in groups for tensor in group], "cpu")
    notes, orders = (told(str(said).replace(f"{folder}/", "") for said in of) for of in (seen.warnings, seen.orders))
    nans = tuple(Said(text) for text in told(str(said).replace(f"{folder}/", "") for said in seen.nans.values()))
    return Ok(tuple(map(len, groups)), bare, notes=notes, nans=nans, orders=tuple(map(Said, orders))), flat


def _fault(fault: "MemoryFault", folder: Path) -> Fault:
    return Fault(str(fault).replace(f"{folder}/", "")[:MAX_NOTE], fault.kind)


def on_ranks(function: Callable, request: Ranks, tensors: list, folder: Path) -> tuple[Fault | Ok, list]:
    """Return the reply for calls on several ranks that share this process's modules, for a debugger."""
    from assignment.simulator.on_ranks import OnRanks  # not there in a process that times

    ranks = OnRanks(request, tensors)
    came: list[list[tuple[list, bool]]] = [[] for _ in ranks.inputs]

    def host(rank: int) -> list:
        for number, inputs in enumerate(ranks.inputs[rank], start=1):
            options = {**request.options, "rank": rank, "call": number}
            came[rank].append(results(theirs(function, *inputs, **options)))
        return [output for outputs, _ in came[rank] for output in outputs]

    try:
        ranks.world.play([functools.partial(host, rank) for rank in range(request.ranks)])
    except Exception:
        if not any(seen.faults for seen in ranks.seen):
            raise
    if faults := [fault for seen in ranks.seen for fault in seen.faults]:
        return _fault(faults[0], folder), []
    flat = [
        *[of_rank[call] for call in range(request.calls) for of_rank in came],
        ([torch.tensor(ranks.moved()), torch.tensor(ranks.world.lanes())], True),
    ]
    notes = told(text.replace(f"{folder}/", "") for seen in ranks.seen for text in seen.warnings)
    reply = Ok(tuple(len(outputs) for outputs, _ in flat), all(bare for _, bare in flat), notes=notes)
    return reply, [output.detach().clone() for outputs, _ in flat for output in outputs]


def handled(function: Callable, request: Direct, tensors: list, seen: "calls.Call") -> tuple[list[list], bool]:
    """Return what the request asks for."""
    match request:
        case Call():
            return call(function, request, tensors)
        case Again():
            return again(function, request, tensors, seen.begin_again)
        case Gradients():
            return gradients(function, request, tensors)
        case Kept():
            return kept(function, request, tensors)
        case Costs():
            return costs(function, request, tensors, seen)
        case Largest():
            return largest(function, request, tensors)
        case _:
            assert_never(request)


_returned = Returned()


def refuse_shared_memory(inputs: InputsBefore, results: list) -> None:
    """Raise WrongReturn if a call wrote to its inputs, or returned memory that is not new."""
    if why := inputs.misuse(results) or (OF_EARLIER if _returned.holds(results) else ""):
        raise WrongReturn(why)
    _returned.add(results)


@contextlib.contextmanager
def watched(tensors: list, request: Direct, device: str) -> "Iterator[calls.Call]":
    """Collect the simulator's faults and warnings about launches inside; nothing on a GPU."""
    if device != "cpu":
        yield SimpleNamespace(faults=[], warnings=[], nans={}, orders=[], begin_again=lambda: None)  # type: ignore[misc]
        return
    from assignment.simulator import calls  # not there in a process that times

    with calls.Call(tensors, request.order, isinstance(request, Costs)) as seen:
        yield seen


def call(function: Callable, request: Called, tensors: list) -> tuple[list[list], bool]:
    """Return the results."""
    if isinstance(request, Inferred):
        return inferred(function, request, tensors)
    outputs, bare = results(theirs(function, *tensors, **request.options))
    return [outputs], bare


def inferred(function: Callable, request: Inferred, tensors: list) -> tuple[list[list], bool]:
    """Return the results under torch.no_grad(): they have no graph."""
    with torch.no_grad():
        outputs, bare = results(theirs(function, *[tensor.requires_grad_() for tensor in tensors], **request.options))
    if any(output.requires_grad for output in outputs):
        raise WrongReturn("returned a tensor with a graph under torch.no_grad()")
    return [outputs], bare


def again(
    function: Callable, request: Again, tensors: list, begin_again: Callable[[], None]
) -> tuple[list[list], bool]:
    """Call, overwrite the inputs in place with a second problem, call again.

    Returns the first results as they are after the second call, the inputs after the first call,
    the second results, the inputs after the second call; storages are left shared where they are.
    """
    middle = len(tensors) // 2
    inputs, others = tensors[:middle], tensors[middle:]
    first, bare = results(theirs(function, *inputs, **request.options))
    after_first = [tensor.clone() for tensor in inputs]
    for tensor, other in zip(inputs, others, strict=True):
        tensor.copy_(other)
    begin_again()
    second, bare_again = results(theirs(function, *inputs, **request.options))
    if (bare_again, len(second)) != (bare, len(first)):
        raise WrongReturn("returned another number of tensors when it was called again")
    return [first, after_first, second, inputs], bare


def gradients(function: Callable, request: Gradients, tensors: list) -> tuple[list[list], bool]:
    """Return the gradients for the inputs in "wrt", of the result or of its sum.

    They are computed as many times as asked.
    """
    wrt, times = request.wrt, request.times
    grad = tensors.pop() if request.has_grad else None
    if request.split:
        return of_halves(function, request, tensors, grad)
    inputs = [tensor.requires_grad_() if i in wrt else tensor for i, tensor in enumerate(tensors)]
    output = differentiable(function, request.options, inputs)
    if grad is not None and grad.shape != output.shape:
        raise WrongReturn(f"returned shape {tuple(output.shape)}, expected {tuple(grad.shape)}")
    if request.interleaved:
        flipped = {name: not value if isinstance(value, bool) else value for name, value in request.options.items()}
        others = [(tensor.detach() / 2).requires_grad_() for tensor in inputs]
        differentiable(function, flipped, others)
    wanted = [inputs[i] for i in wrt]
    end = output if grad is not None else output.sum()
    came = [
        theirs(torch.autograd.grad, end, wanted, grad, retain_graph=i + 1 < times, allow_unused=True)
        for i in range(times)
    ]
    for number, gradient in zip(wrt, came[0], strict=True):
        if gradient is not None and gradient.layout != torch.strided:
            raise WrongReturn(f"a {gradient.layout} gradient came for argument {number}, expected a strided one")
        if gradient is None:
            alone = "" if len(wrt) == len(inputs) else ": it may be asked for alone, which ctx.needs_input_grad tells"
            raise WrongReturn(f"no gradient came for argument {number}, only None{alone}")
    return [list(gradients) for gradients in came], False


def of_halves(
    function: Callable, request: Gradients, tensors: list, grad: torch.Tensor | None
) -> tuple[list[list], bool]:
    """Return the gradients of two calls in one graph, each of half of the inputs in `split`, put together again."""
    halves = [tensor.chunk(2) if i in request.split else (tensor, tensor) for i, tensor in enumerate(tensors)]
    leaves = [tuple(half.detach().requires_grad_() for half in {id(x): x for x in both}.values()) for both in halves]
    outputs = [differentiable(function, request.options, [leaf[i] for leaf in leaves]) for i in (0, -1)]
    grads = [torch.ones_like(output) for output in outputs] if grad is None else grad.chunk(2)
    flat = [half for leaf in leaves for half in leaf]
    came = iter(theirs(torch.autograd.grad, outputs, flat, grads))
    return [[torch.cat([next(came) for _ in leaf]) for leaf in leaves]], False


def differentiable(function: Callable, options: Options, inputs: list) -> torch.Tensor:
    """Return the one tensor that a differentiable function returns."""
    outputs, bare = results(theirs(function, *inputs, **options))
    if not bare:
        raise WrongReturn("returned a tuple, expected a torch.Tensor")
    if not outputs[0].requires_grad:
        how = "it must come from a torch.autograd.Function, or an operator with register_autograd"
        raise WrongReturn(f"returned a tensor without a gradient: {how}")
    return outputs[0]


def kept(function: Callable, request: Called, tensors: list) -> tuple[list[list], bool]:
    """Return the gradients, and the bytes of tensors that live on after the call.

    Its inputs and its result are not counted.
    """
    inputs = [tensor.requires_grad_() for tensor in tensors]
    # what is made once for all, such as a workspace, is there from now on
    differentiable(function, request.options, inputs)
    before = reachable_storages()
    # seen by gc
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        output = differentiable(function, request.options, inputs)
    after = reachable_storages()
    ours = {output.untyped_storage()._cdata, *before}
    held = torch.tensor(sum(size for key, size in after.items() if key not in ours))
    return [[held], list(theirs(torch.autograd.grad, output, inputs, torch.ones_like(output)))], False


def costs(function: Callable, request: Costs, tensors: list, seen: "calls.Call") -> tuple[list[list], bool]:
    """Return the bytes that the call reads of each input, writes of each result, and writes elsewhere.

    The last group holds the figures. The second call is measured: tuning, and workspaces that are
    made only once, are then done.
    """
    from assignment.simulator.costs import COSTS, HostTraffic, summary  # not there in a process that times

    results(theirs(function, *tensors, **request.options))
    seen.launches.clear()
    with HostTraffic() as host:
        outputs, bare = results(theirs(function, *tensors, **request.options))
    figures = summary(seen.launches, host, tensors, outputs)
    return [outputs, [torch.tensor(figures[name], dtype=torch.int64) for name in COSTS]], bare


def largest(function: Callable, request: Called, tensors: list) -> tuple[list[list], bool]:
    """Return the results, and the elements of the largest tensor that PyTorch makes in the call."""
    from assignment.simulator.costs import HostTraffic  # not there in a process that times

    with HostTraffic() as host:
        outputs, bare = results(theirs(function, *tensors, **request.options))
    return [outputs, [torch.tensor(host.largest)]], bare


def reachable_storages() -> dict[int, int]:
    """Return the storages of all tensors that Python objects hold, with sizes in bytes."""
    gc.collect()
    sizes: dict[int, int] = {}
    for held in [obj for obj in gc.get_objects() if issubclass(type(obj), torch.Tensor)]:
        # a sparse tensor has no storage; a subclass may forbid to ask
        with contextlib.suppress(Exception):
            sizes[held.untyped_storage()._cdata] = held.untyped_storage().nbytes()
    return sizes


def results(returned: Any) -> tuple[list, bool]:
    """Return a function's results as a list of plain tensors, and whether it was one tensor."""
    bare = not isinstance(returned, tuple | list)
    outputs = [returned] if bare else list(returned)
    for output in outputs:
        if type(output) is not torch.Tensor:
            name = "None" if output is None else type(output).__name__
            raise WrongReturn(f"returned {name}{'' if bare else ' in a tuple'}, expected a torch.Tensor")
        if output.device.type not in ("cpu", "cuda"):
            raise WrongReturn(f"returned a tensor on {output.device}, expected the device of the inputs")
        if output.layout != torch.strided:
            raise WrongReturn(f"returned a {output.layout} tensor, expected a strided one")
        if output.dtype not in wire.DTYPES.values():
            raise WrongReturn(f"returned a tensor of {output.dtype}, expected the dtype of the inputs, or float32")
    return outputs, bare


def moved(tensors: list, device: str) -> list:
    """Return the tensors on another device, with their layouts and shared storages unchanged.

    Of a storage that is mostly unused only what the tensors see is copied.
    """
    storages: dict[int, torch.UntypedStorage] = {}
    out = []
    for tensor in tensors:
        if tensor.device.type == device:
            out.append(tensor)
            continue
        storage = tensor.untyped_storage()
        is_large = storage.nbytes() > wire.WHOLE_STORAGE_UP_TO
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
