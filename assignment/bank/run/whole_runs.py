"""Grade hostile submissions by grade.py itself, a process for each, and look at what a run leaves behind."""

import functools
import json
import multiprocessing
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import AnyStr

from psutil import Process

from assignment import failure
from assignment.bank.cheats import Cheat
from assignment.bank.run.judging import GradingJob, Result, Verdict, digest, key
from assignment.bank.run.processes import GONE
from assignment.commands.report import total
from assignment.confined import supervisor
from assignment.digest import ROOT
from assignment.system import here
from assignment.verdict import checks, reporting
from assignment.verdict.entries import Report

MAX_REPORT = 1 << 20  # bytes, of what is printed and of the JSON
GRACE_S = 2.0  # for killed processes to go
SHARED_FOLDERS = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm")))  # where anyone may write


def judge_all(jobs: list[GradingJob], device: str, processes: int) -> Iterator[Result]:
    """Yield the results of the jobs, as they come."""
    grade_one = functools.partial(grade_number, device=device, judged_by=digest(device))
    with multiprocessing.get_context("fork").Pool(processes, become_grader, (jobs,)) as pool:
        yield from pool.imap_unordered(grade_one, range(len(jobs)))


_jobs: list[GradingJob] = []  # of a grading process; forked with it, for not all of them can be pickled


def become_grader(jobs: list[GradingJob]) -> None:
    _jobs.extend(jobs)
    here.adopt_orphans()  # a daemon cannot leave
    here.die_with_parent()


def grade_number(number: int, device: str, judged_by: str) -> Result:
    return grade(_jobs[number], device, judged_by)


def grade(job: GradingJob, device: str, judged_by: str) -> Result:
    """Run grade.py once; what is wrong with the run, whatever the score, is in the result's trouble."""
    cheat = job.entry.cheat
    assert cheat is not None
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cheat-", ignore_cleanup_errors=True) as folder, Bait(Path(folder)) as bait:
        status = bait.grade(bait.lay_out(cheat, job.entry.submission.files), job, device)
        seconds = round(time.monotonic() - start, 2)
        trouble = [f"did not end within {cheat.within_s:.0f} s"] if status is None else []
        trouble += [*leftovers(), *bait.taken()]
        report, wrong = read_report(bait.root, job) if status in (0, failure.BROKEN) else (None, [])
        trouble += wrong
        verdicts = {
            check["name"]: Verdict(
                check["status"], check.get("margin", 0.0), "", check["message"], ran=check.get("ran", True)
            )
            for check in (reporting.entries_of(report) if report else ())
        }
        said = (bait.root / "stderr").read_text(errors="replace")[-500:]
    rung = job.sandbox or (report["sandbox"] if report else "")
    identity = job.entry.name, job.seed, job.only, key(job, judged_by)
    return Result(*identity, seconds, verdicts, status=status, said=said, trouble=trouble, rung=rung)


