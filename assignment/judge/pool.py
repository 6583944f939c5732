"""What the judging processes of one run share: the staged submission, a worker each, and which checks ended one."""

import contextlib
import ctypes
import math
import multiprocessing
import os
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from assignment.judge.pair import RecorderAndPlayer
from assignment.sandbox import rungs
from assignment.sandbox.stage import GIVE_UP, GO_ON, WAIT
from assignment.sandbox.worker_client import Stage, Worker
from assignment.simulator.properties import H100
from assignment.submission import Submission
from assignment.verdict import checks, score
from tests import operators

if TYPE_CHECKING:
    from assignment.judge.inline import InlineWorker

MAX_JOBS, MAX_JOBS_WITH_GPU = 8, 16
GPU_MEMORY_OF_A_JOB = 4 << 30  # bytes, of which CUDA takes half a GiB, and what is cached some more
FATAL = (score.CRASHED, score.TIMEOUT)
LESS_PATIENCE = 0.2
LONG_S = 5.0  # of a call, after which later tests wait for it where their order counts; usual: 2 s
NOBODY = (1 << 31) - 1
NO_RUNG = "none"  # the submission runs in this process, in view of a debugger
FUNCTIONS = tuple(operators.functions())


class Pool:
    """The workers of one run, one for each judging process, and what those processes share."""

    has_exact_margins = False  # whether margins of right results are computed with all honest models
    is_in_order = False  # whether verdicts are wanted in the order of the tests: of two long calls the later one waits

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
        # where there is a GPU, or a debugger, host code hears of the same one in all calls
        self.draws_multiprocessors = device != "cuda" and not inline
        self._numbers = {check.name: number for number, check in enumerate(checks.declared())}
        self._functions = {check.name: check.function for check in checks.declared()}
        self._ended, self._hung = self._of_each_check(), self._of_each_check()
        self._long = _number()  # of the test that later ones wait for
        self._judged = (NOBODY, "")  # the test that this process judges, by number, and its check
        self.check = ""  # of which a case is run by this process
        self.until = math.inf  # by the monotonic clock, when calls are given up
        self._closed, self._owner = False, os.getpid()
        self.worker_index = 0  # the index of this process's worker
        self._gpu = properties_of_gpu() if device == "cuda" and not inline else None
        self._pair: RecorderAndPlayer | None = None  # beside this very process: one that simulates
        self._compiler: Worker | None = None  # this process's worker that compiles
        self.stage = Stage(submission, device)
        self.stage.turn, self.stage.patience, self.stage.hung = self._turn, self._patience, self._has_hung
        self.workers: list[RecorderAndPlayer | InlineWorker] = []
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

    def _new_pair(self) -> RecorderAndPlayer:
        """Return what answers the requests of one judging process."""
        pair = RecorderAndPlayer(self.stage, self._sandbox, self._gpu)
        pair.compiler = self.compiler
        return pair

    @property
    def _sandbox(self) -> str | None:
        return None if self.rung == NO_RUNG else self.rung

    def recorder_and_player(self) -> RecorderAndPlayer:
        """Return this process's recorder and player, started at their first use."""
        if isinstance(worker := self.workers[self.worker_index], RecorderAndPlayer):
            return worker
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

    def _of_each_check(self) -> ctypes.Array[ctypes.c_uint]:
        """Return a number for each check, 0 for the time being, which the judges share."""
        return multiprocessing.get_context("fork").RawArray("I", len(self._numbers))

    def died(self, check: str, status: str) -> None:
        """Remember that a case of a check has crashed or run out of time: the check has failed."""
        if check in self._numbers:
            self._ended[self._numbers[check]] = 1 + FATAL.index(status)

    def _has_hung(self, place: str) -> None:
        """Remember in what loop of host code a call of this process was stopped."""
        if self.check in self._numbers:
            self._hung[self._numbers[self.check]] = zlib.crc32(place.encode())

    def _patience(self) -> float:
        """Return what of its limit a call of this process may take.

        It is less where two checks of its function have hung in one place.
        """
        function = self._functions.get(self.check)
        others = [self._hung[n] for name, n in self._numbers.items() if self._functions[name] == function]
        places = Counter(filter(None, others))
        return LESS_PATIENCE if max(places.values(), default=0) > 1 else 1.0

    def given_up(self, check: str) -> str | None:
        """Return the status of a check of which a case has ended its worker; None where none has."""
        ended = self._ended[self._numbers[check]] if check in self._numbers else 0
        return FATAL[ended - 1] if ended else None

    def judge(self, test: int, check: str) -> None:
        """Remember which test this process judges from now on; its number is its place among all."""
        self._judged = (test, check)

    def is_judged(self) -> None:
        """Let those go on that have waited for the test of this process."""
        if self._long.value == self._judged[0]:
            self._long.value = NOBODY
        self._judged = (NOBODY, "")

    def _turn(self, spent_s: float) -> str:
        """Return what becomes of a call of this process that has taken so long until now."""
        test, check = self._judged
        if self.given_up(check) or time.monotonic() > self.until:
            return GIVE_UP
        if self.is_in_order and spent_s > LONG_S and test < self._long.value:
            self._long.value = test
        return WAIT if self._long.value < test < NOBODY else GO_ON

    def replace(self, submission: Submission, seed: int) -> None:
        """Go on with another submission, or other inputs, on the same warm workers."""
        self.submission, self.seed = submission, seed
        self._ended, self._hung, self._long = self._of_each_check(), self._of_each_check(), _number()
        for worker in [*self.workers, self._pair, self._compiler]:
            if worker is not None:
                worker.restart()
        self.stage.replace(submission)

    def renew(self) -> None:
        """Start new workers, for new judges: the old ones were lost with what they were at, perhaps with a lock."""
        self._long = _number()
        for worker in self.workers:
            worker.close()
        self.workers = [self._new_pair() for _ in self.workers]

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


def _number() -> ctypes.c_int:
    """Return a number that forked processes share, without a lock, which a killed one could keep."""
    return multiprocessing.get_context("fork").RawValue("i", NOBODY)


def properties_of_gpu() -> dict[str, int | str]:
    """Return what host code is to hear of the GPU that is here."""
    import torch

    here = torch.cuda.get_device_properties(0)
    return {name: getattr(here, name, usual) for name, usual in H100.items()}


def default_jobs(device: str) -> int:
    """Return how many processes judge; with a GPU more, because most of their time goes into compilation."""
    cores = len(os.sched_getaffinity(0))
    if device != "cuda":
        return min(MAX_JOBS, cores)
    return max(1, min(MAX_JOBS_WITH_GPU, cores, int(properties_of_gpu()["total_memory"]) // GPU_MEMORY_OF_A_JOB))


def pick_device(asked: str) -> str:
    """Return "cpu" or "cuda"; PyTorch is loaded to find out only where there is an NVIDIA driver."""
    if asked != "auto":
        return asked
    if not any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg")):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
