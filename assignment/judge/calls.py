"""What a test can ask of a submission, over a worker or in this process."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import _pytest.outcomes
import torch
from torch import Tensor

from assignment import text
from assignment.confined.confinement import ADDRESS_SPACE
from assignment.judge import compiled, replies, score, transcript
from assignment.judge.pool import MAX_DEATHS, Pool
from assignment.sandbox.worker_client import WorkerDied
from tests import operators
from tests.door import Costs, Results

MAX_PRINTED_LINES = 8
MAY_BE_CALLED = "handout/grading.md#what-may-be-called"
READ = f"host code runs on other values than these, and what it read was one of those ({MAY_BE_CALLED}):"
NOT_THE_WORK = (  # by whether it was to be that of kernels
    f"not FlashAttention in PyTorch: use its ordinary operations; see {MAY_BE_CALLED}",
    f"not computed by your kernels: compute it in one; {MAY_BE_CALLED} lists what PyTorch may do",
)


class SubmissionError(_pytest.outcomes.Failed):
    """The submission did something else than return tensors."""

    def __init__(self, status: str, message: str, ran: bool = True, is_fault: bool = False) -> None:
        super().__init__(message, pytrace=False)
        self.status, self.ran = status, ran
        self.is_fault = is_fault  # the simulator's, with a line


class Run:
    """The `run` fixture: calls functions of the submission by name and returns what they return."""

    def __init__(self, pool: Pool, order: int = 0) -> None:
        """`order` is the seed of the order in which the simulator runs the programs of a launch."""
        self._pool, self._order = pool, order
        self._worker = pool.workers[pool.mine]
        self._call = ""
        self.asked: dict[str, Any] = {}  # the last request, and the tensors that were sent with it
        self.notes: list[str] = []  # what the simulator remarked during all calls
        self.nans: list[str] = []  # where kernels made a NaN of numbers
        self.reads: list[str] = []  # where host code read the value of a stand-in, or had what is not played
        self.doubts: list[str] = []  # what it leaves to the staff to judge
        self.evidence: dict[str, list[str]] = {}  # by function, what shows that its results are not the work asked for

    memory_bytes = ADDRESS_SPACE  # what a submission can address: a view may reach over most of it

    def __call__(self, function: str, *tensors: Tensor, **options: Any) -> Results:
        """The result of function(*tensors, **options)."""
        header, (results,) = self._ask("call", function, tensors, options)
        return results[0] if header["bare"] else tuple(results)

    def _accuse(self, function: str, evidence: list[str]) -> None:
        """Remember what a call has shown; the check fails for it when its own assertions are through."""
        known = self.evidence.setdefault(function, [NOT_THE_WORK[operators.about(function)["in_triton"]]])
        known += [text for text in evidence if text not in known]

    def gradients(
        self,
        function: str,
        *tensors: Tensor,
        grad: Tensor | None = None,
        wrt: Sequence[int] | None = None,
        times: int = 1,
        interleaved: bool = False,
        options: dict[str, Any] | None = None,
    ) -> list[tuple[Tensor, ...]]:
        """The gradients for the tensors numbered in wrt (default: all), asked for `times` times.

        grad is the gradient of the result; without it that of its sum is taken. Interleaved, the function is called
        once more, on other values and with its switches flipped, before the gradients are asked for.
        """
        wrt = list(range(len(tensors)) if wrt is None else wrt)
        sent = [*tensors, grad] if grad is not None else tensors
        more = {"wrt": wrt, "times": times, "has_grad": grad is not None, "interleaved": interleaved}
        _, groups = self._ask("gradients", function, sent, options or {}, **more)
        return [tuple(group) for group in groups]

    def kept_bytes(self, function: str, *tensors: Tensor, **options: Any) -> tuple[int, tuple[Tensor, ...]]:
        """The memory that a differentiable call holds on to, beside its inputs and its result; its sum's gradients."""
        _, ((kept,), gradients) = self._ask("kept", function, tensors, options)
        return int(kept), tuple(gradients)

    def costs(self, function: str, *tensors: Tensor, **options: Any) -> Costs:
        """What the call moves, counted in the simulator."""
        results, figures = self._measured("costs", function, tensors, options)
        return Costs(results, *(figure.tolist() for figure in figures))

    def largest(self, function: str, *tensors: Tensor, **options: Any) -> tuple[Results, int]:
        """The results, and the number of elements of the largest tensor made during the call."""
        results, (largest,) = self._measured("largest", function, tensors, options)
        whole = operators.operator_of(function).elements(operators.named(function, tensors))
        if not operators.functions()[function].in_triton and int(largest) >= whole:
            made = f"a tensor of {int(largest):,} elements is made, where all scores together are {whole:,}"
            self._accuse(function, [f"{made}: hold a tile of them at a time"])
        return results, int(largest)

    def compiled(
        self, function: str, *tensors: Tensor, right: Callable[[Any], object] = lambda results: None, **options: Any
    ) -> list[str]:
        """What keeps the kernels of a call from being compiled, or from fitting, on each target; a text each.

        Kernels are compiled of calls whose results are right: `right` raises something if they are not.
        """
        self._expect_begun(function)
        if self._pool.uncompiled[function] >= MAX_DEATHS:
            message = f"not compiled: that has crashed or hung {MAX_DEATHS} times already"
            raise SubmissionError(score.TIMEOUT, message, ran=False)
        self.asked = {"kind": "call", "function": function, "options": options, "tensors": tensors}
        try:
            reply = compiled.ask(self._pool, function, tensors, options, functools.partial(self._judged, right))
        except WorkerDied as error:
            self._pool.uncompiled[function] += 1
            raise SubmissionError(error.status, f"while it was compiled: {error}", error.ran) from error
        if reply is None or reply["status"] == "ok":
            raise SubmissionError(score.CRASHED, replies.UNREADABLE)
        if reply["status"] != "compiled":
            raise failure(reply)
        self.notes += [note for note in compiled.not_judged(reply) if note not in self.notes]
        self.doubts += [
            doubt for doubt in compiled.unknown(reply, self._pool.stage.sources) if doubt not in self.doubts
        ]
        return compiled.problems(reply)

    def _expect_begun(self, function: str) -> None:
        """Raise SubmissionError where the function is practice, and the submission has no such file."""
        if function in operators.functions():
            operator = operators.operator_of(function)
            if operator.is_practice and operator.file not in self._pool.submission.files:
                raise SubmissionError(score.TO_DO, f"{operator.file}: {function}, {operator.problems[0].section}")

    def _judged(self, right: Callable[[Any], object], came: dict[str, Any], results: list[Tensor]) -> None:
        """Have the results of a program that is to be compiled judged."""
        reply = replies.read(came, len(results))
        if reply is None or reply["status"] != "ok" or len(reply["groups"]) != 1:
            raise SubmissionError(score.CRASHED, replies.UNREADABLE)
        self._hear(self.asked["function"], reply)
        right(results[0] if reply["bare"] else tuple(results))

    def _measured(
        self, kind: str, function: str, tensors: Sequence[Tensor], options: dict[str, Any]
    ) -> tuple[Results, list[Tensor]]:
        """The results, and the figures that go with them."""
        header, (results, figures) = self._ask(kind, function, tensors, options)
        return results[0] if header["bare"] else tuple(results), figures

    def again(
        self, function: str, first: Sequence[Tensor], second: Sequence[Tensor], **options: Any
    ) -> tuple[Results, Results]:
        """The results for `first` and, after its tensors were overwritten in place, for `second`.

        The first results are read after the second call. Raises SubmissionError where a call wrote to its inputs, or
        returned memory of an input or of the earlier result.
        """
        header, groups = self._ask("again", function, [*first, *second], options)
        results_1, inputs_1, results_2, inputs_2 = groups
        for before, after in ((first, inputs_1), (second, inputs_2)):
            for position, (sent, came) in enumerate(zip(before, after, strict=True)):
                if not same_bits(sent, came):
                    raise SubmissionError(
                        score.FAIL, f"argument {position} was written to: inputs must stay as they are"
                    )
        if share_memory(results_1 + results_2, inputs_2):
            raise SubmissionError(score.FAIL, "a result shares its memory with an input: return memory of your own")
        if share_memory(results_1, results_2):
            raise SubmissionError(score.FAIL, "the second call returned the memory of the first one's result")
        return tuple(group[0] if header["bare"] else tuple(group) for group in (results_1, results_2))  # type: ignore

    def raises(self, expected: type[Exception], function: str, *tensors: Tensor, **options: Any) -> None:
        """Assert that the call raises `expected`, outside of any kernel."""
        try:
            reply, _ = self._send("call", function, tensors, options)
        except expected:  # only the inline worker lets it through
            return
        if reply["status"] == "raised" and expected.__name__ in reply["types"] and not reply["in_kernel"]:
            return
        if is_todo(reply) or reply["status"] == "failed":
            raise failure(reply)
        came = {"ok": "it returned a result", "fault": f"a kernel was launched\n{reply.get('message')}"}.get(
            reply["status"], f"it raised {reply.get('message')}"
        )
        raise SubmissionError(score.FAIL, f"expected a {expected.__name__} before any launch, but {came}")

    def steps(self) -> list[str]:
        """What host code did in the last call, step by step; nothing where it was not recorded."""
        program = getattr(self._worker, "last", {})
        return [text.line(step) for step in transcript.lines(program)] if program else []

    def in_context(self, message: str) -> str:
        """The message with the call that it is about, and what the submission printed during it."""
        printed = beginning_and_end(self._worker.output().rstrip().splitlines())
        notes = [f"  note: {line}" for note in self.notes for line in note.splitlines()[:1]]
        notes += [f"  note: {READ}\n  {read}" if read.startswith(" ") else f"  note: {read}" for read in self.reads]
        lines = [f"{self._call}:" if self._call else "", *notes, message, *(f"  printed: {line}" for line in printed)]
        return text.clean("\n".join(line for line in lines if line))

    def _ask(
        self, kind: str, function: str, tensors: Sequence[Tensor], options: dict[str, Any], **more: Any
    ) -> tuple[dict[str, Any], list[list[Tensor]]]:
        reply, results = self._send(kind, function, tensors, options, **more)
        if reply["status"] != "ok":
            raise failure(reply)
        remaining = iter(results)
        groups = [[next(remaining) for _ in range(size)] for size in reply["groups"]]
        if not replies.fits(kind, groups, len(tensors), more):
            raise SubmissionError(score.CRASHED, replies.UNREADABLE)
        return reply, groups

    def _send(
        self, kind: str, function: str, tensors: Sequence[Tensor], options: dict[str, Any], **more: Any
    ) -> tuple[dict[str, Any], list[Tensor]]:
        shown = tensors[: len(tensors) // 2] if kind == "again" else tensors
        self._call = describe_call(function, shown, options)
        if words := in_words(function, shown, options):
            self._call = f"{words}: {self._call}"
        self._expect_begun(function)
        if status := self._pool.given_up(function):
            message = f"not run: {function} has crashed or hung {MAX_DEATHS} times already"
            raise SubmissionError(status, message, ran=False)
        request = {"kind": kind, **operators.called(function), "options": options, "order": self._order, **more}
        self.asked = {**request, "tensors": tensors}
        try:
            came, results = self._worker.ask(request, list(tensors))
        except WorkerDied as error:
            if error.ran:
                self._pool.died(function, error.status)
            raise SubmissionError(error.status, str(error), error.ran) from error
        reply = replies.read(came, len(results))
        if reply is None:
            raise SubmissionError(score.CRASHED, replies.UNREADABLE)
        self._hear(function, reply)
        return reply, results

    def _hear(self, function: str, reply: dict[str, Any]) -> None:
        """What the simulator said beside the results."""
        if reply.get("evidence"):
            self._accuse(function, reply["evidence"])
        self.nans += [nan for nan in reply.get("nans", ()) if nan not in self.nans]
        self.reads += [read for read in reply.get("reads", ()) if read not in self.reads]
        self.notes += [note for note in reply.get("notes", ()) if note not in self.notes]
        self.doubts += [doubt for doubt in reply.get("doubts", ()) if doubt not in self.doubts]


def beginning_and_end(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_PRINTED_LINES:
        return lines
    half = MAX_PRINTED_LINES // 2
    return [*lines[:half], f"… {len(lines) - 2 * half} lines more …", *lines[-half:]]


TOO_SMALL = (
    "tl.dot wants tiles of at least 16, padded with zeros: handout/faq.md#why-does-d--40-fail-when-32-and-64-work"
)


def is_todo(reply: dict[str, Any]) -> bool:
    return reply["status"] == "raised" and "NotImplementedError" in reply["types"] and reply["by_submission"]


def failure(reply: dict[str, Any]) -> SubmissionError:
    message = str(reply.get("message", ""))
    if is_todo(reply):
        return SubmissionError(score.TO_DO, str(reply["text"]))
    message = f"it raised {message}" if reply["status"] == "raised" else message
    if reply.get("in_kernel") and "Input shapes should have" in message:
        message += f"\n  {TOO_SMALL}"
    return SubmissionError(score.FAIL, message, is_fault=reply["status"] == "fault")


def in_words(function: str, tensors: Sequence[Tensor], options: dict[str, Any]) -> str:
    """The size of a call: "77 queries, 80 keys, d 64, 3 batches, causal, bfloat16"; "" where it has no usual form."""
    operator = operators.operator_of(function)
    named = dict(zip(operators.functions()[function].inputs, tensors, strict=False))
    try:
        size, dtype = operator.in_words(named), named[operator.sized_by].dtype
    except (IndexError, KeyError, ValueError):
        return ""
    switches = [name.removeprefix("is_") for name, value in options.items() if value is True]
    return ", ".join([size, *switches, str(dtype).removeprefix("torch.")])


def describe_call(function: str, tensors: Sequence[Tensor], options: dict[str, Any]) -> str:
    """ "rmsnorm_forward(float32 (3, 40) strides (0, 1), float32 (40,), eps=0.5)" """
    arguments = [describe_tensor(tensor) for tensor in tensors]
    return f"{function}({', '.join([*arguments, *(f'{name}={value}' for name, value in options.items())])})"


def describe_tensor(tensor: Tensor) -> str:
    strides = "" if tensor.is_contiguous() else f" strides {tensor.stride()}"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{strides}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


def share_memory(some: list[Tensor], others: list[Tensor]) -> bool:
    storages = {tensor.untyped_storage().data_ptr() for tensor in others if tensor.numel()}
    return any(tensor.untyped_storage().data_ptr() in storages for tensor in some if tensor.numel())
