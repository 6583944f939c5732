"""Kill or stop the processes of a grade at random moments: the report must come out complete and right all the same.

    python -m assignment.bank signals [--times 100] [--each 1] [--seed N]

The reference's weighted sum is graded in a process of its own, and processes of that grade get signals: a worker's
child, which runs the submission; a worker's first process, which forks such children; or a judging process.
Every check must then be as in an undisturbed run, or lost by a call that was hit; nothing may be left behind.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assignment.bank.run import processes
from assignment.bank.run.processes import Process, descendants
from assignment.digest import ROOT
from assignment.verdict import score
from assignment.verdict.entries import CheckEntry, Report

ONLY = "weighted_sum"
ROLES = ("child", "supervisor", "judge", "nursery")
LOST = (score.CRASHED, score.TIMEOUT)
LONGEST_S = 150.0  # a call of a stopped child is only found out at its deadline
SAME = ("name", "claim", "max_score", "cases")  # of every check; and of one that was not hit:
UNHIT = ("status", "score", "passed", "message", "margin", "notes")


def by_role(grade: int, own: list[Process]) -> dict[str, list[int]]:
    """Return which of a grade's processes do what."""
    roles: dict[str, list[int]] = {role: [] for role in ROLES}
    known: dict[int, tuple[str, int]] = {}  # the program and the parent of each
    for process in own:
        with suppress(*processes.GONE):
            known[process.pid] = processes.program(process), process.ppid()
            if not known[process.pid][0] and process.ppid() == grade and processes.ignores(process.pid, signal.SIGINT):
                roles["judge"].append(process.pid)  # not a copy of grade.py that is about to become a program
    for pid, (named, _) in known.items():
        if named:
            role = ("nursery", "supervisor", "child", "child")[(named == "worker.py") + _forks_above(pid, known)]
            roles[role].append(pid)
    return roles


def _forks_above(pid: int, known: dict[int, tuple[str, int]]) -> int:
    """Return how many processes above it run the same program."""
    named, parent = known[pid]
    return 1 + _forks_above(parent, known) if parent in known and known[parent][0] == named else 0


@dataclass(frozen=True)
class Strike:
    after_s: float
    role: str
    number: int  # of the signal

    def __str__(self) -> str:
        return f"{self.role} {signal.Signals(self.number).name}"


@dataclass(frozen=True)
class FaultOutcome:
    hits: list[str]  # "judge SIGKILL"; a grade may be over before the last one
    seconds: float
    lost: int  # checks
    faults: list[str]  # what must not be


def run(seed: int, strikes: Sequence[Strike] = ()) -> tuple[FaultOutcome, Report | None]:
    """Grade, and strike meanwhile; the report too."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "grade.py"), str(ROOT / "assignment/reference"), "--only", ONLY]
        command += ["--device", "cpu", "--seed", str(seed), "--jobs", "2", "--json", f"{folder}/report.json"]
        start = time.monotonic()
        hits: list[str] = []
        seen: list[Process] = []
        with open(f"{folder}/out", "w+") as out:  # noqa: PTH123
            grade = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"TMPDIR": folder})
            for strike in sorted(strikes, key=lambda strike: strike.after_s):
                time.sleep(max(0.0, start + strike.after_s - time.monotonic()))
                if own := struck(grade, strike):
                    hits.append(str(strike))
                    seen += own
            try:
                status = grade.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                grade.kill()
                return FaultOutcome(hits, LONGEST_S, 0, [f"no end within {LONGEST_S:.0f} s"]), None
        seconds = time.monotonic() - start
        faults = processes.left_behind(Path(folder), ("grade-",), seen)
        report = Path(folder) / "report.json"
        if status or not report.exists():
            said = Path(folder, "out").read_text()[-2000:]
            return FaultOutcome(hits, seconds, 0, [*faults, f"exit status {status}: {said}"]), None
        return FaultOutcome(hits, seconds, 0, faults), json.loads(report.read_text())


def struck(grade: subprocess.Popen, strike: Strike) -> list[Process]:
    """Signal a process of that role as soon as there is one; all processes that there were then, or none."""
    while grade.poll() is None:
        own = descendants(grade.pid)
        if processes.strike(by_role(grade.pid, own)[strike.role], strike.number):
            return own
        time.sleep(0.01)
    return []


def compared(outcome: FaultOutcome, report: Report | None, undisturbed: Report) -> FaultOutcome:
    """Return the outcome, with what is wrong about its report."""
    if not report:
        return outcome
    faults, lost = list(outcome.faults), 0
    for want, got in zip(checks(undisturbed), checks(report), strict=True):
        lost += got["status"] in LOST
        for key in (*SAME, *(UNHIT if got["status"] not in LOST else ())):
            if got.get(key) != want.get(key):
                faults.append(f"{want['name']}: {key} is {got.get(key)!r}, undisturbed {want.get(key)!r}")
        if got["status"] in LOST and got["score"]:
            faults.append(f"{want['name']}: points for {got['status']}")
    if report["score"] != round(sum(check["score"] for check in checks(report)), 6):
        faults.append("the score is not the sum of the checks'")
    return FaultOutcome(outcome.hits, outcome.seconds, lost, faults)


def checks(report: Report) -> list[CheckEntry]:
    return [check for problem in report["problems"] for check in problem["checks"]]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=int, default=100, help="how many signals are sent")
    parser.add_argument("--each", type=int, default=1, help="how many of them at most to one grade")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))


def main(times: int, each: int, seed: int) -> int:
    print(f"seed {seed}")
    rng = random.Random(seed)
    outcome, undisturbed = run(seed)
    if undisturbed is None:
        print("undisturbed:", *outcome.faults)
        return 1
    hits, usual_s = Counter[str](), outcome.seconds
    lost, faults, longest = Counter[int](), list(outcome.faults), 0.0
    while sum(hits.values()) < times and not (faults and len(faults) > 20):
        numbers = rng.choices([signal.SIGKILL, signal.SIGSTOP], [19, 1], k=each)
        strikes = [Strike(rng.uniform(0, usual_s), rng.choice(ROLES), number) for number in numbers]
        outcome = compared(*run(seed, strikes), undisturbed)
        hits.update(outcome.hits)
        lost[outcome.lost] += 1
        longest = max(longest, outcome.seconds)
        faults += outcome.faults
        names = ", ".join(outcome.hits)
        print(f"{sum(hits.values()):4} {names}: {outcome.seconds:.1f} s, {outcome.lost} checks lost", *outcome.faults)
    print(f"{dict(hits)}; checks lost a run: {dict(sorted(lost.items()))}")
    print(f"longest {longest:.0f} s; {len(faults)} faults")
    return bool(faults)
