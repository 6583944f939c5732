"""What a test of speed can ask: a function of the submission against a peer, timed in this very process.

These tests run one after the other, when all others are over and the machine is quiet.
"""

import ast
import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from assignment.grading import rungs, score
from assignment.grading.calls import SubmissionError, failure
from assignment.grading.pool import MAX_DEATHS, Pool
from assignment.grading.sandbox import Worker, WorkerDied
from assignment.grading.stage import Stage
from assignment.grading.start import Referee
from assignment.grading.submission import Submission
from assignment.timing import clock, contestants, roof
from assignment.timing.memory import Memory
from assignment.timing.workloads import Workload, attention, rmsnorm, weighted_sum

ROUNDS = 10
MEMORY_SHARE = 0.25  # of the GPU's, for slots; the results of the calls take as much again
BENCH_MEMORY_SHARE = 0.1  # where some peers hold all scores
MAX_MEMORY = 40 << 30  # bytes
FULL_SIZES_FROM = 32 << 30  # bytes of the GPU; on a smaller one a quarter of the rows
BEYOND_ROOF = 1.25  # times what copies and products reach: who only reads may be a little faster than a copy
DISAGREEMENT = 0.3  # of the two clocks, from which the staff look at it
OWN_SHARE = 0.5  # of the time on the GPU, in kernels of the submission's own, below which the staff look at it
SLACK = 1 << 30  # bytes beside the results: a matrix of all scores of one head at n = 32,768 takes 2 GiB in bfloat16
LIBRARY = re.compile(r"gemm|cutlass|xmma|cublas|cudnn|nvjet|fmha|flash_(fwd|bwd)|Flash_(fwd|bwd)")
NOBODYS = re.compile(r"cudnn|nvjet|sm\d+_|ampere_|fmha|cutlass|void ")  # a library's, whoever defines such a name
QUIET_WORK = rmsnorm(16384, 4096, torch.bfloat16)  # on which the way to a worker is measured
BUILDERS: dict[str, Callable[..., Workload]] = {"weighted_sum": weighted_sum, "rmsnorm": rmsnorm, "flash": attention}


class TooSlow(AssertionError):
    """Right, but slower than full points ask for."""

    def __init__(self, message: str, share: float) -> None:
        super().__init__(message)
        self.share = share  # of the points


class Session:
    """What the speed tests of one run share: workers of their own, the grader's memory, what the GPU can do.

    The workers load while other tests are judged.
    """

    def __init__(self, stage: Stage, rung: str, submission: Submission) -> None:
        self.total = torch.cuda.get_device_properties(0).total_memory
        self._stage = stage
        self.worker = Worker(stage, "cuda", rung)
        self.peers = contestants.Peers(rung)
        self._roofs: dict[torch.dtype, roof.Roof] = {}
        self.own_names = own_names(submission.files)
        self.deaths: Counter[str] = Counter()  # of the worker, by function
        self.has_begun = False

    def replace(self, submission: Submission) -> None:
        """Go on with another submission."""
        self.worker.restart()
        self._stage.replace(submission)
        self.own_names = own_names(submission.files)
        self.deaths.clear()

    @functools.cached_property
    def memory(self) -> Memory:
        return Memory(min(MAX_MEMORY, int(MEMORY_SHARE * self.total)))

    @functools.cached_property
    def quiet(self) -> clock.Quiet:
        """To be asked for before the submission is."""
        return self.listen(self.memory)

    def listen(self, memory: Memory) -> clock.Quiet:
        return clock.listen(QUIET_WORK, self.peers.contestant(contestants.COPYING), memory)

    def roof(self, dtype: torch.dtype) -> roof.Roof:
        if dtype not in self._roofs:
            self._roofs[dtype] = roof.measure(dtype)
        return self._roofs[dtype]

    def close(self) -> None:
        self.worker.close()
        self.peers.close()


