"""Grade many submissions on warm judges: each process collects the checks once and keeps its worker from job to job."""

import hashlib
import json
import math
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from assignment import plugin
from assignment.bank.corpus import BUG, Entry
from assignment.commands.collector import GraderProblems
from assignment.commands.run import run_pytest
from assignment.digest import grader_digest
from assignment.judge.pool import Pool
from assignment.pytest_private import runtestprotocol
from assignment.verdict import checks, score
from assignment.verdict.case import Case, CheckCases, held_by
from assignment.verdict.finding import Explanation, explanation
from assignment.verdict.search import Search

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    Jobs = Queue[list["GradingJob"] | None]

CHUNK = 5  # jobs for one judge, at the most: seeds of one submission, whose kernels are then compiled once
MOST_LOOKED_AT = 8  # cases of a check, for the sake of a hint
CAUGHT = 2.0  # a bug that exceeds the bound by this much is caught for good


@dataclass(frozen=True)
class GradingJob:
    """One submission on one seed. With `only`, no other check is run; for a cheat these are several, with spaces."""

    entry: Entry
    seed: int
    only: str = ""
    without: str = ""  # where all checks are run: what is in the names of those that are not
    sandbox: str = ""  # of a cheat: the rung to grade it on, in place of the best that works


@dataclass(frozen=True)
class Verdict:
    """What one check said of one submission: the worst status and margin of its cases."""

    status: str
    margin: float
    case: str = ""
    message: str = ""
    notes: list[str] = field(default_factory=list)  # what the simulator remarked during any of the cases
    hints: list[Explanation] | None = None  # what a wrong result may come from
    ran: bool = True  # False where the function had been given up before


