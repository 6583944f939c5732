"""What the judging processes of one run share: the staged submission, a worker each, and how often functions died."""

import contextlib
import multiprocessing
import os
from collections import Counter
from pathlib import Path
from typing import Any

from assignment.judge import score
from assignment.judge.pair import Pair
from assignment.sandbox import rungs
from assignment.sandbox.worker_client import Stage, Worker
from assignment.submission import Submission
from tests import operators

MAX_JOBS, MAX_JOBS_WITH_GPU = 8, 16
GPU_MEMORY_OF_A_JOB = 4 << 30  # bytes, of which CUDA takes half a GiB, and what is cached some more
MAX_DEATHS = 2  # of one function; its remaining cases fail without running
FATAL = (score.CRASHED, score.TIMEOUT)
NO_RUNG = "none"  # the submission runs in this process, in view of a debugger
FUNCTIONS = tuple(operators.functions())


class Pool:
    """The workers of one run, one for each judging process, and what those processes share."""

    def __init__(
        self,
        submission: Submission,
        device: str,
        seed: int,
        jobs: int,
        inline: Path | None = None,
        sandbox: str = rungs.AUTO,
    ) -> None:
        """Check the sandbox and the submission; raises rungs.Unavailable and UnusableSubmission."""
        self.submission, self.device, self.seed, self.jobs = submission, device, seed, jobs
        self.rung = NO_RUNG if inline else rungs.choose(sandbox, device)
        self._deaths = no_deaths()
        self._closed, self._owner = False, os.getpid()
        self.mine = 0  # the index of this process's worker
        self._gpu = properties_of_gpu() if device == "cuda" and not inline else None
        self._pair: Any = None  # beside this very process: one that simulates
        self._compiler: Any = None  # this process's worker that compiles
        self.uncompiled: Counter[str] = Counter()  # how often a function has ended the one that compiles
        self.stage = Stage(submission, device)
        self.workers: list[Any] = []  # Pair or InlineWorker
        try:
            self._employ(inline)
        except BaseException:
            self.close()
            raise

    def _employ(self, inline: Path | None) -> None:
        if inline:
            from assignment.judge.inline import InlineWorker  # loads PyTorch

            folder = inline.resolve() if inline.is_dir() else self.stage.submission
            self.workers.append(InlineWorker(folder, self.device))
        else:
            for _ in range(self.jobs):
                self.workers.append(self._new_pair())

    def _new_pair(self) -> Pair:
        """Return what answers the requests of one judging process."""
        pair = Pair(self.stage, self._sandbox, self._gpu)
        pair.compiler = self.compiler
        return pair

    @property
    def _sandbox(self) -> str | None:
        return None if self.rung == NO_RUNG else self.rung

    def pair(self) -> Pair:
        """Return this process's recorder and player, started at their first use."""
        if isinstance(self.workers[self.mine], Pair):
            return self.workers[self.mine]
        if self._pair is None:
            self._pair = self._new_pair()
        return self._pair

    def compiler(self) -> Worker:
        """Return this process's worker that compiles, started at its first use."""
        if self._compiler is None:
            self._compiler = Worker(self.stage, "compile", self._sandbox)
        return self._compiler

    def import_error(self) -> str:
        """Return what kept the package from being imported, if this process has seen that; its files still are."""
        workers = (worker for worker in (*self.workers, self._pair) if worker is not None)
        return next((worker.import_error for worker in workers if worker.import_error), "")

    def died(self, function: str, status: str) -> None:
        with self._deaths.get_lock():
            self._deaths[2 * FUNCTIONS.index(function) + FATAL.index(status)] += 1

    def given_up(self, function: str) -> str | None:
        """Return the status of a function that has ended its worker too often to be run again."""
        first = 2 * FUNCTIONS.index(function)
        counts = self._deaths[first : first + 2]
        return FATAL[counts.index(max(counts))] if sum(counts) >= MAX_DEATHS else None

    def replace(self, submission: Submission, seed: int) -> None:
        """Go on with another submission, or other inputs, on the same warm workers."""
        self.submission, self.seed = submission, seed
        self._deaths = no_deaths()  # a judge that was killed may have held the lock of the old ones
        self.uncompiled.clear()
        for worker in [*self.workers, self._pair, self._compiler]:
            if worker is not None:
                worker.restart()
        self.stage.replace(submission)

    def renew(self) -> None:
        """Start new workers, for new judges: the old ones were lost with what they were at, perhaps with a lock."""
        for worker in self.workers:
            worker.close()
        self.workers = [self._new_pair() for _ in self.workers]
        self._deaths = multiprocessing.get_context("fork").Array("i", self._deaths.get_obj()[:])

    def close(self) -> None:
        """End the workers and remove their folder; once is enough, and a forked process leaves it to who made them."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        with contextlib.ExitStack() as closing:  # the folder goes whatever becomes of the workers
            closing.callback(self.stage.close)
            for worker in [*self.workers, self._pair, self._compiler]:
                if worker is not None:
                    closing.callback(worker.close)


def no_deaths() -> Any:
    """Return how often each function has crashed and has hung, for the judges to count together."""
    return multiprocessing.get_context("fork").Array("i", 2 * len(FUNCTIONS))


def properties_of_gpu() -> dict[str, Any]:
    """Return what host code is to hear of the GPU that is here."""
    import torch

    from assignment.simulator.gpu import H100

    here = torch.cuda.get_device_properties(0)
    return {name: getattr(here, name, usual) for name, usual in H100.items()}


def default_jobs(device: str) -> int:
    """Return how many processes judge; with a GPU more, because most of their time goes into compilation."""
    cores = len(os.sched_getaffinity(0))
    if device != "cuda":
        return min(MAX_JOBS, cores)
    return max(1, min(MAX_JOBS_WITH_GPU, cores, properties_of_gpu()["total_memory"] // GPU_MEMORY_OF_A_JOB))


def pick_device(asked: str) -> str:
    """Return "cpu" or "cuda"; PyTorch is loaded to find out only where there is an NVIDIA driver."""
    if asked != "auto":
        return asked
    if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
