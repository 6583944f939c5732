"""What a test of speed can ask: a function of the submission against a peer, timed in this very process.

These tests run one after the other, when all others are over and the machine is quiet.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from assignment.grading import rungs, score
from assignment.grading.calls import SubmissionError, failure
from assignment.grading.pool import MAX_DEATHS, Pool
from assignment.grading.sandbox import Worker, WorkerDied
from assignment.grading.stage import Stage
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
LIBRARY = re.compile(r"gemm|cutlass|xmma|cublas|cudnn|nvjet|fmha|flash|attention|softmax", re.IGNORECASE)
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

    def replace(self, submission: Submission) -> None:
        """Go on with another submission."""
        self.worker.restart()
        self._stage.replace(submission)
        self.own_names = own_names(submission.files)
        self.deaths.clear()

    @functools.cached_property
    def memory(self) -> Memory:
        return Memory(min(MAX_MEMORY, int(MEMORY_SHARE * self.total)))

    def roof(self, dtype: torch.dtype) -> roof.Roof:
        if dtype not in self._roofs:
            self._roofs[dtype] = roof.measure(dtype)
        return self._roofs[dtype]

    def close(self) -> None:
        self.worker.close()
        self.peers.close()


def own_names(files: dict[str, bytes]) -> set[str]:
    """Of all functions that a submission defines: its kernels are among them."""
    return {name.decode() for text in files.values() for name in re.findall(rb"\bdef\s+([A-Za-z_]\w*)", text)}


def bench(session: Session, console: Console, only: Sequence[str], table: Path | None, picture: Path | None) -> None:
    """Time a sweep, and write what was asked for."""
    from assignment.timing import bench, plots

    memory = Memory(min(MAX_MEMORY, int(BENCH_MEMORY_SHARE * session.total)))
    rows = bench.run(console, session.worker, session.peers, memory, session.roof(torch.bfloat16), only)
    if table:
        bench.write_csv(table, rows)
    if picture:
        plots.draw(picture, rows, session.roof(torch.bfloat16), torch.cuda.get_device_name())


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
        try:
            own = contestants.of_submission(self._session.worker)
            others = [self._session.peers.contestant(name) for name in dict.fromkeys((against, contestants.COPYING))]
            raced = clock.race(workload, [own, *others], self._session.memory, ROUNDS)
            launched = self._trace(workload)
        except (contestants.Failed, WorkerDied) as error:
            raise self._failed(function, error) from error
        except clock.BusyBetween as error:
            raise SubmissionError(score.FAIL, f"between its calls the GPU is kept busy: {error}") from error
        timing = raced.timings["submission"]
        self._refuse_impossible(timing, workload, dtype)
        self._refuse_libraries(function, launched)
        if timing.disagreement > DISAGREEMENT:
            self.doubts.append(
                f"the grader's clock says {microseconds(timing.seconds)} a call, the worker's events "
                f"{microseconds(timing.events_s)}"
            )
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

    def _failed(self, function: str, error: "contestants.Failed | WorkerDied") -> BaseException:
        if isinstance(error, WorkerDied):
            self._session.deaths[function] += 1
            return SubmissionError(error.status, str(error), error.ran)
        return failure(error.reply)

    def _trace(self, workload: Workload) -> dict[str, float]:
        """The kernels of one call, with the microseconds of each."""
        worker, memory = self._session.worker, self._session.memory
        reply, _ = contestants.ask(worker, workload.function, "trace", workload, {})
        memory.poison()
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
        if share < OWN_SHARE:
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
            raise TooSlow(self.measured, middle / reach)

    def memory(self, function: str, shape: Sequence[int], dtype: torch.dtype, **options: Any) -> None:
        """Assert that a call makes no matrix of all scores: memory for one is not left to it."""
        small = self._workload(function, (256, *shape[1:]), dtype, options)
        workload = self._workload(function, shape, dtype, options)
        session = self._session
        allowed = SLACK + sum(spec.nbytes for spec in workload.outputs.values())
        ballast = None
        try:
            session.worker.end_child()
            for each in (small, workload):
                clock.Track(each, session.memory, n_slots=1).hold(contestants.of_submission(session.worker))
                if each is workload:
                    torch.cuda.empty_cache()
                    ballast = torch.empty(torch.cuda.mem_get_info()[0] - allowed, dtype=torch.uint8, device="cuda")
                contestants.ask(session.worker, function, "run", each, {"order": [0], "kept": False})
        except contestants.Failed as error:
            if error.reply["status"] == "raised" and "OutOfMemoryError" in error.reply["types"]:
                raise SubmissionError(
                    score.FAIL,
                    f"takes more than {allowed / 2**30:.1f} GiB beside its inputs: memory has to grow with n·d, "
                    f"and not with n² ({error.reply['message']})",
                ) from error
            raise self._failed(function, error) from error
        except WorkerDied as error:
            raise self._failed(function, error) from error
        finally:
            del ballast
            torch.cuda.empty_cache()

    def in_context(self, message: str) -> str:
        return f"{self._call}:\n{message}" if self._call else message


PEER_NAMES = {contestants.COPYING: "a copy", "flash2": "FlashAttention-2"}


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def needs_a_gpu(pool: Pool) -> str:
    """Why speed cannot be graded here; "" where it can."""
    if pool.device != "cuda":
        return "speed is graded on a GPU"
    return "speed is graded in a worker only, not --inline" if pool.rung not in rungs.RUNGS else ""