@dataclass(frozen=True)
class Result:
    """One job's verdicts by check."""

    name: str
    seed: int
    only: str
    key: str
    seconds: float
    verdicts: dict[str, Verdict]
    status: int | None = 0  # of a cheat's run: grade.py's exit status, None if it had to be stopped
    said: str = ""  # the end of what it wrote to stderr
    trouble: list[str] = field(default_factory=list)  # what is wrong with the run, whatever the score
    rung: str = ""  # the sandbox that it was run in

    @property
    def failed(self) -> list[str]:
        return [name for name, verdict in self.verdicts.items() if verdict.status not in score.KEEPS_POINTS]

    def line(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def read(data: dict[str, Any]) -> "Result":
        for verdict in data["verdicts"].values():
            verdict["hints"] = verdict["hints"] and [*map(explanation, verdict["hints"])]
        return Result(**data | {"verdicts": {name: Verdict(**v) for name, v in data["verdicts"].items()}})


def digest(device: str) -> str:
    """Return a digest of everything that a verdict depends on, beside the submission and the seed."""
    return hashlib.sha256(f"{device} {grader_digest()} {checks.worth()}".encode()).hexdigest()


def key(job: GradingJob, judged_by: str) -> str:
    """Return the name under which a result is kept: it is no longer found when the submission or a test has changed."""
    cheat = job.entry.name if job.entry.cheat else ""  # may be packed in a way of its own
    asked = f"{job.seed} {job.only} {job.without} {job.entry.problems} {job.sandbox}"
    text = f"{judged_by} {cheat} {job.entry.submission.sha256} {asked}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def judge_all(jobs: list[GradingJob], device: str, processes: int) -> Iterator[Result]:
    """Yield the results of the jobs, as they come."""
    judged_by = digest(device)
    fork = multiprocessing.get_context("fork")
    queue, results = fork.Queue(), fork.Queue()
    size = max(1, min(CHUNK, len(jobs) // processes))
    for first in range(0, len(jobs), size):
        queue.put(jobs[first : first + size])
    judges = [fork.Process(target=_judge, args=(queue, results, device, judged_by)) for _ in range(processes)]
    for process in judges:
        queue.put(None)
        process.start()
    try:
        for _ in jobs:
            result = results.get()
            if isinstance(result, str):
                raise RuntimeError(f"a judge failed:\n{result}")
            yield result
    finally:
        for process in judges:
            process.kill()
            process.join()


def _judge(queue: "Jobs", results: "Queue[Result | str]", device: str, judged_by: str) -> None:
    import torch

    torch.set_num_threads(1)
    try:
        chunk = queue.get()
        if chunk is None:
            return
        pool = Pool(chunk[0].entry.submission, device, chunk[0].seed, jobs=1)
        pool.has_exact_margins = True
        loop = GradingLoop(pool, chunk, queue, results, judged_by)
        status = run_pytest(checks.without_a_gpu(checks.declared()), loop, pool)
        if status != pytest.ExitCode.OK:
            results.put(f"pytest ended with {status!r}: {loop.problems}")
    except BaseException as error:
        results.put(f"{type(error).__name__}: {error}")
        raise


class GradingLoop(GraderProblems):
    """A pytest plugin that runs the collected checks on one submission after the other."""

    def __init__(
        self, pool: Pool, first: list[GradingJob], queue: "Jobs", results: "Queue[Result | str]", judged_by: str
    ) -> None:
        super().__init__()
        self._pool, self._first, self._queue, self._results = pool, first, queue, results
        self._judged_by = judged_by

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            items.setdefault(plugin.check_name(item), []).append(item)
        chunk: list[GradingJob] | None = self._first
        while chunk is not None:
            for job in chunk:
                self._results.put(self._run(job, items))
            chunk = self._queue.get()
        return True

    def _run(self, job: GradingJob, items: dict[str, list[pytest.Item]]) -> Result:
        start = time.monotonic()
        self._pool.replace(job.entry.submission, job.seed)
        here = {check.name: check for check in checks.without_a_gpu(checks.declared())}
        own = [check.name for check in here.values() if check.problem in job.entry.problems]
        names = [job.only] if job.only else [name for name in own if not job.without or job.without not in name]
        # A bug that is caught stays caught: its remaining cases would say nothing more.
        enough = CAUGHT if job.entry.kind == BUG else math.inf
        searching = Search()
        found = [_verdict(items[name], enough, searching) for name in names]
        results = score.results(CheckCases(here[name], of, len(of)) for name, (_, of) in zip(names, found, strict=True))
        told = zip(names, found, results, strict=True)
        verdicts = {name: replace(verdict, hints=[*of.hints]) for name, (verdict, _), of in told}
        seconds = round(time.monotonic() - start, 2)
        return Result(job.entry.name, job.seed, job.only, key(job, self._judged_by), seconds, verdicts)


def _verdict(items: list[pytest.Item], enough: float, searching: Search) -> tuple[Verdict, tuple[Case, ...]]:
    """Return the worst case of a check, and all that were run."""
    worst, notes, cases = Verdict(score.OK, 0.0), [], list[Case]()
    for item in items:
        came = run_case(item)
        cases.append(case := searching.look(plugin.check_name(item), came))
        verdict = verdict_of(case)
        notes += [note for note in verdict.notes if note not in notes]
        order = score.SEVERITY.index(verdict.status), -verdict.margin
        if order < (score.SEVERITY.index(worst.status), -worst.margin):
            worst = verdict
        is_clear = not came.wrong or len(case.hints or ()) == 1 or len(cases) > MOST_LOOKED_AT
        if worst.status not in score.KEEPS_POINTS and worst.margin >= enough and is_clear:
            break
    return replace(worst, notes=notes), tuple(cases)


def verdict_of(case: Case) -> Verdict:
    failed = case.status not in score.KEEPS_POINTS
    is_judged_by_value = case.margin is not None and not case.cheated
    margin = case.margin or 0.0 if is_judged_by_value or not failed else math.inf
    return Verdict(case.status, margin, case.name, case.message, [*case.notes])


def run_case(item: pytest.Item) -> Case:
    """Run one case; raises RuntimeError where the grader fails at it."""
    item.user_properties.clear()  # those of the submission before
    for report in runtestprotocol(item, log=False, nextitem=None):
        case = held_by(report)
        if case is not None:
            if case.staff and case.status == score.GRADER_ERROR:
                raise RuntimeError(f"{item.nodeid}: {case.staff[0]}")
            return case
    raise RuntimeError(f"{item.nodeid}: no status")
