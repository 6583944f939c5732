"""What the judging processes of one run share: the staged submission, a worker each, and which checks ended one."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assignment.judge.pair import Answer, RecorderAndPlayer
from assignment.judge.shared import Shared
from assignment.protocol.requests import Direct, Ranks
from assignment.sandbox import rungs
from assignment.sandbox.worker_client import Stage, Worker
from assignment.simulator.properties import H100
from assignment.submission import Submission
from assignment.system import here
from tests import operators

if TYPE_CHECKING:
    from torch import Tensor

MAX_JOBS, MAX_JOBS_WITH_GPU = 8, 16
GPU_MEMORY_OF_A_JOB = 4 << 30  # bytes, of which CUDA takes half a GiB, and what is cached some more
NO_RUNG = "none"  # the submission runs in this process, in view of a debugger
FUNCTIONS = tuple(operators.functions())


class CallWorker(Protocol):
    """What answers the requests of one judging process."""

    @property
    def import_error(self) -> str:
        """What kept the package from being imported."""

    def ask(self, request: Direct | Ranks, tensors: list["Tensor"]) -> Answer:
        """Return the reply to a request; raises WorkerDied."""

    def output(self) -> str:
        """Return what the submission has printed since it was last forgotten."""

    def forget_output(self) -> None: ...

    def restart(self) -> None: ...

    def close(self) -> None: ...


class Pool:
    """The workers of one run: one for each judging process, and what else such a process asks, started when needed."""

    keeps_launches = False  # whether calls do, for a page
    has_exact_margins = False  # whether margins of right results are computed with all honest models

    def __init__(
        self,
        submission: Submission,
        device: str,
        seed: int,
        jobs: int,
        inline: Callable[[Path], CallWorker] | None = None,
        sandbox: str = rungs.AUTO,
    ) -> None:
        """Check the sandbox and the submission; raises rungs.Unavailable and UnusableSubmission.

        `inline` makes what answers requests in this process, given the folder of the submission.
        """
        self.submission, self.device, self.seed, self.jobs = submission, device, seed, jobs
        self.rung = NO_RUNG if inline else rungs.choose(sandbox, device)
        self._sandbox = None if inline else self.rung  # None: the best
        # where there is a GPU, or a debugger, host code hears of the same one in all calls
        self.draws_multiprocessors = device != "cuda" and not inline
        self.shared = Shared()
        self._closed, self._owner = False, os.getpid()
        self.worker_index = 0  # the index of this process's worker
        self._gpu = properties_of_gpu() if device == "cuda" and not inline else None
        self._pair: RecorderAndPlayer | None = None  # beside this very process: one that simulates
        self._beside: dict[str, Worker] = {}  # this process's other workers, by role
        self.stage = Stage(submission, device)
        self.stage.turn, self.stage.patience, self.stage.hung = self.shared.turn, self.shared.patience, self.shared.hung
        self.workers: list[CallWorker] = []
        try:
            for _ in range(jobs if here.FORKS or jobs == 1 else 0):  # elsewhere each judge starts its own
                self.workers.append(inline(self.stage.submission) if inline else self._new_pair())
        except BaseException:
            self.close()
            raise

    def __getstate__(self) -> dict:
        """Return what another process needs, in which workers are started anew."""
        return {**vars(self), "workers": [], "_pair": None, "_beside": {}}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        if self.jobs == 1:
            self.take_worker(0)

    def take_worker(self, index: int) -> None:
        """Have this process, a judge, use the worker of an index; one that was not forked starts its own."""
        if here.FORKS:
            self.worker_index = index
        elif not self.workers:
            self.workers.append(self._new_pair())

    def _new_pair(self) -> RecorderAndPlayer:
        """Return what answers the requests of one judging process."""
        pair = RecorderAndPlayer(self.stage, self._sandbox, self._gpu)
        pair.compiler = self.beside
        return pair

    def recorder_and_player(self) -> RecorderAndPlayer:
        """Return this process's recorder and player, started at their first use."""
        if isinstance(worker := self.workers[self.worker_index], RecorderAndPlayer):
            return worker
        if self._pair is None:
            self._pair = self._new_pair()
        return self._pair

    def beside(self, role: str = "compile") -> Worker:
        """Return this process's worker that compiles, or runs scripts, started at its first use."""
        if role not in self._beside:
            self._beside[role] = Worker(self.stage, role, self._sandbox)
        return self._beside[role]

    def import_error(self) -> str:
        """Return what kept the package from being imported, if this process has seen that; its files still are."""
        workers = (worker for worker in (*self.workers, self._pair) if worker is not None)
        return next((worker.import_error for worker in workers if worker.import_error), "")

    def replace(self, submission: Submission, seed: int) -> None:
        """Go on with another submission, or other inputs, on the same warm workers."""
        self.submission, self.seed = submission, seed
        self.shared.begin()
        for worker in [*self.workers, self._pair, *self._beside.values()]:
            if worker is not None:
                worker.restart()
        self.stage.replace(submission)

    def renew(self) -> None:
        """Start new workers, for new judges: the old ones were lost with what they were at, perhaps with a lock."""
        self.shared.let_go()
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
            for worker in [*self.workers, self._pair, *self._beside.values()]:
                if worker is not None:
                    closing.callback(worker.close)


def properties_of_gpu() -> dict[str, int | str]:
    """Return what host code is to hear of the GPU that is here."""
    import torch

    here = torch.cuda.get_device_properties(0)
    return {name: getattr(here, name, usual) for name, usual in H100.items()}


def default_jobs(device: str) -> int:
    """Return how many processes judge; with a GPU more, because most of their time goes into compilation."""
    cores = here.cores()
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