def own_names(files: dict[str, bytes]) -> set[str]:
    """Of all functions that a submission defines: its kernels are among them."""
    names: set[str] = set()
    for text in files.values():
        with contextlib.suppress(SyntaxError, ValueError):
            names |= {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    return {name for name in names if not NOBODYS.match(name)}


def bench(session: Session, console: Console, only: Sequence[str], table: Path | None, picture: Path | None) -> None:
    """Time a sweep, and write what was asked for."""
    from assignment.timing import bench, plots

    memory = Memory(min(MAX_MEMORY, int(BENCH_MEMORY_SHARE * session.total)))
    quiet, roof = session.listen(memory), session.roof(torch.bfloat16)
    rows: list[bench.Row] = []
    try:
        for more in bench.run(console, session.worker, session.peers, memory, quiet, roof, only):
            rows += more
    finally:  # stopped halfway, what there is
        if table:
            bench.write_csv(table, rows)
        if picture and rows:
            plots.draw(picture, rows, roof, torch.cuda.get_device_name())


class Speed:
    """The `speed` fixture of one test."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._call = ""
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.evidence: dict[str, list[str]] = {}
        self.measured = ""  # what was found, in a line
        self.ratio = 0.0  # of the peer's time to that of the submission

    def __call__(
        self, function: str, shape: Sequence[int], dtype: torch.dtype, against: str, reach: float, **options: Any
    ) -> None:
        """Assert that the function is right, its own work, and `reach` times as fast as the peer."""
        workload = self._workload(function, shape, dtype, options)
        with self._failures(function):
            session = self._session
            quiet = session.quiet
            rivals = [contestants.of_submission(session.worker), session.peers.contestant(against)]
            raced = clock.race(workload, rivals, session.memory, quiet, ROUNDS)
            launched = self._trace(workload)
        timing = raced.timings["submission"]
        self._refuse_impossible(timing, workload, dtype)
        self._refuse_libraries(function, launched)
        if timing.disagreement > DISAGREEMENT:
            self.doubts.append(
                f"the grader's clock says {microseconds(timing.seconds)} a call, the worker's events "
                f"{microseconds(timing.events_s)}"
            )
        if sum(launched.values()) / 1e6 > (1 + DISAGREEMENT) * timing.seconds:
            self.doubts.append(
                f"when its kernels are listed, a call takes {microseconds(sum(launched.values()) / 1e6)}; when it is "
                f"timed, {microseconds(timing.seconds)}"
            )
        for library in sorted(raced.twins["submission"]):
            self.doubts.append(f"what a timed call returns is, bit for bit, what {library} returns")
        if raced.is_busy:
            self.doubts.append("something used the GPU while no call was being made: time it again on an idle one")
        self._judge(raced, workload, dtype, against, reach)

    def _workload(self, function: str, shape: Sequence[int], dtype: torch.dtype, options: dict[str, Any]) -> Workload:
        if self._session.deaths[function] >= MAX_DEATHS:
            message = f"not run: {function} has crashed or hung {MAX_DEATHS} times already"
            raise SubmissionError(score.CRASHED, message, ran=False)
        if dtype == torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
            raise SubmissionError(score.NOT_GRADED, f"{torch.cuda.get_device_name()} has no bfloat16")
        build = next(build for name, build in BUILDERS.items() if function.startswith(name))
        if build is not attention and self._session.total < FULL_SIZES_FROM:
            shape = (shape[0] // 4, *shape[1:])
        workload = build(*shape, dtype, backward="backward" in function, **options)
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        x = workload.inputs["q" if "q" in workload.inputs else "x"]
        sizes = f"{str(dtype).removeprefix('torch.')} {x.shape}"
        self._call = f"{function}({', '.join(part for part in (sizes, shown) if part)})"
        return workload

    @contextlib.contextmanager
    def _failures(self, function: str) -> Iterator[None]:
        """What goes wrong inside, as what it means; the worker is not used again."""
        try:
            yield
            return
        except contestants.PeerFailed as error:
            name, why = error.args
            told: BaseException = SubmissionError(score.NOT_GRADED, f"{PEER_NAMES[name]} does not run here: {why}")
        except contestants.Failed as error:
            told = failure(error.reply)
        except WorkerDied as error:
            self._session.deaths[function] += 1
            told = SubmissionError(error.status, str(error), error.ran)
        except torch.OutOfMemoryError:
            told = SubmissionError(score.FAIL, "no memory is left on the GPU: results and workspaces take all of it")
        except ValueError as error:  # a slot does not fit
            told = SubmissionError(score.NOT_GRADED, f"this GPU is too small: {error}")
        self._session.worker.end_child()
        torch.cuda.empty_cache()
        raise told

    def _trace(self, workload: Workload) -> dict[str, float]:
        """The kernels of one call, with the microseconds of each."""
        own = contestants.of_submission(self._session.worker)
        clock.Track(workload, self._session.memory, n_slots=1).hold(own)
        reply, _ = own.ask("trace", workload)
        self._session.memory.poison()
        return reply.get("launched", {})

    def _refuse_impossible(self, timing: clock.Timing, workload: Workload, dtype: torch.dtype) -> None:
        least = self._session.roof(dtype).least_seconds(workload.nbytes, workload.operations) / BEYOND_ROOF
        if timing.seconds < least:
            raise SubmissionError(
                score.FAIL,
                f"{microseconds(timing.seconds)} a call cannot be: this GPU needs {microseconds(least)} "
                "to move or multiply what the function has to",
            )

    def _refuse_libraries(self, function: str, launched: dict[str, float]) -> None:
        own = launched.keys() & self._session.own_names
        library = [name for name in launched if name not in own and LIBRARY.search(name)]
        if library:
            kernels = "\n".join(f"  {name}" for name in library)
            raise SubmissionError(score.FAIL, f"a timed call of {function} launches kernels of a library:\n{kernels}")
        total = sum(launched.values())
        share = sum(launched[name] for name in own) / total if total else 0.0
        if not share >= OWN_SHARE:
            kernels = ", ".join(list(launched)[:5]) or "none that the profiler saw"
            self.doubts.append(f"{share:.0%} of a call's time is spent in kernels of your own; it launches {kernels}")

    def _judge(self, raced: clock.Race, workload: Workload, dtype: torch.dtype, against: str, reach: float) -> None:
        """Raise TooSlow below `reach` times the peer's speed; by bytes where the peer only stands for them."""
        timing = raced.timings["submission"]
        middle, low, high = raced.ratios[against]
        if against == contestants.COPYING:
            work = workload.nbytes / (2 * workload.inputs["x"].nbytes)
            middle, low, high = (ratio * work for ratio in (middle, low, high))
        roof_ = self._session.roof(dtype)
        share = roof_.least_seconds(workload.nbytes, workload.operations) / timing.seconds
        rate = (
            f"{workload.operations / timing.seconds / 1e12:.0f} TFLOP/s"
            if workload.operations
            else f"{workload.nbytes / timing.seconds / 1e12:.2f} TB/s"
        )
        self.ratio = middle
        self.measured = (
            f"{middle:.2f} × {PEER_NAMES[against]} ({low:.2f}–{high:.2f}; full points from {reach:.2f}): "
            f"{microseconds(timing.seconds)} a call, {rate}, {share:.0%} of what this GPU reaches"
        )
        if middle < reach:
            raise TooSlow(
                "\n".join([self.measured, *(f"needs review: {doubt}" for doubt in self.doubts)]), middle / reach
            )

    def memory(self, function: str, shape: Sequence[int], dtype: torch.dtype, **options: Any) -> None:
        """Assert that a call makes no matrix of all scores: memory for one is not left to it."""
        small = self._workload(function, (256, *shape[1:]), dtype, options)
        workload = self._workload(function, shape, dtype, options)
        session, own = self._session, contestants.of_submission(self._session.worker)
        allowed = SLACK + sum(spec.nbytes for spec in workload.outputs.values())
        session.worker.end_child()
        with self._failures(function):
            call_once(small, own, session.memory, contextlib.nullcontext())
            try:
                call_once(workload, own, session.memory, ballast(allowed))
            except contestants.Failed as error:
                raise without_memory(error, allowed) from error

    def in_context(self, message: str) -> str:
        return f"{self._call}:\n{message}" if self._call else message


def call_once(
    workload: Workload, own: clock.Contestant, memory: Memory, around: contextlib.AbstractContextManager
) -> None:
    """A call with something around it, and a look at its results."""
    track = clock.Track(workload, memory, n_slots=1)
    came: list[list[Tensor]] = []
    track.hold(own)
    with around:
        own.ask("run", workload, {}, Referee(lambda: [0], memory.poison))
    own.ask("give", workload, {}, Referee(lambda: [0], lambda: came.extend(track.given([0]))))
    track.check(came, [0])


@contextlib.contextmanager
def ballast(left: int) -> Iterator[None]:
    """Hold all memory of the GPU but so many bytes."""
    torch.cuda.empty_cache()
    held = torch.empty(max(0, torch.cuda.mem_get_info()[0] - left), dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del held
        torch.cuda.empty_cache()


def without_memory(error: contestants.Failed, allowed: int) -> BaseException:
    """What a call's failure means while there was only so much memory."""
    if error.reply["status"] != "raised" or "OutOfMemoryError" not in error.reply["types"]:
        return error
    return SubmissionError(
        score.FAIL,
        f"takes more than {allowed / 2**30:.1f} GiB beside its inputs: memory has to grow with n·d, and not with n² "
        f"({error.reply['message']})",
    )


PEER_NAMES = {contestants.COPYING: "a copy", "flash2": "FlashAttention-2"}


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def needs_a_gpu(pool: Pool) -> str:
    """Why speed cannot be graded here; "" where it can."""
    if pool.device != "cuda":
        return "speed is graded on a GPU"
    if pool.rung == rungs.BUBBLEWRAP:
        return "speed cannot be graded in bubblewrap: a GPU's memory is not shared into it"
    return "speed is graded in a worker only, not --inline" if pool.rung not in rungs.RUNGS else ""
