"""Calls on several ranks on GPUs: a process for each rank, asked together, since none answers without the others."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING

from assignment.judge import replies
from assignment.judge.replies import Ok, Reply
from assignment.protocol.messages import Header
from assignment.protocol.replies import on_rank, status
from assignment.protocol.requests import OnRank, Ranks
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import Worker

if TYPE_CHECKING:
    from torch import Tensor

    from assignment.protocol.program import Program

Asked = tuple[Worker, OnRank, list["Tensor"]]


class GpuRanks:
    """The processes of the ranks, started when a call has so many."""

    def __init__(self, stage: Stage, rung: str | None) -> None:
        self._stage, self._rung = stage, rung
        self.workers: list[Worker] = []
        self._n_meetings = 0

    def play(
        self, request: Ranks, tensors: list["Tensor"], programs: "Sequence[Program]"
    ) -> tuple[Reply | None, list["Tensor"]]:
        """Return the reply of rank 0, or of the first that has failed, and all results by call and rank.

        Raises WorkerDied.
        """
        while len(self.workers) < request.ranks:
            self.workers.append(Worker(self._stage, "gpu", self._rung))
        self._n_meetings += 1
        meeting, n, asked = f"ranks-{os.getpid()}-{self._n_meetings}", request.calls, list[Asked]()
        for rank, worker in enumerate(self.workers[: request.ranks]):
            own = [tensor for call in request.of_rank(tensors, rank) for tensor in call]
            own += [program.encoded() for program in programs[rank * n : rank * n + n]]
            asked.append((worker, OnRank(**vars(request), rank=rank, meeting=meeting), own))
        try:
            with self._stage.alone_on_gpu():
                came = ask_together(asked)
        except BaseException:
            self.end()
            raise
        read = [(rank, replies.read(reply, len(found))) for rank, reply, found in came]
        if wrong := [on_rank(reply, rank) for rank, reply in read if not isinstance(reply, Ok)]:
            self.end()
            return wrong[0], []
        sizes = [reply.groups for _, reply in read if isinstance(reply, Ok)]
        if any(groups != (sizes[0][0],) * n for groups in sizes):
            return None, []
        size = sizes[0][0]
        found = [of_rank[call * size : call * size + size] for call in range(n) for *_, of_rank in came]
        return read[0][1], [tensor for group in found for tensor in group]

    def end(self) -> None:
        """End what the processes are at: each would wait for the others."""
        for worker in self.workers:
            worker.end_child()


def ask_together(asked: Sequence[Asked]) -> list[tuple[int, Header, list["Tensor"]]]:
    """Return the number and the reply of each; where one cannot answer, its reply alone: the others are stopped.

    Raises WorkerDied.
    """
    is_over, failed = Event(), list[int]()

    def ask(number: int) -> tuple[int, Header, list["Tensor"]]:
        worker, request, tensors = asked[number]
        worker.is_over, came = is_over.is_set, None
        try:
            came = worker.ask(request, tensors)
        finally:
            if came is None or came[0].get("status") != status(Ok):
                failed.append(number)
                is_over.set()
        return number, *came

    with ThreadPoolExecutor(len(asked)) as threads:
        answers = [threads.submit(ask, number) for number in range(len(asked))]
    return [answers[failed[0]].result()] if failed else [answer.result() for answer in answers]
