"""Plays programs on a GPU: the submission's kernels as Triton compiles them, on the graded inputs.

Memory, races, costs and the origin of results are checked in the simulator, which has played the
same program before.
"""

import gc
import statistics
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, assert_never

import torch
import triton

from assignment import whose
from assignment.calling import sticky, timed
from assignment.calling.requests import moved
from assignment.protocol import program as programs
from assignment.protocol.program import Launch, Program
from assignment.protocol.replies import MAX_NOTE, Broken, Failed, Loaded, Ok, Raised, Reply
from assignment.protocol.requests import Called, InGpu, Load, OnRank, OnSlots, Prepare, Sweep, Tune, Warm
from assignment.protocol.said import Said
from assignment.protocol.wire import WHOLE_STORAGE_UP_TO
from assignment.pytorch_private import Argument, Keywords, OpOverload
from assignment.simulator import calls
from assignment.simulator.costs import tensors_in

from . import gpu_ranks, operations
from .kernel_builder import Kernels, Refused
from .play import InKernel, Turn, described, spoil
from .prepared import Prepared
from .storages import CannotFollow, Storages, laid_out

DEVICE = "cuda"
NEVER_S = 1e9
# of a configuration of an autotuned kernel; the first, in which it is compiled, does not count
TRIALS = 4
Answer = tuple[Reply, list[torch.Tensor]]


class GpuSession:
    """One submission's programs, in order."""

    def __init__(self) -> None:
        self._player: GpuPlayer | None = None
        self._function: Prepared | None = None  # what is timed

    def answer(self, request: Load | InGpu, tensors: list[torch.Tensor]) -> Answer:
        """Answer a request: the sources of a submission, or a program with the inputs of its call.

        A reply that "sticks" is this process's last; one that "fits" says whether the GPU had room
        for the call.
        """
        if isinstance(request, Load):
            self._player = GpuPlayer(request.sources)
            return Loaded(), []
        assert self._player is not None
        try:
            reply, results = self._done(self._player, request, tensors)
        except Exception as error:
            reply, results = failed(error), []
        if (error_ := sticky.error()) is not None:
            return replace(failed(InKernel(error_, Said(""))), sticks=True), []
        is_large = any(tensor.untyped_storage().nbytes() > WHOLE_STORAGE_UP_TO for tensor in tensors)
        if is_large or isinstance(request, Sweep) or (isinstance(reply, Failed) and not reply.fits):
            gc.collect()
            torch.cuda.empty_cache()  # other processes have calls of that size too
        return reply, results

    def _done(self, player: "GpuPlayer", request: InGpu, tensors: list[torch.Tensor]) -> Answer:
        match request:
            case Warm() | Prepare() | Tune():
                return self._play_on_slot(player, request, programs.read(tensors[-1])), []
            case OnSlots():
                return timed.answer(self._function, request)
            case OnRank():
                given = list(map(programs.read, tensors[-request.calls :]))
                turn = GpuPlayer(player.sources).turn  # whose memory is that of this request alone
                groups = gpu_ranks.play(turn, DEVICE, request, given, tensors[: -request.calls])
                results = moved([tensor for group in groups for tensor in group], "cpu")
                return Ok(tuple(map(len, groups)), all(program.bare for program in given)), results
            case Called():
                *inputs, data = tensors
                program, inputs = programs.read(data), moved(inputs, DEVICE)
                for table, of in request.about["tables"]:  # of a rank that is alone
                    inputs[table].fill_(inputs[of].data_ptr())
                groups = player.play(program, inputs)
                results = moved([tensor for group in groups for tensor in group], "cpu")
                return Ok(tuple(map(len, groups)), program.bare), results
            case _:
                assert_never(request)

    def _play_on_slot(self, player: "GpuPlayer", request: Warm | Prepare | Tune, program: Program) -> Ok:
        """Play a program on the first slot, in which each launch with alternatives is timed where it is tuned.

        "peak" is this process's peak memory in bytes since the warm-up, lasting allocations included.
        """
        if isinstance(request, Warm):
            torch.cuda.reset_peak_memory_stats()
        turn = player.turn(program, timed.slots[0])
        turn.tuned = [] if isinstance(request, Tune) else None
        with torch.no_grad():
            turn.run()
        if isinstance(request, Prepare):
            self._function = Prepared(player, program)
        return Ok((), bare=False, peak=torch.cuda.max_memory_allocated(), tuned=tuple(turn.tuned or ()))


