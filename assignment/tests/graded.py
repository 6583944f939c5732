"""Whole submissions, graded through `grade.py`: the reference, broken on purpose."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assignment.sandbox import rungs
from assignment.tests.forked import python

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "assignment" / "reference"
# its workers are forked from one process that has loaded PyTorch; tests/sandbox is about all rungs
RUNG = rungs.AUTO if rungs.problem(rungs.LANDLOCK, "cpu") else rungs.LANDLOCK
QUICK = () if RUNG == rungs.AUTO else ("--sandbox", RUNG)


@dataclass(frozen=True)
class Grade:
    status: int
    out: str
    err: str
    report: dict[str, Any] | None

    def check(self, name: str) -> dict[str, Any]:
        assert self.report, self.err
        problems = [*self.report["problems"], *self.report["practice"]]
        return next(c for problem in problems for c in problem["checks"] if c["name"] == name)

    def statuses(self) -> dict[str, str]:
        assert self.report, self.err
        return {c["name"]: c["status"] for problem in self.report["problems"] for c in problem["checks"]}

    def lost(self) -> set[str]:
        """The names of the checks that earned nothing."""
        assert self.report, self.err
        return {c["name"] for problem in self.report["problems"] for c in problem["checks"] if not c["score"]}


def grade(path: Path, *arguments: str, cwd: Path | None = None) -> Grade:
    file = (cwd or path.parent) / "report.json"
    rung = () if {"--inline", "--sandbox"} & {*arguments} else QUICK
    done = python(ROOT / "grade.py", path, "--json", file, *rung, *arguments, cwd=cwd)
    report = json.loads(file.read_text()) if file.exists() else None
    return Grade(done.returncode, done.stdout, done.stderr, report)


def append(submission: Path, file: str, code: str) -> None:
    path = submission / "cs336_kernels" / file
    path.write_text(path.read_text() + "\n\n" + code + "\n")


def heed_interrupts() -> None:
    """Let signals end this process again: a shell has what it runs in the background ignore them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
