"""A recorder and its player: a call is recorded on decoys in one process and played on its inputs in another.

Where there is a GPU, a third plays what went well in the simulator once more: its results count.
PyTorch is loaded by the first call: the workers' start must not wait for it.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from assignment import text
from assignment.compiling import cache, kernel
from assignment.judge import replies
from assignment.judge.gpu_ranks import GpuRanks
from assignment.judge.replies import Compiled, Failed, Ok, Raised, Recorded, Reply, SaysBroken
from assignment.protocol import requests
from assignment.protocol.messages import ConstantsSeen, Value
from assignment.protocol.replies import MAX_NOTES, on_rank
from assignment.protocol.requests import (
    Again,
    Backward,
    Call,
    Called,
    Costs,
    Direct,
    Kept,
    Playable,
    Ranks,
    Recordable,
    Sweep,
    Traced,
)
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import Worker, WorkerDied
from assignment.system import here
from tests import operators

if TYPE_CHECKING:
    from torch import Tensor

    from assignment.protocol.program import Program

LARGE = 1 << 30  # bytes of a tensor: it takes most of the 12 GiB that a child can address
TARGETS = {8: "a100", 10: "b200"}  # by the first number of their capability; others are compiled for an H100
MAX_ASKED, MAX_COMPILED = 16, 48  # recordings of a submission for the sake of figures, and kernels in all of them
MAX_LOOKED = 3
FIGURES = ("registers", "spills", "shared", "warps", "stages")
SWEEP = Sweep(**operators.called(""), options={})
MAX_KEPT = 256 << 20  # bytes that a child may hold when such a tensor comes
ON_GPU = (Call, Again, requests.Gradients)  # what has its results from there; the rest is played to keep up
Answer = tuple[Reply | None, list["Tensor"]]  # None where what came cannot be read
Judgement = Callable[[Ok, list["Tensor"]], None]


class RecorderAndPlayer:
    """Two processes; losing one restarts both: a player has the memory of what its recorder has done since import.

    To record, to play and to compile are one class, because each may end both processes, and the others must know.
    """

    _is_on_rank = False  # whether what is recorded now is: a rank's recorder begins anew, and no player

    def __init__(self, stage: Stage, rung: str | None, gpu: dict[str, int | str] | None = None) -> None:
        """Start both, and a player on the GPU with these properties, if any."""
        self._stage = stage
        self._workers: list[Worker] = []
        self._gpu_ranks = GpuRanks(stage, rung)
        self.compiler: Callable[[], Worker] | None = None  # for host code that asks what its kernels take
        self._figures: dict[str, dict[str, int]] = {}  # what it has been told, by key
        self._n_asked = 0  # times that it has been recorded anew for them
        self._n_compiled = 0  # kernels that were compiled for them
        self._n_looked = 0  # times that a recorder that says it failed was asked again
        self._unplayed: list[Program] = []  # recorded alone
        self._stubs: dict[str, Recorded] = {}  # what functions say that are not written: they are not called again
        self._gpu = gpu
        self._here = TARGETS.get(int(gpu["major"]) if gpu else 9, "h100")
        try:
            for role in ("record", "play", *(["gpu"] if gpu else [])):
                self._workers.append(Worker(stage, role, rung))
        except BaseException:
            self.close()
            raise
        self.recorder, self._player = self._workers[:2]
        self.kernels: list[dict[str, Value]] = []  # what the recorder has described since its import
        self.last: Program | None = None  # the program that was played last
        self.simulated: list[Tensor] = []  # what the simulator has for the last call, where a GPU's results count
        self.has_asked = False  # whether host code of its submission has asked which GPU it is on
        self.has_asserted = False  # whether a tl.static_assert of a kernel has ended it, as the player tells

    def ask(self, request: Direct | Ranks, tensors: list["Tensor"]) -> Answer:
        """Return the reply to a request; raises WorkerDied, and the next call finds two new processes."""
        if isinstance(request, Ranks):
            return self._ranks(request, tensors)
        if not isinstance(request, Costs | Kept):
            return self._once(request, tensors)
        reply, results = self._warm_up(request, tensors)
        if isinstance(reply, Ok):
            reply, results = self._once(request, tensors)
        if not isinstance(request, Kept) or not isinstance(reply, Ok):
            return reply, results
        after, gradients = self._once(requests.as_a(Backward, request), [])
        if not isinstance(after, Ok):
            return after, gradients
        return replace(after, groups=(*reply.groups, len(gradients))), results + gradients

    def _once(self, request: Playable, tensors: list["Tensor"]) -> Answer:
        return self._play(request, tensors, *self.record(request, tensors))

    def _warm_up(self, request: Costs | Kept, tensors: list["Tensor"]) -> Answer:
        """Make the call on other values first: tuning, and workspaces that are made once for all, are done then.

        What it leaves of these values is of no use for the call that counts.
        """
        others = _decoys(request, tensors)
        return self._once(_recorded_as(request), others)

    def record(self, request: Playable | Traced, tensors: list["Tensor"]) -> "tuple[Recorded | None, Tensor | None]":
        """Return what the recorder says, and the program as it came; None where it said nothing that can be read."""
        if stub := self._stubs.get(request.function):
            return stub, None
        from assignment.judge.returned import is_program  # loads PyTorch

        is_alive = self.recorder.is_connected if self._unplayed else self._are_connected()
        if not self._is_on_rank and (not is_alive or not self._has_room(tensors)):
            self._forget()
        stand_ins = _decoys(request, tensors)
        asked = request if isinstance(request, Traced) else _recorded_as(request)
        told = replace(asked, figures=self._figures, target=request.target or self._gpu or "")
        with self._all_ending():
            reply, came = self.recorder.ask(told, stand_ins)
        said, data = replies.recorded(reply), came[0] if is_program(came) else None
        self.has_asked = said is not None and said.asked
        says_broken = said is not None and isinstance(said.ended, SaysBroken)
        if says_broken and self._n_looked < MAX_LOOKED and not isinstance(told, Backward):
            self._forget()  # once more, from the import on: a fault of ours may come of what was done before
            self._n_looked += 1
            return self.record(request, tensors)
        if data is None:
            return said if says_broken else None, None
        if self._may_ask(told, data) and (figures := self._compiled_for(data, request)):
            self._forget()
            self._figures |= figures
            self._n_asked += 1
            return self.record(request, tensors)
        if said and said.is_stub and not request.target:  # it may be written for another GPU
            self._stubs[request.function] = said
        return said, data

    def _may_ask(self, request: Recordable | Traced, data: "Tensor") -> bool:
        """Return whether a program may ask what kernels take: it is recorded anew then, from the import on."""
        from assignment.judge import program_size  # loads PyTorch

        is_new = not isinstance(request, Backward) and self.compiler is not None
        is_new = is_new and self._n_asked < MAX_ASKED and self._n_compiled < MAX_COMPILED
        return is_new and program_size.asks_for_figures(data)

    def _compiled_for(self, data: "Tensor", request: Called) -> dict[str, dict[str, int]]:
        """Return the figures that a program asks for, by key; without them where a kernel cannot be compiled."""
        asked = self._read(data)
        if isinstance(asked, str):  # of which the play tells
            return {}
        found: dict[str, dict[str, int]] = {}
        name = request.target if request.target and isinstance(request.target, str) else self._here
        for question in asked.questions()[: MAX_COMPILED - self._n_compiled]:
            self._n_compiled += 1
            kernels = self.compiled(asked.part([question.launch]), [name], asked.kernels)
            compiled = next((kernel for kernel in kernels if kernel.registers), None)
            found[question.key] = {name: getattr(compiled, name) for name in FIGURES} if compiled else {}
        return found

    def compiled(
        self, part: "Program", targets: Iterable[str], new: Sequence[dict[str, Value]] = ()
    ) -> tuple[kernel.Kernel, ...]:
        """Return what becomes of a program's launches, compiled for each target; nothing where that failed.

        `new` describes its kernels that have not been played.
        """
        with contextlib.suppress(WorkerDied):
            asked = requests.Compile(programs=dict.fromkeys(targets, 0))
            reply = self._ask_compiler([part], [*self.kernels, *new], asked)
            if isinstance(reply, Compiled):
                return reply.kernels
        return ()

    def _ask_compiler(
        self, programs: "Sequence[Program]", kernels: Sequence[dict[str, Value]], asked: requests.Compile
    ) -> Reply | None:
        """Return what the worker that compiles says, or said of the same launches; raises WorkerDied."""
        from assignment.judge import compiled, excerpt  # loads PyTorch

        assert self.compiler is not None
        compiler = self.compiler
        try:
            with self._spent():
                needed, sources, parts = excerpt.of(programs, kernels, self._stage.sources)
                request = replace(asked, kernels=needed, sources=sources)
                what = requests.written(replace(request, processes=1))
                key = cache.key([what, [bytes(part.numpy()).decode() for part in parts]])
        except RecursionError:  # which nothing that the recorder's own code has written raises
            return None

        def answer() -> Reply | None:
            came, results = compiler().ask(request, parts)
            return replies.read(came, len(results))

        return compiled.remembered(key, answer)

    def _play(self, request: Playable, tensors: list["Tensor"], said: Recorded | None, data: "Tensor | None") -> Answer:
        """Have the program played, whatever the recorder said: what comes before an exception counts too."""
        self.last, self.has_asserted, self.simulated = None, False, []
        if data is None or said is None:
            return (said.ended if said else None), []
        checked = self._read(data)
        if isinstance(checked, str):
            self._forget()
            return said.ended or Failed(text.clean(checked)), []
        if isinstance(request, Sweep) and not checked.only_frees():
            self._forget()
            return None, []
        self.kernels += checked.kernels
        self.last = checked
        with self._all_ending():
            came, results = self._player.ask(request, [*tensors, data])
        reply = replies.read(came, len(results))
        self.has_asserted = isinstance(reply, Raised) and reply.in_static_assert
        if len(self._workers) > 2:
            reply, results = self._on_gpu(request, [*tensors, data], reply, results)
        if said.ended and isinstance(reply, Ok | Failed):
            return said.ended, []
        return reply, results

    def drawn(self) -> bytes:
        """Return what the launches of the last call did, as its player tells; nothing where none is there any more."""
        with contextlib.suppress(WorkerDied):
            if self._player.is_connected:
                came, results = self._player.ask(requests.KeptLaunches(), [])
                if isinstance(replies.read(came, len(results)), Ok) and str(results[0].dtype) == "torch.uint8":
                    return bytes(results[0].numpy())
        return b""

    def _play_unless_done(
        self, request: Call, tensors: list["Tensor"], said: Recorded | None, data: "Tensor | None", done: "Program"
    ) -> Answer | None:
        """Have a program played; None if it does what another has done, and all memory that it used is gone."""
        checked = self._read(data) if said and not said.ended and data is not None else ""
        if isinstance(checked, str) or checked.likeness() != done.likeness() or not self._are_connected():
            return self._play(request, tensors, said, data)
        after = self.record(SWEEP, [])  # by now it may be gone
        if self._let_go([checked], after):
            return None
        answer, last = self._play(request, tensors, said, data), self.last
        self._play(SWEEP, [], *after)
        self.last = last
        return answer

    def _let_go(self, unplayed: "Sequence[Program]", after: "tuple[Recorded | None, Tensor | None]") -> bool:
        """Have programs go unplayed if all memory that they used is gone by the sweep after them; else return False.

        The players hear what kernels they have described, and what is gone.
        """
        said, data = after
        swept = self._read(data) if data is not None else ""
        if isinstance(swept, str):
            return False
        told = swept.in_place_of(unplayed)
        if not set[int]().union(*(one.used() for one in unplayed)) <= told.gone():
            return False
        self._play(SWEEP, [], said, told.encoded())
        return True

    def unplayed(
        self, request: Call | Traced, tensors: list["Tensor"]
    ) -> "tuple[Raised | Failed | SaysBroken | None, Program | None]":
        """Record a call that is not played; returns what it ended with instead of returning, and what it did.

        `settle` must follow, before anything is played.
        """
        said, data = self.record(request, tensors)
        program = self._read(data) if data is not None else ""
        if isinstance(program, str):
            self._forget()
            return said.ended if said else None, None
        self._unplayed.append(program)
        return said.ended if said else None, program

    def _ranks(self, request: Ranks, tensors: list["Tensor"]) -> Answer:
        """Have calls on several ranks recorded, each rank from the import on, and all of them played together."""
        self.last, self.has_asserted, self.simulated = None, False, []
        programs: list[Program] = []
        self._is_on_rank = True
        try:
            for rank in range(request.ranks):
                ended, of_rank = self._recorded_rank(request, request.of_rank(tensors, rank), rank)
                if ended or len(of_rank) < request.calls:
                    return on_rank(ended, rank) if ended else None, []
                programs += of_rank
        finally:
            self._is_on_rank, self._unplayed = False, []
            self.recorder.end_child()  # its memory is that of one rank: the next call begins anew
        self.last, first = programs[0], programs[: request.calls]
        self.kernels = [kernel for program in first for kernel in program.kernels]
        with self._all_ending():
            came, results = self._player.ask(request, [*tensors, *(program.encoded() for program in programs)])
        reply = replies.read(came, len(results))
        self.has_asserted = isinstance(reply, Raised) and reply.in_static_assert
        if not isinstance(reply, Ok) or not 1 < request.ranks <= self._stage.ranks_on_gpu or len(self._workers) < 3:
            return reply, results
        with self._all_ending():
            on_gpu, found = self._gpu_ranks.play(request, tensors, programs)
        if not isinstance(on_gpu, Ok):
            return self._judged_without_gpu(on_gpu, reply, results)
        return reply, [*found, *results[-2:]]  # the last: what links moved and ranks did, in the simulator

    def _recorded_rank(
        self, request: Ranks, calls: "list[list[Tensor]]", rank: int
    ) -> "tuple[Raised | Failed | SaysBroken | None, list[Program]]":
        """Return what a call on a rank has ended with, or the programs of all its calls, of one session."""
        while True:
            self.recorder.end_child()
            self._unplayed = []
            begun, programs = (self._n_asked, self._n_looked), list["Program"]()
            for number, tensors in enumerate(calls, start=1):
                asked = requests.as_a(Call, replace(request, options={**request.options, "rank": rank, "call": number}))
                ended, program = self.unplayed(asked, tensors)
                if ended or program is None:
                    return ended, []
                programs.append(program)
            if begun == (self._n_asked, self._n_looked):  # otherwise a call has begun another session
                return None, programs

    def settle(self) -> None:
        """Let the calls go that were recorded alone; where one has left memory, both processes begin anew."""
        if self._unplayed and not self._let_go(self._unplayed, self.record(SWEEP, [])):
            self._forget()
        self._unplayed = []

    def _read(self, data: "Tensor") -> "Program | str":
        """Return a program, checked, or what is wrong with it."""
        from assignment.judge import program_size  # loads PyTorch

        try:
            with self._spent():
                return program_size.read(data)
        except program_size.Unreadable as error:
            return str(error)

    @contextlib.contextmanager
    def _spent(self) -> Iterator[None]:
        """Count the time of what is done inside as the submission's."""
        began = time.process_time()
        try:
            yield
        finally:
            self._stage.spend(time.process_time() - began)

    def _on_gpu(
        self, request: Playable, tensors: list["Tensor"], simulated: Reply | None, results: list["Tensor"]
    ) -> Answer:
        """Have the program played on the GPU too; what the simulator has found is the verdict."""
        if not isinstance(simulated, Ok):
            self._forget()  # the others have gone on where the GPU has not
            return simulated, []
        is_large = _has_large(tensors[:-1])  # the last is the program
        with self._all_ending(), self._stage.alone_on_gpu() if is_large else contextlib.nullcontext():
            came, found = self._workers[2].ask(request, tensors)
            reply = replies.read(came, len(found))
            if is_large and isinstance(reply, Ok):
                self._sweep()  # or its memory is taken until the next call
        if not isinstance(reply, Ok):
            self._forget()
            return self._judged_without_gpu(reply, simulated, results)
        if not isinstance(request, ON_GPU):
            return simulated, results
        self.simulated = [] if is_large else results
        return replace(simulated, groups=reply.groups, bare=reply.bare), found

    @staticmethod
    def _judged_without_gpu(reply: Reply | None, simulated: Ok, results: list["Tensor"]) -> Answer:
        """Return what a GPU has ended with; what is simulated, if it only had no room."""
        if not isinstance(reply, Failed) or reply.fits:
            return reply, []
        note = "judged in the simulator: the GPU has no room for this call"
        return replace(simulated, notes=(note, *simulated.notes)[:MAX_NOTES]), results

    def compile(
        self, request: Call, tensors: list["Tensor"], right: Judgement, targets: list[str], jobs: int = 1
    ) -> Reply | None:
        """Compile the kernels of a call for the targets, beside other jobs; host code sees each that it asks about.

        `right` raises something if the results of a program are not as they must be.
        """
        from assignment.judge import configurations  # loads PyTorch

        programs, numbers, constants = list["Program"](), dict[str, int](), dict[str, ConstantsSeen]()
        asked = replace(request, notes_constants=True)
        for name in targets:
            said, data = self.record(replace(request, target=name), tensors)
            if programs:
                answer = self._play_unless_done(asked, tensors, said, data, programs[-1])
            else:
                answer = self._play(asked, tensors, said, data)
            if answer is None:
                numbers[name] = len(programs) - 1
                continue
            reply, results = answer
            if not isinstance(reply, Ok):
                return reply
            if self.last is None or not configurations.is_as_asked(self.last.launches(), 0):
                return Failed("an autotuned kernel was not launched in the first configuration left after pruning")
            right(reply, results)
            assert said is not None
            programs.append(self.last)
            numbers[name] = len(programs) - 1
            constants[str(numbers[name])] = {"seen": [*reply.constants], "of": [*reply.constants_of]}
            if not said.asked:
                numbers = dict.fromkeys(targets, 0)
                break
        processes = max(1, here.cores() // jobs)
        to_compile = requests.Compile(programs=numbers, constants=constants, processes=processes)
        return self._ask_compiler(programs, self.kernels, to_compile)

    def _are_connected(self) -> bool:
        return all(worker.is_connected for worker in self._workers)

    def _has_room(self, tensors: list["Tensor"]) -> bool:
        """Return whether nothing large is kept of earlier calls where there is a large tensor now."""
        if not _has_large(tensors):
            return True
        if self._player.grown > MAX_KEPT:  # until it hears of what the last call has let go
            self._sweep()
        return max(self.recorder.grown, self._player.grown) <= MAX_KEPT

    def _sweep(self) -> None:
        """Let the players hear of the memory that host code has let go."""
        last = self.last
        self._once(SWEEP, [])
        self.last = last

    @contextlib.contextmanager
    def _all_ending(self) -> Iterator[None]:
        """Have the others end too where one is lost."""
        try:
            yield
        except WorkerDied:
            self._forget()
            raise

    def _all_workers(self) -> list[Worker]:
        return [*self._workers, *self._gpu_ranks.workers]

    def _forget(self) -> None:
        for worker in self._workers:
            worker.end_child()
        self.kernels, self._unplayed = [], []

    @property
    def import_error(self) -> str:
        """What kept the package from being imported; its files are, one by one."""
        return self.recorder.import_error

    def output(self) -> str:
        """Return what host code and kernels have printed since it was last forgotten."""
        return self.recorder.output() + self._player.output()

    def forget_output(self) -> None:
        for worker in self._all_workers():
            worker.forget_output()

    def restart(self) -> None:
        self.kernels, self._figures, self._stubs = [], {}, {}
        self._n_asked = self._n_compiled = self._n_looked = 0
        for worker in self._all_workers():
            worker.restart()

    def close(self) -> None:
        for worker in self._all_workers():
            worker.close()


def _has_large(tensors: list["Tensor"]) -> bool:
    return any(tensor.untyped_storage().nbytes() > LARGE for tensor in tensors)


def _recorded_as(request: Playable) -> Recordable:
    """Return what the recorder is asked for: what is looked at is no business of its, nor what the simulator draws."""
    asked: Recordable
    match request:
        case Costs() | requests.Largest():
            asked = requests.as_a(Call, request)
        case Kept():
            asked = requests.as_a(requests.Forward, request)
        case _:
            asked = request
    return replace(asked, order=0)


def _decoys(request: Called, tensors: list["Tensor"]) -> list["Tensor"]:
    from assignment.judge import decoys  # loads PyTorch

    function, options = request.function, request.options
    if not isinstance(request, Again):
        return decoys.like(function, tensors, options)
    middle = len(tensors) // 2
    return [decoy for half in (tensors[:middle], tensors[middle:]) for decoy in decoys.like(function, half, options)]
