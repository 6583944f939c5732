"""Submission and peers as contestants: each in a worker of its own, asked through the same door."""

import contextlib
from pathlib import Path
from typing import Any

from assignment.grading.sandbox import Worker, WorkerDied
from assignment.grading.stage import Stage
from assignment.grading.start import Referee
from assignment.grading.submission import PACKAGE, Submission
from assignment.timing.clock import Contestant
from assignment.timing.workloads import Workload

PEERS = Path(__file__).parent / "peers"
COPYING = "copying"  # the peer that stands for an amount of memory to move
GIVING = (COPYING, "flash2")  # peers whose handing over of results is compared with a submission's


class Failed(Exception):
    """A worker did not do what it was asked; `reply` says why."""

    def __init__(self, reply: dict[str, Any]) -> None:
        super().__init__(str(reply.get("message", "")))
        self.reply = reply


class PeerFailed(Exception):
    """A peer cannot do the work here."""


def of_submission(worker: Worker) -> Contestant:
    return Contestant("submission", lambda kind, workload, *more: ask(worker, workload.function, kind, workload, *more))


def peers() -> Submission:
    """All peers as one submission."""
    return Submission({f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted(PEERS.glob("*.py"))})


class Peers:
    """A worker with all peers."""

    def __init__(self, rung: str) -> None:
        self._stage = Stage(peers(), "cuda")
        self._stage.is_endless = True
        self._worker = Worker(self._stage, "cuda", rung)

    def contestant(self, name: str) -> Contestant:
        def ask_peer(kind: str, workload: Workload, *more: Any) -> tuple[dict[str, Any], float]:
            try:
                return ask(self._worker, f"{name}__{workload.function}", kind, workload, *more)
            except (Failed, WorkerDied) as error:
                raise PeerFailed(name, (str(error) or type(error).__name__).splitlines()[0][:100]) from error

        return Contestant(name, ask_peer, is_trusted=True, gives=name in GIVING)

    def close(self) -> None:
        with contextlib.suppress(WorkerDied):  # so that PyTorch does not complain of memory that is still in use
            self._worker.ask({"kind": "release", "function": f"{COPYING}__rmsnorm_forward", "options": {}}, [])
        self._worker.close()
        self._stage.close()


def ask(
    worker: Worker,
    function: str,
    kind: str,
    workload: Workload,
    more: dict[str, Any] | None = None,
    referee: Referee | None = None,
) -> tuple[dict[str, Any], float]:
    """The reply, and the seconds that the last request with a referee took; raises Failed and WorkerDied."""
    from assignment.grading import replies

    request = {"kind": kind, "function": function, "options": workload.options, **(more or {})}
    came, results = worker.ask(request, [], referee)
    reply = replies.read(came, len(results))
    if reply is None or reply["status"] != "ok" or (kind == "run" and "events_s" not in reply):
        is_readable = reply is not None and reply["status"] != "ok"
        raise Failed(reply if reply and is_readable else {"status": "failed", "message": replies.UNREADABLE})
    return reply, worker.seconds
