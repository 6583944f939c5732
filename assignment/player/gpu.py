"""Plays programs on a GPU: the submission's kernels as Triton compiles them, on the graded inputs.

Memory, races, costs and whose work it is are looked at in the simulator, which has played the same program before.
"""

import gc
from types import SimpleNamespace
from typing import Any

import torch
import triton

from assignment.grading import sticky
from assignment.grading.protocol import WHOLE_STORAGE_UP_TO, parse
from assignment.grading.requests import moved
from assignment.simulator import calls
from assignment.simulator.costs import tensors_in as strided

from .kernels import Kernels, Refused
from .memory import CannotFollow, Storages, describe
from .play import MAX_NOTE, InKernel, Program, Turn, described, spoil

DEVICE = "cuda"
Reply = tuple[dict[str, Any], list[torch.Tensor]]


class Session:
    """One submission's programs, in order."""

    def __init__(self) -> None:
        self._player: OnGpu | None = None

    def answer(self, header: dict[str, Any], tensors: list[torch.Tensor]) -> Reply:
        """One request: the sources of a submission, or a program with the inputs of its call.

        A reply that "sticks" is this process's last; one that "fits" says whether the GPU had room for the call.
        """
        if header["kind"] == "load":
            self._player = OnGpu(header["sources"])
            return {"status": "ok"}, []
        assert self._player is not None
        *inputs, data = tensors
        try:
            reply, results = self._played(self._player, parse(bytearray(data.numpy())), inputs)
        except Exception as error:
            reply, results = failed(error), []
        if (error_ := sticky.error()) is not None:
            return {**failed(InKernel(error_, "")), "sticks": True}, []
        is_large = any(tensor.untyped_storage().nbytes() > WHOLE_STORAGE_UP_TO for tensor in inputs)
        if is_large or not reply.get("fits", True):
            gc.collect()
            torch.cuda.empty_cache()  # other processes have calls of that size too
        return reply, results

    def _played(self, player: "OnGpu", program: Program, inputs: list[torch.Tensor]) -> Reply:
        groups = player.play(program, moved(inputs, DEVICE))
        results = moved([tensor for group in groups for tensor in group], "cpu")
        return {"status": "ok", "groups": [len(group) for group in groups], "bare": program["bare"]}, results


def failed(error: Exception) -> dict[str, Any]:
    """The reply to a program that could not be played to its end."""
    cause = error.error if isinstance(error, InKernel) else error
    if isinstance(cause, torch.OutOfMemoryError):
        return {"status": "failed", "message": str(cause)[:MAX_NOTE], "fits": False}
    if isinstance(error, InKernel):
        return {"status": "raised", **described(error)}
    text = str(error) if isinstance(error, CannotFollow | Refused) else f"{type(error).__name__}: {error}"
    return {"status": "failed", "message": text[:MAX_NOTE]}


class OnGpu:
    """One session: the memory and the kernels of all calls so far."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.kernels = Kernels(sources, triton.jit)
        self.storages = Storages(DEVICE)
        self.work: Any = _Unwatched()

    def play(self, program: Program, tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The results of a call on these tensors; raises InKernel, CannotFollow, Refused, torch.OutOfMemoryError."""
        with torch.no_grad():
            turn = _TurnOnGpu(self, program, tensors, calls.Call())  # type: ignore[arg-type]
            turn.run()
            return [[turn.view(number) for number in group] for group in program["results"]]


class _TurnOnGpu(Turn):
    """One program being played on a GPU."""

    def _made(self, func: Any, args: Any, kwargs: Any, views: list[int]) -> Any:
        """What an operation returns, on the GPU and as it lay in memory where it was recorded."""
        is_made_of_nothing = not strided((args, kwargs))
        if is_made_of_nothing and any(argument.name == "device" for argument in func._schema.arguments):
            kwargs = {**kwargs, "device": DEVICE}
        result = func(*args, **kwargs)
        return self._laid_out(result, views[0]) if isinstance(result, torch.Tensor) and len(views) == 1 else result

    def _laid_out(self, result: torch.Tensor, view: int) -> torch.Tensor:
        number, dtype, offset, sizes, strides = self._program["views"][view]
        found = describe(result)
        is_new = number not in self._player.storages and number not in self.played.inputs
        if not is_new or found[1:] == [offset, sizes, strides] or [found[0], found[2]] != [dtype, sizes]:
            return result
        last = offset + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True)) if result.numel() else 0
        whole = torch.empty(last + 1, dtype=result.dtype, device=DEVICE)
        return whole.as_strided(sizes, strides, offset).copy_(result)

    def _begin_fresh(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            spoil(tensor.untyped_storage())


class _Unwatched:
    """Whose work it is, where nobody asks."""

    needs_kernels = True

    def made(self, *_: Any) -> Any:
        return SimpleNamespace()

    def knows(self, *_: Any) -> bool:
        return True

    def forget(self, *_: Any) -> None: ...

    computed = operation = accuse = doubt = forget
