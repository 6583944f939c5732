"""Kill the processes of a class's grading at random moments; nothing may be lost or different.

    python -m assignment.bank kills --to FOLDER [--times 100] [--students 20] [--ray NODES] [--seed N]

A made class is graded undisturbed, and again and again while its driver, the command itself, and its graders are
killed, and on a cluster its nodes. The same command then goes on with what is missing. Once all is graded, every file
must be that of the undisturbed run but for times, and neither a process nor a temporary folder of any run may be left.
The next round begins anew.
"""

import argparse
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from psutil import Process

from assignment.bank.run import made
from assignment.bank.run.processes import GONE, left_behind, running, strike
from assignment.bank.run.raylets import Raylets, raylets
from assignment.classroom import batch, results
from assignment.digest import ROOT
from assignment.system import here
from assignment.verdict import checks

ONLY = checks.without_practice(checks.declared())[0].problem
DRIVER, GRADER, NODE = "driver", "grader", "node"
WORKER = "assignment.classroom.grading_process"
COMPLETE = (0, 1)  # exit statuses: some submissions get no grade in any run
LONGEST_S = 1800.0  # for one run
TIMES = re.compile(r'"(seconds|cpu_s|graded)": [^,\n]*|\b\d+(\.\d+)? s\b')


@dataclass(frozen=True)
class KilledClass:
    """A class, where its results go, and the temporary folder of its runs."""

    submissions: Path
    folder: Path
    jobs: int
    nodes: Raylets | None = None  # of the cluster that grades it

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def start(self, to: Path) -> "subprocess.Popen[bytes]":
        """Begin to grade, or go on."""
        command = [sys.executable, "-m", "assignment.classroom", "grade", str(self.submissions), "--to", str(to)]
        command += ["--only", ONLY, "--device", "cpu", "--jobs", str(self.jobs)]
        command += ["--ray", self.nodes.address] if self.nodes else []
        self.temporary.mkdir(exist_ok=True)
        with (self.folder / "said.txt").open("ab") as said:
            env = os.environ | {"TMPDIR": str(self.temporary)}
            return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, env=env, start_new_session=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument("--times", type=int, default=100, help="default: 100")
    parser.add_argument("--students", type=int, default=20, help="default: 20")
    parser.add_argument("--every", type=float, default=10.0, metavar="S", help="the most between two (default: 10)")
    parser.add_argument("--jobs", type=int, default=2, help="default: 2")
    parser.add_argument("--ray", type=int, default=0, metavar="NODES", help="grade on a cluster, and kill nodes too")
    parser.add_argument("--seed", type=int, help="of the class and the moments (default: a fresh one)")


def main(to: Path, times: int, students: int, every: float, jobs: int, ray: int, seed: int | None) -> int:
    """Kill so many times; returns 0 where nothing was lost, left or different."""
    seed = secrets.randbits(32) if seed is None else seed
    rng = random.Random(seed)
    to.mkdir(parents=True)
    drawn = [one for one in made.drawn(4 * students, rng) if one.kind != made.CHEAT]
    made.write(rng.sample(drawn, students), to / "class", rng)
    print(f"seed {seed}: {students} submissions, --only {ONLY}")
    with raylets(ray) if ray else nullcontext() as nodes:
        return run(KilledClass(to / "class" / "submissions", to, jobs, nodes), rng, times, every)


def run(one: KilledClass, rng: random.Random, times: int, every: float) -> int:
    """Grade a class undisturbed, and then with kills until there were enough; returns the exit status."""
    start = time.monotonic()
    status = one.start(one.folder / "undisturbed").wait(LONGEST_S)
    print(f"undisturbed: exit status {status}, {time.monotonic() - start:.0f} s")
    wanted, hits = files(one.folder / "undisturbed"), Counter[str]()
    faults = [] if status in COMPLETE else [f"undisturbed: exit status {status}"]
    rounds = 0
    while sum(hits.values()) < times and not faults:
        rounds += 1
        to = anew(one.folder)
        ended: int | None = None
        while ended is None:
            ended = disturbed(one, to, rng, every, times - sum(hits.values()), hits)
        ended = one.start(to).wait(LONGEST_S)  # for who lost two graders in the last run, and has no grade of it
        faults += [f"exit status {ended}"] if ended not in COMPLETE else differing(wanted, files(to))
        faults += left_behind(one.temporary, ("grade-", batch.FOLDER))
        print(f"round {rounds}: {sum(hits.values())} kills so far, {len(faults)} faults", *faults, flush=True)
    counts = ", ".join(f"{count} of a {role}" for role, count in sorted(hits.items()))
    print(f"{sum(hits.values())} kills ({counts}) in {rounds} rounds: {len(faults)} faults")
    return int(bool(faults))


def anew(folder: Path) -> Path:
    """Return a folder of results that holds the seed of the undisturbed run and nothing else."""
    to = folder / "disturbed"
    shutil.rmtree(to, ignore_errors=True)
    for name in ("reports", "logs"):
        (to / name).mkdir(parents=True)
    shutil.copy(folder / "undisturbed" / results.SETTINGS, to)
    return to


def disturbed(
    one: KilledClass, to: Path, rng: random.Random, every_s: float, most: int, hits: Counter[str]
) -> int | None:
    """Grade, and kill meanwhile; returns the exit status, None where the driver was killed."""
    process = one.start(to)
    until = time.monotonic() + LONGEST_S
    while most > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(rng.uniform(0.0, every_s))
        role = rng.choice((DRIVER, GRADER, *([NODE] if one.nodes else [])))
        if role == DRIVER:
            process.kill()
            process.wait()
            hits[role] += 1
            return None
        if _struck(role, one, process.pid, rng):
            hits[role] += 1
            most -= 1
    return process.wait(max(0.0, until - time.monotonic()))


def _struck(role: str, one: KilledClass, driver: int, rng: random.Random) -> bool:
    """Kill a node, or a process that grades; returns whether there was one."""
    if role == NODE and one.nodes:
        one.nodes.kill(rng.choice(one.nodes.nodes))
        one.nodes.add()
        return True
    return strike(graders_of(driver, one.nodes), signal.SIGKILL)


def graders_of(driver: int, nodes: Raylets | None) -> list[int]:
    """Return the processes that grade: the driver's own, or Ray's workers on the nodes."""
    parents = nodes.pids if nodes else [driver]
    what, found = "ray::graded" if nodes else WORKER, []
    for pid in (child for parent in parents for child in here.children_of(parent)):
        with suppress(*GONE):
            found += [one.pid for one in running([Process(pid)]) if what in " ".join(one.cmdline())]
    return found


def files(folder: Path) -> dict[str, str]:
    """Return what a folder of results holds, without times."""
    return {
        path.relative_to(folder).as_posix(): TIMES.sub("…", path.read_bytes().decode(errors="replace"))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differing(wanted: dict[str, str], got: dict[str, str]) -> list[str]:
    """Return the files that are missing, too many or different, with the first line that is."""
    found = [f"{name}: missing" for name in wanted.keys() - got.keys()]
    found += [f"{name}: too many" for name in got.keys() - wanted.keys()]
    for name in sorted(wanted.keys() & got.keys()):
        pairs = zip(wanted[name].splitlines(), got[name].splitlines(), strict=False)
        if wanted[name] != got[name]:
            line = next((f"{want!r}, got {have!r}" for want, have in pairs if want != have), "its length")
            found.append(f"{name}: {line}")
    return found
