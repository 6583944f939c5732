"""The `speed` fixture: tests compare a submission's function with a peer, timed in this process.

These tests run one after another, when all others are over and the machine is quiet.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

from assignment.judge.errors import SubmissionError, meant_by
from assignment.judge.pool import Pool, properties_of_gpu
from assignment.operators.workloads import COPYING, Workload, built
from assignment.protocol.messages import Option, Options
from assignment.protocol.said import Said, joined
from assignment.sandbox import rungs
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import WorkerDied
from assignment.submission import Submission
from assignment.timing import clock, contestants, roof
from assignment.timing.gpu_buffer import BufferMemory
from assignment.verdict import score
from assignment.verdict.entries import SpeedFigures

ROUNDS = 5
MAX_DEATHS = 2  # of one function's processes; its remaining cases fail without running
THREADS = 4  # of PyTorch, where results are checked: small pieces gain nothing from more
MEMORY_SHARE = 0.25  # of the GPU's, for slots; the results of the calls take as much again
FIRST_WITH = {torch.bfloat16: (8, 0), torch.float8_e4m3fn: (8, 9)}  # capabilities
BENCH_MEMORY_SHARE = 0.1  # where some peers hold all scores
MAX_MEMORY = 40 << 30  # bytes
# bytes of the GPU; on a smaller one, what only moves memory has a quarter of the rows
FULL_SIZES_FROM = 32 << 30
# times what copies and products reach: reading alone may be a little faster than a copy
BEYOND_ROOF = 1.25
# bytes beside the results: a matrix of all scores of one head at n = 32,768 takes 2 GiB in bfloat16
SLACK = 1 << 30


class TooSlow(AssertionError):
    """A function is right, but too slow for full points."""

    def __init__(self, message: str, share: float) -> None:
        super().__init__(message)
        self.share = share  # of the points


class SpeedSession:
    """What the speed tests of one run share: processes, the judge's memory, the GPU's limits.

    The processes load while other tests are judged.
    """

    def __init__(self, stage: Stage, rung: str) -> None:
        torch.set_num_threads(min(THREADS, torch.get_num_threads()))
        gpu = properties_of_gpu()
        self.total = int(gpu["total_memory"])
        self._stage = stage
        self.submitted = contestants.Submitted(stage, rung, gpu)
        self.peers = contestants.Peers(rung)
        self.deaths: Counter[str] = Counter()  # of the submission's processes, by function
        self.has_begun = False

    def replace(self, submission: Submission) -> None:
        """Continue with another submission."""
        self.submitted.begin_anew()
        self._stage.replace(submission)
        self.deaths.clear()

    @functools.cached_property
    def memory(self) -> BufferMemory:
        return BufferMemory(min(MAX_MEMORY, int(MEMORY_SHARE * self.total)))

    def close(self) -> None:
        self.submitted.close()
        self.peers.close()


def bench(
    session: SpeedSession, console: Console, only: Sequence[str], table: Path | None, picture: Path | None
) -> None:
    """Time a sweep, and write the files that were asked for."""
    from assignment.timing import bench, plots  # loads Matplotlib

    memory = BufferMemory(min(MAX_MEMORY, int(BENCH_MEMORY_SHARE * session.total)))
    roof_ = roof.measure(torch.bfloat16)
    found = ", ".join(f"{name} {version}" for name, version in contestants.versions().items())
    console.print(f"  {found}", style="dim", markup=False)
    rows: list[bench.BenchRow] = []
    try:
        for more in bench.run(console, session.submitted, session.peers, memory, roof_, only):
            rows += more
            if table:  # at once: who presses Ctrl-C twice keeps it too
                bench.write_csv(table, rows)
    finally:  # stopped halfway, what there is
        if picture and rows:
            plots.draw(picture, rows, roof_, torch.cuda.get_device_name())


class Speed:
    """The `speed` fixture of one test."""

    def __init__(self, session: SpeedSession) -> None:
        self._session = session
        self._call = ""
        self.notes: list[str] = []
        self.doubts: list[Said] = []
        self.evidence: dict[str, list[Said]] = {}
        self.measured = ""  # what was found, in a line
        self.timing: SpeedFigures | None = None  # and as numbers: see _judge
        self.seconds = 0.0  # a call
        self.ratio = 0.0  # of the peer's time to that of the submission

    def __call__(
        self, function: str, shape: Sequence[int], dtype: torch.dtype, against: str, reach: float, **options: Option
    ) -> None:
        """Assert that the function is right, its own work, and `reach` times its peer's speed."""
        workload = self._workload(function, shape, dtype, options)
        session = self._session
        with self._failures(function):
            rivals = [session.submitted.contestant(), session.peers.contestant(against)]
            raced = clock.race(workload, rivals, session.memory, ROUNDS)
        self._hear(function)
        self._refuse_impossible(raced.timings[contestants.SUBMISSION], workload, dtype)
        self._judge(raced, workload, dtype, against, reach)

    def _hear(self, function: str) -> None:
        """Add the findings about the program's steps; work outside of kernels is evidence."""
        found = self._session.submitted.found
        self.doubts += found.doubts
        if found.evidence:
            said = joined(["what is timed is not your kernels' work:", *found.evidence])
            raise SubmissionError(score.FAIL, said)

    def _workload(self, function: str, shape: Sequence[int], dtype: torch.dtype, options: Options) -> Workload:
        if self._session.deaths[function] >= MAX_DEATHS:
            message = f"not run: {function} has crashed or hung {MAX_DEATHS} times already"
            raise SubmissionError(score.CRASHED, message, ran=False)
        if torch.cuda.get_device_capability() < FIRST_WITH.get(dtype, (0, 0)):
            name = str(dtype).removeprefix("torch.")
            raise SubmissionError(score.NOT_GRADED, f"{torch.cuda.get_device_name()} has no {name}")
        workload = built(function, shape, dtype, options)
        if not workload.operations and self._session.total < FULL_SIZES_FROM:
            workload = built(function, (shape[0] // 4, *shape[1:]), dtype, options)
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        sizes = f"{str(dtype).removeprefix('torch.')} {workload.largest.shape}"
        self._call = f"{function}({', '.join(part for part in (sizes, shown) if part)})"
        return workload

    @contextlib.contextmanager
    def _failures(self, function: str) -> Iterator[None]:
        """Translate exceptions inside into verdicts; the worker is not used again."""
        try:
            yield
            return
        except contestants.PeerFailed as error:
            name, why = contestants.TITLES[error.args[0]], error.args[1]
            told: BaseException = SubmissionError(score.NOT_GRADED, f"{name} does not run here: {why}")
        except contestants.ContestantFailed as error:
            told = meant_by(error.reply)
        except WorkerDied as error:
            self._session.deaths[function] += 1
            told = SubmissionError(error.status, error.said, error.ran)
        except torch.OutOfMemoryError:
            told = SubmissionError(score.FAIL, "no memory is left on the GPU: results and workspaces take all of it")
        except ValueError as error:  # a slot does not fit
            told = SubmissionError(score.NOT_GRADED, f"this GPU is too small: {error}")
        self._session.submitted.begin_anew()
        torch.cuda.empty_cache()
        raise told

    def _refuse_impossible(self, timing: clock.Timing, workload: Workload, dtype: torch.dtype) -> None:
        least = roof.measure(dtype).least_seconds(workload.nbytes, workload.operations) / BEYOND_ROOF
        if timing.seconds < least:
            raise SubmissionError(
                score.FAIL,
                f"{microseconds(timing.seconds)} a call cannot be: this GPU needs {microseconds(least)} "
                "to move or multiply what the function has to",
            )

    def _judge(
        self, raced: clock.RaceTimes, workload: Workload, dtype: torch.dtype, against: str, reach: float
    ) -> None:
        """Raise TooSlow below `reach` times the peer's speed.

        Bytes are compared where the peer only stands in for them.
        """
        timing = raced.timings[contestants.SUBMISSION]
        middle, low, high = raced.ratios[against]
        if against == COPYING:
            work = workload.nbytes / (2 * workload.largest.nbytes)
            middle, low, high = (ratio * work for ratio in (middle, low, high))
        reached = roof.measure(dtype)
        share = reached.least_seconds(workload.nbytes, workload.operations) / timing.seconds
        rate = f"{workload.nbytes / timing.seconds / 1e12:.2f} TB/s"
        if workload.operations:
            rate = f"{workload.operations / timing.seconds / 1e12:.0f} TFLOP/s"
        self.seconds, self.ratio = timing.seconds, middle
        self.timing = {
            "against": contestants.TITLES[against],
            "ratio": round(middle, 4),  # of the peer's time to the submission's: the median of the rounds
            "low": round(low, 4),
            "high": round(high, 4),
            "full_points_from": reach,
            "us": round(timing.seconds * 1e6, 2),  # a call
            "share_of_gpu": round(share, 4),  # of what it reaches
            "bytes": workload.nbytes,
            "operations": workload.operations,
            "gpu_bytes_per_s": reached.bytes_per_s,
            "gpu_operations_per_s": reached.operations_per_s,
        }
        self.measured = (
            f"{middle:.2f} × {contestants.TITLES[against]} ({low:.2f}–{high:.2f}; full points from {reach:.2f}): "
            f"{microseconds(timing.seconds)} a call, {rate}, {share:.0%} of what this GPU reaches"
        )
        if middle < reach:
            raise TooSlow(
                "\n".join([self.measured, *(f"needs review: {doubt}" for doubt in self.doubts)]), middle / reach
            )

    def memory(self, function: str, shape: Sequence[int], dtype: torch.dtype, **options: Option) -> None:
        """Assert that a call makes no matrix of all scores, by leaving no room for one."""
        workload = self._workload(function, shape, dtype, options)
        allowed = SLACK + sum(spec.nbytes for spec in workload.outputs.values())
        self._session.submitted.begin_anew()  # what it has kept since it began is this function's
        with self._failures(function):
            clock.Track(workload, self._session.memory, n_slots=1).warm_up(self._session.submitted.contestant())
        self._hear(function)
        if (peak := self._session.submitted.found.peak) > allowed:
            raise SubmissionError(
                score.FAIL,
                f"takes {peak / 2**30:.1f} GiB beside its inputs, and may take {allowed / 2**30:.1f}: memory has to "
                "grow with n·d, and not with n²",
            )

    def in_context(self, message: str) -> str:
        return f"{self._call}:\n{message}" if self._call else message


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def needs_a_gpu(pool: Pool) -> str:
    """Return why speed cannot be graded here; "" if it can."""
    if pool.device != "cuda":
        return "speed is graded on a GPU"
    if pool.rung == rungs.BUBBLEWRAP:
        return "speed cannot be graded in bubblewrap: a GPU's memory is not shared into it"
    return "speed is graded in a worker only, not --inline" if pool.rung not in rungs.RUNGS else ""
