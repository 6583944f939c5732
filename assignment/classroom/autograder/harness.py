"""Grades one submission in Gradescope's container: `python -m assignment.classroom.autograder.harness /autograder`.

It runs as root, the grader as the user `grader`, the submission in the grader's sandbox. What the container has in
processors and memory says how many processes judge. Without a grade there is no score in results.json, by which
Gradescope knows that the autograder has failed, and the exit status is 1.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assignment import text
from assignment.classroom.autograder import results
from assignment.commands.doctor.machine import GB, MEMORY_GB, MEMORY_OF_A_JOB_GB
from assignment.commands.files import replace
from assignment.submission import Submission, UnusableSubmission, uploaded
from assignment.system import here
from assignment.verdict.entries import Report

ROOT = Path(__file__).resolve().parents[3]
USER = "grader"
GRADED = 0
LIMITS = "HarnessSettings, Autograder, Container Specifications"


@dataclass(frozen=True)
class HarnessSettings:
    """What staff have chosen when they packed the autograder."""

    commit: str
    seed: int | None = None  # a fresh one for each run where there is none
    visibility: str = "visible"  # of tests, in Gradescope's words
    minutes: float = 38.0  # for one submission; Gradescope's own limit must be longer


class HarnessFailed(Exception):
    """There is no grade, and it is not the student's fault; the message is for staff."""


def processors() -> float:
    """Return how many processors the container may use, as its control group says."""
    found = float(here.cores())
    quota, _, period = text.of("/sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not period:
        quota, period = (text.of(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return min(found, int(quota) / int(period)) if quota.isdecimal() and period.isdecimal() else found


def jobs(cores: float, memory: int) -> int:
    """Return how many processes may judge on so many processors, in so many bytes; 0 if none fits."""
    fit = int((memory / GB - MEMORY_GB) / MEMORY_OF_A_JOB_GB)
    return max(0, min(math.ceil(cores), fit))


def grade(submission: Submission, settings: HarnessSettings, count: int, scratch: Path) -> Report:
    """Return the report of grade.py, which runs as a user of its own in a folder of its own. Raises HarnessFailed."""
    folder = scratch / "submission"  # graded from within, as students do: so run the commands that they are told
    submission.stage(folder)
    report = scratch / "report.json"
    command = [sys.executable, str(ROOT / "grade.py"), "--json", str(report), "--jobs", str(count)]
    command += ["--seed", str(settings.seed)] if settings.seed is not None else []
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{USER}:", scratch], check=True)
        command = ["runuser", "-u", USER, "--", *command]
    scratch.chmod(0o700)
    kept = ("PATH", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(scratch), "TMPDIR": str(scratch)}
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True) as process:
        try:
            status = process.wait(settings.minutes * 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
            raise HarnessFailed(f"no grade within {settings.minutes:g} minutes") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if status != GRADED:
        raise HarnessFailed(f"grade.py ended with exit status {status}")
    try:
        made: Report = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise HarnessFailed(f"the report cannot be read: {error}") from error
    return made


def run(autograder: Path) -> int:
    """Grade what lies in a folder like Gradescope's /autograder, and write its results; returns an exit status."""
    settings = HarnessSettings(**json.loads((autograder / "source" / "settings.json").read_text()))
    to = autograder / "results" / "results.json"
    to.parent.mkdir(exist_ok=True)
    to.parent.chmod(0o700)
    replace(to, results.as_json(results.failed()))  # until there is another one
    cores, memory = processors(), here.free_memory()
    print(f"{cores:g} processors, {memory / GB:.1f} GB of memory free; grader of commit {settings.commit}", flush=True)
    try:
        if not (count := jobs(cores, memory)):
            needed = MEMORY_GB + MEMORY_OF_A_JOB_GB
            free = f"{memory / GB:.1f} GB of memory are free, a grade takes {needed:.2f}"
            raise HarnessFailed(
                f"{free}, and Gradescope's default is too little: choose 4 CPU, 6 GB RAM under {LIMITS}"
            )
        submission = uploaded(autograder / "submission")
        with tempfile.TemporaryDirectory(prefix="gradescope-") as scratch:
            report = grade(submission, settings, count, Path(scratch))
    except UnusableSubmission as error:
        print(text.clean(str(error)))
        replace(to, results.as_json(results.unusable(str(error))))
        return 0
    except HarnessFailed as error:
        print(f"!! no grade: {error}", file=sys.stderr)
        replace(to, results.as_json(results.failed(str(error))))
        return 1
    machine = f"{cores:g} processors, {memory / GB:.1f} GB free"
    print(results.for_staff(report, settings.commit, machine), flush=True)  # stdout_visibility is hidden
    replace(to, results.as_json(results.of(report, settings.commit, settings.visibility)))
    return 0


def main() -> int:
    if len(sys.argv) != 2 or not re.fullmatch(r"/.+", sys.argv[1]):
        print("expected Gradescope's folder, such as /autograder", file=sys.stderr)
        return 2
    return run(Path(sys.argv[1]))


if __name__ == "__main__":
    raise SystemExit(main())
