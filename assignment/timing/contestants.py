"""Submission and peers as contestants: each in a separate process, asked in the same way."""

import contextlib
import importlib.metadata
import math
import os
import sys
from pathlib import Path

import torch
from torch import Tensor

from assignment.judge import program_size, replies
from assignment.judge.returned import is_program
from assignment.operators import parts
from assignment.operators.workloads import COPYING, Workload
from assignment.protocol.program import Program, Unreadable
from assignment.protocol.requests import Call, Hold, Prepare, Release, TakeTurns, Timed, Tune, Warm
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import Worker, WorkerDied
from assignment.submission import PACKAGE, Submission
from assignment.timing.clock import Contestant, Kind
from assignment.timing.steps import Found, examined
from tests import operators

SUBMISSION = "submission"
TITLES = {
    SUBMISSION: "this submission",
    COPYING: "a copy",
    "naive": "PyTorch",
    "compiled": "torch.compile",
    **{name: title for part in parts("workload") for name, title in getattr(part, "TITLES", {}).items()},
}
PEERS = Path(__file__).parent / "peers"
ROOT = Path(__file__).resolve().parents[2]
UNREADABLE = replies.Failed(replies.UNREADABLE)


class ContestantFailed(Exception):
    """A worker did not do what it was asked; `reply` says why."""

    def __init__(self, reply: replies.NoResult) -> None:
        super().__init__(reply.message)
        self.reply = reply


class PeerFailed(Exception):
    """A peer cannot do the work here."""


class Submitted:
    """A submission: recorded on stand-ins in one process, played and timed in another."""

    def __init__(self, stage: Stage, rung: str, gpu: dict[str, int | str]) -> None:
        """Start the workers; gpu holds the properties that host code sees."""
        self._recorder, self._player = Worker(stage, "record", rung), Worker(stage, "gpu", rung)
        self._gpu = gpu
        self.found = Found()  # of the program that is timed

    def contestant(self) -> Contestant:
        return Contestant(SUBMISSION, self.ask)

    def ask(self, kind: Kind, workload: Workload) -> replies.Ok:
        """Send a request about a workload; raises ContestantFailed and WorkerDied."""
        if not (self._recorder.is_connected and self._player.is_connected):
            self.begin_anew()
        request = kind(**operators.called(workload.function), options=workload.options)
        reply = ask(self._player, request)
        if isinstance(request, Hold):
            self._prepare(workload)
        return reply

    def _prepare(self, workload: Workload) -> None:
        """Have the program recorded that is to be timed.

        It is that of a second call, with the configurations that are fastest on this GPU.
        """
        data, recorded = self._record(workload, 0)
        self._play(Warm, workload, data)
        tuned = [len(launch.configurations or ()) for launch in recorded.launches()]
        best: list[tuple[float, int]] = [(math.inf, 0)] * sum(n > 1 for n in tuned)
        for i in range(max(tuned, default=1) if best else 0):
            data, _ = self._record(workload, i)
            times = self._play(Tune, workload, data).tuned
            best = [min(known, (time, i)) for known, time in zip(best, times, strict=False)]
        data, recorded = self._record(workload, [i for _, i in best])
        self.found = examined(recorded, workload.function)
        self.found.peak = self._play(Prepare, workload, data).peak

    def _record(self, workload: Workload, configurations: int | list[int]) -> tuple[Tensor, Program]:
        """Return the program of a call, as it came and as it was read."""
        made = [
            (str(spec.dtype).removeprefix("torch."), [*spec.shape], None if spec.values is None else [*spec.values])
            for spec in workload.inputs.values()
        ]
        called, options = operators.called(workload.function), workload.options
        call = Call(**called, options=options, target=self._gpu, made=made, configurations=configurations)
        said, came = self._recorder.ask(call, [])
        reply = replies.recorded(said) if is_program(came) else None
        if ended := UNREADABLE if reply is None else reply.ended:
            raise ContestantFailed(ended)
        try:
            return came[0], program_size.read(came[0])
        except Unreadable as error:
            raise ContestantFailed(replies.Failed(str(error))) from error

    def _play(self, kind: Kind, workload: Workload, data: Tensor) -> replies.Ok:
        return ask(self._player, kind(**operators.called(workload.function), options=workload.options), data)

    def begin_anew(self) -> None:
        """Restart the processes, for another submission or after a failure."""
        for worker in (self._recorder, self._player):
            worker.end_child()

    @property
    def import_error(self) -> str:
        """What kept the package from being imported."""
        return self._recorder.import_error

    def close(self) -> None:
        self._recorder.close()
        self._player.close()


