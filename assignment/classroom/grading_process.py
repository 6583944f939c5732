"""A process that grades one submission after the other: checks are collected once, and its workers stay warm.

`python -m assignment.classroom.grading_process` reads the class's settings and then a job a line from stdin, as JSON,
and writes a line for each job: the report that `grade.py --json` would write, and what it would print. What a
submission prints reaches neither.
"""

import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TextIO

import pytest

from assignment import plugin
from assignment.classroom import batch, cpu, memory
from assignment.classroom.kept import GraderAnswer, KeptReport
from assignment.classroom.results import ClassSettings
from assignment.commands import report, run
from assignment.commands.collector import GraderProblems, Judge
from assignment.commands.settings import Settings
from assignment.judge.pool import Pool
from assignment.pytest_private import runtestprotocol
from assignment.submission import PACKAGE, Submission
from assignment.verdict import checks, practice

COLUMNS = 100  # of a log


class Serve(GraderProblems):
    """A pytest plugin that runs the collected checks on the submissions that it is given."""

    def __init__(self, settings: Settings, selected: list[checks.Check], pool: Pool, out: TextIO) -> None:
        super().__init__()
        self._settings, self._selected, self._pool, self._out = settings, selected, pool, out
        self._spent_s = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._say({"ready": True})
        for line in sys.stdin:
            job = json.loads(line)
            files = {name: text.encode() for name, text in job["files"].items()}
            self._pool.shared.until = time.monotonic() + job["limit_s"]
            self._say(self._graded(Path(job["name"]), Submission(files), session.items))
        return True

    def _say(self, what: GraderAnswer | dict[str, bool]) -> None:
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()

    def _graded(self, name: Path, submission: Submission, items: Sequence[pytest.Item]) -> GraderAnswer:
        """Return the report on a submission, and what is printed of it."""
        start = time.monotonic()
        settings = replace(self._settings, path=name)
        self._pool.replace(submission, self._pool.seed)
        selected = practice.checks_to_grade(self._selected, submission, settings.only, settings.practice)
        log = io.StringIO()
        console = report.Screen(file=log, width=COLUMNS, highlight=False, soft_wrap=True)
        run.introduce(settings, self._pool, console)
        judge = Judge(selected, console, settings.command(self._pool.seed))
        wanted = {check.name for check in selected}
        chosen = [item for item in items if plugin.check_name(item) in wanted]
        judge.expect(chosen)
        n_judged = self._judge(judge, chosen)
        judge.pytest_unconfigure()
        data = run.reported(settings, settings.only, judge, self._pool, start, console)
        run.show(settings, data, self._pool, console)
        before, self._spent_s = self._spent_s, cpu.tree_s(os.getpid())
        cpu_s = round(self._spent_s - before, 1)  # the first one's with what loads for all
        told: KeptReport = {**data, "cpu_s": cpu_s}
        if n_judged < len(chosen):
            told["failed"] = f"ended by --limit: {n_judged} of {len(chosen)} cases were graded, and have their points"
        return {"report": told, "log": log.getvalue()}

    def _judge(self, judge: Judge, items: Sequence[pytest.Item]) -> int:
        """Have the judge hear of each case that ends in time; return how many these are."""
        for number, item in enumerate(items):
            item.user_properties.clear()  # those of the submission before
            reports = runtestprotocol(item, log=False, nextitem=None)
            if time.monotonic() > self._pool.shared.until:
                return number
            for told in reports:
                judge.pytest_runtest_logreport(told)
        return len(items)


def end_with_parent() -> None:
    """End this process when the one that has started it is gone, whatever it is at."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def leave() -> None:
    """Remove the folder for temporary files, which the process that has started this one made, if it is empty."""
    folder = Path(tempfile.gettempdir())
    if folder.name.startswith(batch.FOLDER):
        with suppress(OSError):
            folder.rmdir()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Have pytest stop, and the pool be closed."""
    raise KeyboardInterrupt


def main() -> int:
    """Grade what stdin says; returns an exit status."""
    import torch

    out = os.fdopen(os.dup(1), "w", encoding="utf-8")  # what others print goes to stderr
    os.dup2(2, 1)
    torch.set_num_threads(1)
    told = json.loads(sys.stdin.readline())
    settings = ClassSettings(**{**told, "only": tuple(told["only"])}).of_a_grade
    declared = checks.select(checks.declared(), settings.only) if settings.only else checks.declared()
    signal.signal(signal.SIGTERM, _interrupt)
    end_with_parent()
    pool = run.new_pool(settings, Submission({f"{PACKAGE}/__init__.py": b""}))
    try:
        memory.install(memory.RunMemory())
        selected = run.runnable(settings, declared, pool)
        serve = Serve(settings, selected, pool, out)
        status = run.run_pytest(selected, serve, pool)
    finally:
        pool.close()
        leave()
    if status != pytest.ExitCode.OK:
        print(f"pytest ended with {status!r}: {serve.problems}", file=sys.stderr)
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