def failed(error: Exception) -> Failed | Raised | Broken:
    """Return the reply to a program that could not be played to its end."""
    cause: BaseException = error.error if isinstance(error, InKernel) else error
    if isinstance(cause, torch.OutOfMemoryError):
        return Failed(str(cause)[:MAX_NOTE], fits=False)
    if isinstance(error, InKernel) and not whose.is_ours(cause):
        return described(error)
    if isinstance(error, CannotFollow | Refused):
        return Failed(str(error)[:MAX_NOTE], places=error.said.places)
    return Broken(whose.told(cause))


class GpuPlayer:
    """One session: the memory and the kernels of all calls so far."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.kernels = Kernels(sources, triton.jit)
        self.storages = Storages(DEVICE)
        self.work: Any = _Unwatched()
        self.recording = None  # a simulator keeps its launches

    def play(self, program: Program, tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """Return the results of a call on these tensors.

        Raises InKernel, CannotFollow, Refused, torch.OutOfMemoryError.
        """
        with torch.no_grad():
            return self.turn(program, tensors).run().groups

    def turn(self, program: Program, tensors: list[torch.Tensor]) -> "_TurnOnGpu":
        """Return a play that has not begun."""
        return _TurnOnGpu(self, program, tensors, calls.Call())  # type: ignore[arg-type]


class _TurnOnGpu(Turn):
    """One program being played on a GPU."""

    # seconds of the launches that have alternatives, where they are timed
    tuned: list[float] | None = None

    def _launch(self, launch: Launch) -> None:
        if self.tuned is None or not launch.is_tuned:
            super()._launch(launch)
            return
        try:
            times = [self._seconds(launch) for _ in range(TRIALS)]
            self.tuned.append(statistics.median(times[1:]))
        except InKernel as error:
            if not isinstance(error.error, triton.runtime.errors.TritonError):
                raise
            self.tuned.append(NEVER_S)  # it does not fit this GPU

    def _seconds(self, launch: Launch) -> float:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        marks[0].record()
        super()._launch(launch)
        marks[1].record()
        marks[1].synchronize()
        return marks[0].elapsed_time(marks[1]) / 1e3

    def _made(self, func: OpOverload, args: Sequence[Argument], kwargs: Keywords, views: list[int]) -> Argument:
        """Return an operation's result, on the GPU and with the strides that were recorded."""
        is_made_of_nothing = not tensors_in((args, kwargs))
        if is_made_of_nothing and any(argument.name == "device" for argument in func._schema.arguments):
            kwargs = {**kwargs, "device": DEVICE}
        result = operations.call(func, args, kwargs)
        if len(views) == 1 and isinstance(result, torch.Tensor):
            view = self._program.views[views[0]]
            return result if view.storage in self._player.storages else laid_out(result, view)
        return result

    def _begin_fresh(self, tensors: list[torch.Tensor]) -> None:
        for tensor in tensors:
            spoil(tensor.untyped_storage())


class _Unwatched:
    """Work that tracks nothing."""

    needs_kernels = True
    input_labels: tuple[int, ...] = ()

    def made(self, *_: Any) -> Any:
        return SimpleNamespace()

    def knows(self, *_: Any) -> bool:
        return True

    def forget(self, *_: Any) -> None: ...

    is_known_to_host = knows
    computed = operation = accuse = doubt = took_part = forget
