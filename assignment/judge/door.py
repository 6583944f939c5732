"""What a test can ask of a submission, over a worker or in this process; tests/door.py says what each call promises."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from assignment import text
from assignment.compiling.targets import TARGETS
from assignment.confined.confinement import ADDRESS_SPACE
from assignment.judge import compiled, configurations, ranked, replies, rounds, traces, transcript, words
from assignment.judge.errors import SubmissionError, meant_by
from assignment.judge.pool import Pool
from assignment.judge.replies import Broken, Compiled, Failed, Fault, NoResult, Ok, Raised, SaysBroken
from assignment.judge.returned import fits, same_bits, share_memory
from assignment.protocol import requests
from assignment.protocol.messages import Option, Options
from assignment.protocol.program import Launch, Program
from assignment.protocol.requests import (
    Again,
    Call,
    Called,
    Direct,
    Gradients,
    Inferred,
    Kept,
    Largest,
    Ranks,
    Script,
    Traced,
)
from assignment.protocol.said import Places, Said
from assignment.sandbox.worker_client import WorkerDied
from assignment.simulator.kept_triton import has_compiler
from assignment.verdict import finding, score
from assignment.verdict.entries import KernelFigures, Moved
from assignment.verdict.finding import Finding
from tests import operators
from tests.compare import Expected, Mismatch, worst_margin
from tests.door import Costs, Links, Results, Returned

OF_LAUNCH = "that is an error of the launch: check inputs before it"
MAY_BE_CALLED = "handout/grading.md#what-may-be-called"
IN_CONFIGURATION = ", its autotuned kernels in configuration {} of those left after pruning"
ADVICE = "advice, from where your code runs"
ON_GPU = ", on a GPU of {} multiprocessors"
READ = f"host code runs on other values than these, and what it read was one of those ({MAY_BE_CALLED}):"
NOT_THE_WORK = (  # by whether it was to be that of kernels
    f"not FlashAttention in PyTorch: use its ordinary operations; see {MAY_BE_CALLED}",
    f"not computed by your kernels: compute it in one; {MAY_BE_CALLED} lists what PyTorch may do",
)


Kind = TypeVar("Kind", bound=Called)
Text = TypeVar("Text", str, Said)


class Run:
    """The `run` fixture: calls functions of the submission by name and returns what they return."""

    def __init__(self, pool: Pool, order: int = 0, check: str = "") -> None:
        """Set up the calls of a case.

        Args:
            order: the seed of the order in which the simulator runs the programs of a launch.
            check: whose case it is.
        """
        self._pool, self._order, self._check = pool, order, check
        pool.shared.check = check
        self._worker = pool.workers[pool.worker_index]
        self._call = ""
        self.asked: Direct | Ranks | None = None  # the last request,
        self.tensors: Sequence[Tensor] = ()  # and those that were sent with it
        self.configuration = 0  # of autotuned kernels: which of those left after pruning is launched
        self.draws: int | None = None  # what draws it, for a case that is played in one alone
        self._are_fewest = False  # the multiprocessors that host code hears of
        self.configurations = [""]  # that a call so far had the choice of: what each gives to kernels
        self.notes: list[str] = []  # what the simulator remarked during all calls
        self.unstored: list[str] = []  # which elements of results no program has stored
        self.nans: list[Said] = []  # where kernels made a NaN of numbers
        self.orders: list[Said] = []  # in which programs met
        self.reads: list[str] = []  # where host code read the value of a stand-in
        self.unplayed: list[Said] = []  # which operations took part that are not played
        self.problems: list[Said] = []  # that keep kernels from running on a GPU
        self.moved: list[Moved] = []  # what calls moved of their inputs and results
        self.lanes: list[str] = []  # what ranks did in the last calls on several, a picture
        self.kernels: list[KernelFigures] = []  # what was compiled, on each GPU
        self.doubts: list[Said] = []  # what it leaves to the staff to judge
        self.evidence: dict[str, list[Said]] = {}  # by function, what shows that its results are not the work asked for

    memory_bytes = ADDRESS_SPACE

    @property
    def has_exact_margins(self) -> bool:
        return self._pool.has_exact_margins

    def __call__(self, function: str, *tensors: Tensor, **options: Option) -> Results:
        """Return the result of function(*tensors, **options)."""
        reply, (results,) = self._ask(Call(**operators.called(function), options=options), tensors)
        return reply.returned(results)

    def ranks(self, function: str, *calls: Sequence[Sequence[Tensor]], **options: Option) -> list[list[Results]]:
        """Return the results of calls on the same buffers, by call and rank."""
        return self.links(function, *calls, **options).results

    def links(self, function: str, *calls: Sequence[Sequence[Tensor]], **options: Option) -> Links:
        """Return what such calls move between ranks, beside their results."""
        sent, n = ranked.sent(function, calls), len(calls[0])
        request = Ranks(**operators.called(function), options=options, ranks=n, calls=len(calls))
        reply, (*groups, (figures, steps)) = self._ask(request, sent)
        self.lanes = words.of_lanes(steps.tolist())
        results = [reply.returned(group) for group in groups]
        return Links([results[first : first + n] for first in range(0, len(results), n)], *figures.tolist())

    def warn_unless(
        self, is_right: Callable[[Results], None], says: str, function: str, *tensors: Tensor, **options: Option
    ) -> None:
        """Warn, at no cost of points, if a call has no results, or `is_right` raises Mismatch of them."""
        asked, sent, call, draws = self.asked, self.tensors, self._call, self.draws
        self.draws = None  # a configuration that Triton's tuner drops has no results
        try:
            is_right(self(function, *tensors, **options))
        except (Mismatch, SubmissionError):
            append_new(self.notes, [f"{function}: {says}"])
        self.asked, self.tensors, self._call, self.draws = asked, sent, call, draws  # as the check itself has asked

    def gradients(
        self,
        function: str,
        *tensors: Tensor,
        grad: Tensor | None = None,
        wrt: Sequence[int] | None = None,
        times: int = 1,
        interleaved: bool = False,
        split: Sequence[int] = (),
        options: Options | None = None,
    ) -> list[tuple[Tensor, ...]]:
        """Return the gradients for the tensors numbered in wrt, as often as they are asked for."""
        wrt = list(range(len(tensors)) if wrt is None else wrt)
        sent = [*tensors, grad] if grad is not None else tensors
        called, options, has_grad = operators.called(function), options or {}, grad is not None
        request = Gradients(**called, options=options, wrt=wrt, times=times, has_grad=has_grad, interleaved=interleaved)
        _, groups = self._ask(replace(request, split=[*split]), sent)
        return [tuple(group) for group in groups]

    def kept_bytes(self, function: str, *tensors: Tensor, **options: Option) -> tuple[int, tuple[Tensor, ...]]:
        """Return the memory that a differentiable call holds on to, and the gradients of its sum."""
        _, ((kept,), gradients) = self._ask(Kept(**operators.called(function), options=options), tensors)
        return int(kept), tuple(gradients)

    def costs(self, function: str, *tensors: Tensor, **options: Option) -> Costs:
        """Return what the call moves, counted in the simulator."""
        reply, (results, figures) = self._ask(requests.Costs(**operators.called(function), options=options), tensors)
        read, tile_rows, written = (figure.tolist() for figure in figures[:3])
        found = Costs(reply.returned(results), read, tile_rows, written, beside=int(figures[3]))
        self.moved += moved_by(function, tensors, results, found)
        return found

    def largest(self, function: str, *tensors: Tensor, **options: Option) -> tuple[Results, int]:
        """Return the results, and the number of elements of the largest tensor made during the call."""
        reply, (results, (largest,)) = self._ask(Largest(**operators.called(function), options=options), tensors)
        whole = operators.operator_of(function).elements(operators.named(function, tensors))
        if not operators.functions()[function].in_triton and int(largest) >= whole:
            made = f"a tensor of {int(largest):,} elements is made, where all scores together are {whole:,}"
            self._accuse(function, [Said(f"{made}: hold a tile of them at a time")])
        return reply.returned(results), int(largest)

    def compiled(
        self,
        function: str,
        *tensors: Tensor,
        right: Callable[..., None] = lambda results: None,
        targets: Sequence[str] = tuple(TARGETS),
        **options: Option,
    ) -> list[str]:
        """Return what keeps the kernels of a call whose results are right from running on each target."""
        if not has_compiler():
            raise SubmissionError(score.NOT_GRADED, score.NEEDS_LINUX)
        self._expect_callable(function)
        self.asked, self.tensors = Call(**operators.called(function), options=options), tensors
        with self._deaths_told("while it was compiled: "):
            judged, pair = functools.partial(self._judged, function, right), self._pool.recorder_and_player()
            reply = pair.compile(self.asked, list(tensors), judged, list(targets), self._pool.jobs)
        if not isinstance(reply, Compiled):
            raise meant_by(reply)
        self.kernels += compiled.figures(reply)
        append_new(self.notes, compiled.not_judged(reply))
        append_new(self.doubts, compiled.unknown(reply, self._pool.stage.sources))
        self.problems = compiled.problems(reply)
        return [*map(str, self.problems)]

    def _judged(self, function: str, right: Callable[..., None], reply: Ok, results: list[Tensor]) -> None:
        """Have the results of a program that is to be compiled judged."""
        if len(reply.groups) != 1:
            raise meant_by(None)
        self._hear(function, reply)
        right(reply.returned(results))

    def on_smallest_gpu(self) -> None:
        """Let host code hear of a GPU with few multiprocessors from now on."""
        self._are_fewest = True

    def rounds(
        self, function: str, build: Callable[[int], Sequence[Tensor]], first: int, tile: int, **options: Option
    ) -> int:
        """Return how long inputs must be for a call's programs to go several rounds; 0 where the grid grows with them.

        Calls are recorded for that, and not played. From now on host code hears of a GPU with few multiprocessors.
        """
        self._expect_callable(function)
        self.on_smallest_gpu()
        structure = operators.about(function)["structure"]
        grown = rounds.Grown(first, build(first), build(2 * first), structure)
        try:
            return rounds.length(lambda n: self._launched(function, grown.to(n), options), first, tile)
        finally:
            self._pool.recorder_and_player().settle()

    def _launched(self, function: str, inputs: Sequence[Tensor], options: Options) -> list[Launch]:
        """Return the launches of a call with inputs such as these, recorded and not played."""
        self._call = words.of_call(function, inputs, options)
        made = [
            (str(x.dtype).removeprefix("torch."), list(x.shape), None if x.is_meta else x.flatten().tolist())
            for x in inputs
        ]
        request = self._drawn(Call(**operators.called(function), options=options, made=made))
        with self._deaths_told():
            ended, program = self._pool.recorder_and_player().unplayed(request, [])
        if isinstance(ended, Raised | Failed):
            raise meant_by(ended)
        return program.launches() if program else []

    def traced(self, function: str, *tensors: Tensor, **options: Option) -> list[tuple[Returned, Returned]]:
        """Return what each operator of a call and its backward pass returns, with data and without."""
        self._expect_callable(function)
        self._call = words.of_call(function, tensors, options)
        request = Traced(**operators.called(function), options=options)
        pair = self._pool.recorder_and_player()
        try:
            with self._deaths_told():
                ended, program = pair.unplayed(request, list(tensors))
        finally:
            pair.settle()
        with_data, without = traces.parts(program or Program())
        if ended or not program:
            self._call += "" if without is None else traces.WITHOUT_DATA
            raise meant_by(ended)
        return traces.paired(with_data, without)

    def advise(self, function: str, script: str) -> None:
        """Have a script run beside the submission, and what it says told, at no cost of points."""
        self._expect_callable(function)
        try:
            came, results = self._pool.beside("script").ask(
                Script(**operators.called(function), options={}, source=script), []
            )
            reply = replies.read(came, len(results))
            said = reply.notes if isinstance(reply, Ok) else [str(getattr(reply, "message", "it cannot be read"))]
        except WorkerDied as error:
            said = [f"its process has ended: {error}"]
        append_new(self.notes, [f"{ADVICE}: {one}" for one in said])

    def inferred(self, function: str, *tensors: Tensor, **options: Option) -> Results:
        """Return the result of a call under torch.no_grad()."""
        reply, (results,) = self._ask(Inferred(**operators.called(function), options=options), tensors)
        return reply.returned(results)

    def again(
        self, function: str, first: Sequence[Tensor], second: Sequence[Tensor], **options: Option
    ) -> tuple[Results, Results]:
        """Return the results for `first` and, after its tensors were overwritten in place, for `second`."""
        reply, groups = self._ask(Again(**operators.called(function), options=options), [*first, *second])
        results_1, inputs_1, results_2, inputs_2 = groups
        for before, after in ((first, inputs_1), (second, inputs_2)):
            for position, (sent, came) in enumerate(zip(before, after, strict=True)):
                if not same_bits(sent, came):
                    written = f"argument {position} was written to: inputs must stay as they are"
                    raise SubmissionError(score.FAIL, written)
        if share_memory(results_1 + results_2, inputs_2):
            raise SubmissionError(score.FAIL, "a result shares its memory with an input: return memory of your own")
        if share_memory(results_1, results_2):
            raise SubmissionError(score.FAIL, "the second call returned the memory of the first one's result")
        return reply.returned(results_1), reply.returned(results_2)

    def raises(self, expected: type[Exception], function: str, *tensors: Tensor, **options: Option) -> None:
        """Assert that the call raises `expected`, outside of any kernel."""
        try:
            reply, _ = self._send(Call(**operators.called(function), options=options), tensors)
        except expected:  # only the inline worker lets it through
            return
        places: Places = ()
        match reply:
            case Raised(in_kernel=False) if expected.__name__ in reply.types:
                if not operators.about(function)["in_triton"] or not self._program().launches():
                    return
                came = "a kernel was launched"
            case Raised(is_todo=True) | Failed() | Broken() | SaysBroken():
                raise meant_by(reply)
            case Raised():
                said = f"\n  {OF_LAUNCH}" if expected.__name__ in reply.types else ""
                came, places = f"it raised {reply.message}{said}", reply.places
            case Fault():
                came, places = f"a kernel was launched\n{reply.message}", reply.places
            case Ok():
                came = "it returned a result"
        said = f"expected a {expected.__name__} before any launch, but {came}"
        raise SubmissionError(score.FAIL, Finding(finding.NO_ERROR, said, places))

    def _program(self) -> Program:
        """Return the program that was played last; an empty one of a call that was not recorded."""
        return getattr(self._worker, "last", None) or Program()

    def is_dropped(self) -> bool:
        """Return whether Triton's tuner drops the configuration that was played last: it fits no GPU that is known."""
        if getattr(self._worker, "has_asserted", False):
            return True
        played = self._program()
        launches = [launch._replace(configurations=None) for launch in played.launches() if launch.is_tuned]
        kernels = self._pool.recorder_and_player().compiled(played.part(launches), TARGETS) if launches else ()
        return bool(kernels) and not any(kernel.fits for kernel in kernels)

    def margin_in_simulator(self, expected: dict[str, Expected]) -> float | None:
        """Return the margin of what the simulator has for the last call, whose results are a GPU's; None if wrong."""
        simulated: list[Tensor] = getattr(self._worker, "simulated", [])
        if not simulated or not isinstance(self.asked, Call):
            return None
        try:
            results = tuple(simulated) if len(simulated) > 1 else simulated[0]
            return worst_margin(results, expected, self.has_exact_margins)
        except Mismatch:
            return None

    def steps(self) -> list[str]:
        """Return what host code did in the last call, step by step; nothing where it was not recorded."""
        names = [str(entry.get("name")) for entry in getattr(self._worker, "kernels", ())]
        return [text.line(step) for step in transcript.lines(self._program(), names)]

    def drawn(self) -> bytes:
        """Return what launches of the last call did, for a page; nothing where that is not known."""
        return getattr(self._worker, "drawn", bytes)() if self._pool.keeps_launches else b""

    def printed(self) -> list[str]:
        """Return the lines that the submission has printed."""
        return words.anywhere(self._worker.output()).rstrip().splitlines()

    def in_context(self, message: str) -> str:
        """Return the message with the call that it is about, and what the submission printed during it."""
        printed = words.beginning_and_end(self.printed())
        notes = [f"  note: {line}" for note in self.notes for line in note.splitlines()[:1]]
        notes += [f"  note: {READ}\n  {read}" for read in self.reads]
        lines = [f"{self._call}:" if self._call else "", *notes, message, *(f"  printed: {line}" for line in printed)]
        return text.clean(words.anywhere("\n".join(line for line in lines if line)))

    def _ask(self, request: Direct | Ranks, tensors: Sequence[Tensor]) -> tuple[Ok, list[list[Tensor]]]:
        reply, results = self._send(request, tensors)
        if not isinstance(reply, Ok):
            raise meant_by(reply)
        remaining = iter(results)
        groups = [[next(remaining) for _ in range(size)] for size in reply.groups]
        if not fits(request, groups, len(tensors)):
            raise meant_by(None)
        return reply, groups

    def _send(self, request: Direct | Ranks, tensors: Sequence[Tensor]) -> tuple[Ok | NoResult, list[Tensor]]:
        self._call = words.of_request(request, tensors)
        draws = self.draws if isinstance(request, configurations.PLAYED) else None
        if self.configuration:
            self._call += IN_CONFIGURATION.format(self.configuration + 1)
        self._expect_callable(request.function)
        request = self._drawn(replace(request, drawn=draws, configurations=self.configuration))
        self.asked, self.tensors = request, tensors
        with self._deaths_told():
            reply, results = self._worker.ask(request, list(tensors))
        if request.multiprocessors and getattr(self._worker, "has_asked", False):
            self._call += ON_GPU.format(request.multiprocessors)
        launches = self._program().launches()
        if not configurations.is_as_asked(launches, self.configuration, draws):
            raise SubmissionError(score.FAIL, "an autotuned kernel was not launched in the configuration asked for")
        if draws is not None and (number := configurations.first_drawn(launches, draws)):
            self._call += IN_CONFIGURATION.format(number + 1)
        self.configurations = max(self.configurations, configurations.among(launches), key=len)
        if not isinstance(reply, Ok | NoResult):
            raise meant_by(reply)
        if isinstance(reply, Ok):
            self._hear(request.function, reply)
        return reply, results

    def _drawn(self, request: Kind) -> Kind:
        """Return the request with what is drawn for the case: the order of programs, and the GPU."""
        n = 0
        if isinstance(request, rounds.DRAWN_FOR) and self._pool.draws_multiprocessors:
            function = request.function
            n = rounds.FEWEST if self._are_fewest else rounds.drawn(self._pool.seed, self._check, function)
        return replace(request, order=self._order, multiprocessors=n, keeps_launches=self._pool.keeps_launches)

    @contextlib.contextmanager
    def _deaths_told(self, when: str = "") -> Iterator[None]:
        """Give up the check whose call inside ends its worker, or had been given up before: raise SubmissionError."""
        try:
            yield
        except WorkerDied as error:
            if error.ran:
                self._pool.shared.died(self._check, error.status)
            else:
                self._expect_alive()
            said = Said(f"{when}{error}", error.said.places)
            raise SubmissionError(error.status, said, error.ran) from error

    def _expect_alive(self) -> None:
        """Raise SubmissionError where another case of the check has ended its worker: the check has failed."""
        if status := self._pool.shared.given_up(self._check):
            what = "crashed" if status == score.CRASHED else "run out of time"
            raise SubmissionError(status, f"not run: another case of this check has {what}", ran=False)

    def _expect_callable(self, function: str) -> None:
        """Raise SubmissionError where the function is practice that has no file yet, or the check has failed."""
        if function in operators.functions():
            operator = operators.operator_of(function)
            if operator.is_apart and operator.file not in self._pool.submission.files:
                raise SubmissionError(score.TO_DO, f"{operator.file}: {function}, {operator.problems[0].section}")
        self._expect_alive()

    def _hear(self, function: str, reply: Ok) -> None:
        """Take in what the simulator said beside the results."""
        if reply.evidence:
            self._accuse(function, reply.evidence)
        append_new(self.nans, reply.nans)
        append_new(self.orders, reply.orders)
        append_new(self.reads, reply.reads)
        append_new(self.unplayed, reply.unplayed)
        append_new(self.unstored, reply.unstored)
        append_new(self.notes, [*reply.unstored, *reply.notes])
        append_new(self.doubts, reply.doubts)

    def _accuse(self, function: str, evidence: Iterable[Said]) -> None:
        """Remember what a call has shown; the check fails for it when its own assertions are through."""
        append_new(
            self.evidence.setdefault(function, [Said(NOT_THE_WORK[operators.about(function)["in_triton"]])]), evidence
        )


def moved_by(function: str, tensors: Sequence[Tensor], results: Sequence[Tensor], costs: Costs) -> list[Moved]:
    """Return the bytes that a call has moved of each input and result, and the least: those of its elements."""
    sides = (
        ("read", [*operators.named(function, tensors)], tensors, costs.read),
        ("written", operators.about(function)["results"], results, costs.written),
    )
    return [
        {"function": function, "tensor": name, "verb": verb, "bytes": nbytes, "least": tensor.nbytes}
        for verb, names, those, moved in sides
        for name, tensor, nbytes in zip(names, those, moved, strict=False)
    ]


def append_new(known: list[Text], said: Iterable[Text]) -> None:
    """Append the texts that `known` lacks."""
    known += [text for text in said if text not in known]