def peers() -> Submission:
    """Return all peers as one submission: shared modules, and a package for each operator.

    What lies in each/ is a module of every package: of the operator's own, if it has none of that name.
    """
    files = {f"{PACKAGE}/{path.name}": path for path in sorted(PEERS.glob("*.py"))}
    for operator in operators.operators():
        folders = (ROOT / "assignment" / room / operator.name / "peers" for room in ("operators", "bank/operators"))
        if own := [path for folder in folders for path in sorted(folder.glob("*.py"))]:
            package = [*sorted((PEERS / "each").glob("*.py")), *own]
            files |= {f"{PACKAGE}/{operator.name}/{path.name}": path for path in package}
    return Submission({name: path.read_bytes() for name, path in files.items()})


def packages() -> list[str]:
    """Return the folders of PYTHONPATH, where peers may be installed.

    Workers do not see PYTHONPATH, and a submission need not.
    """
    named = (Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)
    return [str(folder) for folder in named if folder.is_dir() and folder != ROOT and folder not in ROOT.parents]


def versions() -> dict[str, str]:
    """Return the versions of what is timed: PyTorch, which has some peers in it, its libraries and peers' packages."""
    number = torch.backends.cudnn.version() or 0  # 9.12.1 is 91201
    found = {"torch": torch.__version__, "cudnn": f"{number // 10000}.{number // 100 % 100}.{number % 100}"}
    asked_for = {"triton", *(name for part in parts("workload") for name in getattr(part, "PACKAGES", ()))}
    for distribution in importlib.metadata.distributions(path=[*packages(), *sys.path]):
        if (name := distribution.metadata["Name"].lower().replace("_", "-")) in asked_for:
            found.setdefault(name, distribution.version)
    return found


class Peers:
    """A worker with all peers."""

    def __init__(self, rung: str) -> None:
        self._stage = Stage(peers(), "cuda")
        self._stage.is_endless = True
        self._worker = Worker(self._stage, "cuda", rung, packages=packages())

    def contestant(self, name: str) -> Contestant:
        def ask_peer(kind: Kind, workload: Workload) -> replies.Ok:
            called = operators.called(f"{name}__{workload.function}")
            try:
                return ask(self._worker, kind(**called, options=workload.options))
            except (ContestantFailed, WorkerDied) as error:
                raise PeerFailed(name, (str(error) or type(error).__name__).splitlines()[0][:100]) from error

        return Contestant(name, ask_peer, is_trusted=True)

    def close(self) -> None:
        # so that PyTorch does not complain of memory that is still in use
        with contextlib.suppress(WorkerDied):
            function = f"{COPYING}__{next(iter(operators.functions()))}"
            self._worker.ask(Release(**operators.called(function), options={}), [])
        self._worker.close()
        self._stage.close()


def ask(worker: Worker, request: Timed, *data: Tensor) -> replies.Ok:
    """Send a request and return the reply; raises ContestantFailed and WorkerDied."""
    came, results = worker.ask(request, list(data))
    reply = replies.read(came, len(results))
    if isinstance(reply, replies.Ok) and {TakeTurns: reply.events_s, Prepare: reply.peak}.get(type(request), True):
        return reply
    raise ContestantFailed(reply if isinstance(reply, replies.NoResult) else UNREADABLE)