@dataclass
class Bait:
    """The folder of a run, with what a submission must not find, and sockets that it must not reach."""

    root: Path

    def __enter__(self) -> "Bait":
        self.token = secrets.token_hex(8)
        self._sockets = [socket.socket(), socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)]
        self._sockets[0].bind(("127.0.0.1", 0))
        self._port = self._sockets[0].getsockname()[1]
        with suppress(OSError):
            self._sockets[1].bind(("127.0.0.1", self._port))
        self._sockets[2].bind(f"\0cheat-{self.token}")
        for ours in self._sockets:
            ours.setblocking(False)
            if ours.type == socket.SOCK_STREAM:
                ours.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for ours in self._sockets:
            ours.close()

    def lay_out(self, cheat: Cheat, files: dict[str, bytes]) -> Path:
        """Write the submission and the bait; returns what is to be graded."""
        known = {"@TOKEN@": self.token, "@PORT@": str(self._port), "@HOME@": str(self.root / "home")}
        filled = {filled_in(name, known): filled_in(content, known) for name, content in files.items()}
        for name, content in filled.items():
            path = self.root / "submission" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._neighbour = self.root / "tmp" / "grade-neighbour" / "submission" / "cs336_kernels"
        self._neighbour.mkdir(parents=True)
        (self.root / "home").mkdir()
        for path in (self._neighbour / "rmsnorm.py", self.root / "home" / "secret"):
            path.write_text(self.token)
        if cheat.archive:
            return cheat.archive(self.root, filled, self.token)
        return self.root / "submission"

    def grade(self, path: Path, job: GradingJob, device: str) -> int | None:
        """Return the exit status of grade.py, None if it had to be stopped."""
        assert job.entry.cheat is not None
        command = [sys.executable, str(ROOT / "grade.py"), str(path), "--seed", str(job.seed), "--device", device]
        command += ["--json", str(self.root / "report.json"), "--junit", str(self.root / "report.xml"), "--jobs", "1"]
        command += ["--sandbox", job.sandbox] if job.sandbox else []
        env = {**os.environ, "HOME": f"{self.root}/home", "TMPDIR": f"{self.root}/tmp", "GRADER_SECRET": self.token}
        env["XDG_CACHE_HOME"] = f"{self.root}/kept"  # of the grader itself
        with (self.root / "stdout").open("wb") as out, (self.root / "stderr").open("wb") as err:
            process = subprocess.Popen(
                [*command, "--only", *job.only.split()],
                cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            try:
                return process.wait(job.entry.cheat.within_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                return None

    def taken(self) -> list[str]:
        """Return what the run reached, changed or left."""
        kinds = ("TCP", "UDP", "abstract socket")
        found = [f"reached by {kind}" for kind, ours in zip(kinds, self._sockets, strict=True) if was_reached(ours)]
        places = [path for folder in (*SHARED_FOLDERS, ROOT) for path in folder.glob(f"*{self.token}*")]
        places += (ROOT / "assignment").rglob(f"*{self.token}*")
        for path in places:
            path.unlink(missing_ok=True)
        kept = {self.root / "home" / "secret", self._neighbour / "rmsnorm.py"}
        for folder in ("home", "tmp"):
            places += [path for path in (self.root / folder).rglob("*") if not path.is_dir() and path not in kept]
        return found + [f"left {path}" for path in places[:3]]


def filled_in(text: AnyStr, known: dict[str, str]) -> AnyStr:
    for placeholder, value in known.items():
        if isinstance(text, str):
            text = text.replace(placeholder, value)
        else:
            text = text.replace(placeholder.encode(), value.encode())
    return text


def was_reached(ours: socket.socket) -> bool:
    with suppress(OSError):
        if ours.type == socket.SOCK_STREAM:
            ours.accept()[0].close()
        else:
            ours.recv(1)
        return True
    return False


def leftovers() -> list[str]:
    """Return what this process still has as descendants; they are ended."""
    deadline = time.monotonic() + GRACE_S
    # also those that have ended: one may have left a child between our look at it and at its state
    while (found := supervisor.descendants()) and time.monotonic() < deadline:
        supervisor.reap()
        time.sleep(0.05)
    names = []
    for pid in found:
        with suppress(*GONE):
            names.append(" ".join(Process(pid).cmdline())[:80])
    supervisor.end_descendants()
    return [f"{len(names)} processes left: {', '.join(names[:3])}"] if names else []


def read_report(root: Path, job: GradingJob) -> tuple[Report | None, list[str]]:
    """Return the JSON report, and what is wrong with it, with JUnit's or with what was printed."""
    printed = (root / "stdout").read_text(encoding="utf-8", errors="replace")
    text = (root / "report.json").read_text(encoding="utf-8")
    if max(len(printed), len(text)) > MAX_REPORT:
        return None, [f"a report of {len(text)} bytes, printed in {len(printed)}"]
    try:
        report: Report = json.loads(text, parse_constant=_not_json)
        ElementTree.parse(root / "report.xml")
    except (ValueError, ElementTree.ParseError) as error:
        return None, [f"a report that cannot be read: {error}"]
    entries = [check for problem in report["problems"] for check in problem["checks"]]
    selected = checks.select(checks.declared(), job.only.split())
    complete = {check.name for check in selected} <= {check["name"] for check in reporting.entries_of(report)}
    honest = report["score"] == sum(check["score"] for check in entries)
    scores = [line for line in printed.splitlines() if line.startswith("Score:")]
    wrong = [] if complete else ["a report that lacks checks"]
    wrong += [] if honest else ["a score that is not the sum of its checks"]
    wrong += [] if scores == printed.splitlines()[-1:] == [total(report)] else [f"printed {scores}"]
    texts = {"printed": printed, "reported": "".join(check["message"] for check in reporting.entries_of(report))}
    return report, wrong + [f"{how} {found}" for how, text in texts.items() if (found := unprintable(text))]


def _not_json(constant: str) -> None:
    raise ValueError(constant)


def unprintable(text: str) -> str:
    """Return the first characters that a terminal would obey, or ""."""
    return ", ".join(sorted({repr(char) for char in text if not char.isprintable() and char != "\n"})[:5])
