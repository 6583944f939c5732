"""What the judging processes of one run share: the staged submission, a worker each, and how often functions died."""

import multiprocessing
import os
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

from assignment.grading import rungs, score
from assignment.grading.confinement import ADDRESS_SPACE
from assignment.grading.sandbox import Stage, Worker
from assignment.grading.submission import Submission

MAX_JOBS = 8
MAX_DEATHS = 2  # of one function; its remaining cases fail without running
FATAL = (score.CRASHED, score.TIMEOUT)
NO_RUNG = "none"  # the submission runs in this process, in view of a debugger
FUNCTIONS = (
    *("weighted_sum_forward", "weighted_sum_backward", "weighted_sum"),
    *("rmsnorm_forward", "rmsnorm_backward", "rmsnorm"),
    *("flash_forward_pytorch", "flash_backward_pytorch"),
    *("flash_forward_triton", "flash_backward_triton", "flash_attention"),
)


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
        """Raises rungs.Unavailable where that sandbox does not work."""
        self.submission, self.device, self.seed, self.jobs = submission, device, seed, jobs
        self.rung = NO_RUNG if inline else rungs.choose(sandbox, device)
        self._deaths = no_deaths()
        self.stage = Stage(submission, device)
        self.workers: list[Any]  # Worker or calls.InlineWorker
        if inline:
            from assignment.grading.calls import InlineWorker

            folder = inline.resolve() if inline.is_dir() else self.stage.submission
            self.workers = [InlineWorker(folder, device)]
        else:
            self.workers = [Worker(self.stage, device, self.rung) for _ in range(jobs)]
        self._closed, self._owner = False, os.getpid()
        self.mine = 0  # the index of this process's worker
        self.memory_bytes = _memory_bytes(device)
        self._simulator: Any = None  # beside a worker with a GPU: one that simulates
        self._compiler: Any = None  # this process's worker that compiles
        self.unsimulated: Counter[str] = Counter()  # how often a function has ended the one that simulates
        self.uncompiled: Counter[str] = Counter()  # and the one that compiles
        self.tried_dry: set[str] = set()  # functions that this process has called without their kernels

    def simulator(self) -> Any:
        """This process's worker, or beside it one that simulates."""
        if self.device == "cpu":
            return self.workers[self.mine]
        if self._simulator is None:
            self._simulator = Worker(self.stage, "cpu", self.rung)
        return self._simulator

    def compiler(self) -> Worker:
        """This process's worker that compiles, started at its first use."""
        if self._compiler is None:
            self._compiler = Worker(self.stage, "compile", None if self.rung == NO_RUNG else self.rung)
        return self._compiler

    def died(self, function: str, status: str) -> None:
        with self._deaths.get_lock():
            self._deaths[2 * FUNCTIONS.index(function) + FATAL.index(status)] += 1

    def given_up(self, function: str) -> str | None:
        """The status of a function that has ended its worker too often to be run again."""
        first = 2 * FUNCTIONS.index(function)
        counts = self._deaths[first : first + 2]
        return FATAL[counts.index(max(counts))] if sum(counts) >= MAX_DEATHS else None

    def replace(self, submission: Submission, seed: int) -> None:
        """Go on with another submission, or other inputs, on the same warm workers."""
        self.submission, self.seed = submission, seed
        self._deaths = no_deaths()  # a judge that was killed may have held the lock of the old ones
        self.unsimulated.clear()
        self.uncompiled.clear()
        self.tried_dry.clear()
        for worker in [*self.workers, self._simulator, self._compiler]:
            if worker is not None:
                worker.restart()
        self.stage.replace(submission)

    def renew(self) -> None:
        """New workers, for new judges: the old ones were lost with whatever they were at, perhaps with a lock."""
        for worker in self.workers:
            worker.close()
        self.workers = [Worker(self.stage, self.device, self.rung) for _ in self.workers]
        self._deaths = multiprocessing.get_context("fork").Array("i", self._deaths.get_obj()[:])

    def close(self) -> None:
        """End the workers and remove their folder; once is enough, and a forked process leaves it to who made them."""
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        for worker in [*self.workers, self._simulator, self._compiler]:
            if worker is not None:
                worker.close()
        self.stage.close()


def no_deaths() -> Any:
    """How often each function has crashed and has hung, for the judges to count together."""
    return multiprocessing.get_context("fork").Array("i", 2 * len(FUNCTIONS))


def _memory_bytes(device: str) -> int:
    if device == "cpu":
        return ADDRESS_SPACE
    import torch

    return torch.cuda.get_device_properties(0).total_memory


def default_jobs() -> int:
    return min(MAX_JOBS, len(os.sched_getaffinity(0)))


def pick_device(asked: str) -> str:
    """ "cpu" or "cuda"; PyTorch is loaded to find out only where there is an NVIDIA driver."""
    if asked != "auto":
        return asked
    if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def new_seed() -> int:
    return secrets.randbelow(2**31)
