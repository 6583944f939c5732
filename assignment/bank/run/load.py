"""Grade many submissions at once on few cores: each check's verdict must be what it is when one is graded alone.

    python -m assignment.bank load [NAME ...] [--at-once 4] [--cores 2] [--times 1] [--only CHECK ...] [--seed N]

Each submission is graded alone first, then all of them so many at a time, always on the same seed. A verdict is a
check's status and score. Without names: the reference, ten variants and ten bugs, from all over the corpus.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from assignment.bank.corpus import BUG, CHEAT, VARIANT, Entry, entries
from assignment.bank.run.grade import selected
from assignment.bank.run.signals import checks
from assignment.digest import ROOT
from assignment.judge import seeds
from assignment.system import here
from assignment.verdict.entries import Report

REFERENCE = "variants/reference"
OF_EACH = 10  # variants and bugs, where none are named
LONGEST_S = 1800.0  # of a grade
SAID = 300  # characters of what a grade that failed has said
NOBODY = "no verdict"
PROGRAM, GRADED = "grade.py", "exit status 0"  # how a grade ended, beside its checks


@dataclass(frozen=True)
class Grading:
    """What every grade of this run is asked for."""

    seed: int
    only: tuple[str, ...] = ()

    def verdicts(self, entry: Entry) -> dict[str, str]:
        """Return the status and score of each check, and how the grade ended, by one run of grade.py."""
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            entry.submission.stage(Path(folder, "submission"))
            report = Path(folder, "report.json")
            command = [sys.executable, str(ROOT / "grade.py"), f"{folder}/submission", "--device", "cpu"]
            command += ["--seed", str(self.seed), "--json", str(report)]
            env = os.environ | {"TMPDIR": folder, "XDG_CACHE_HOME": folder}  # nothing is compiled already
            try:
                done = subprocess.run(
                    [*command, *(["--only", *self.only] if self.only else [])],
                    cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return {PROGRAM: f"no end within {LONGEST_S:.0f} s"}
            if done.returncode or not report.exists():
                return {PROGRAM: f"exit status {done.returncode}: {done.stderr[-SAID:].strip()}"}
            return {PROGRAM: GRADED, **read(json.loads(report.read_text()))}


def read(report: Report) -> dict[str, str]:
    """Return the verdicts of a report: "FAIL, 0" by a check's name."""
    return {check["name"]: f"{check['status']}, {check['score']:g}" for check in checks(report)}


def differences(alone: dict[str, str], at_once: dict[str, str]) -> list[str]:
    """Return a line for each check whose verdict is another, and for a grade that came to none."""
    names = dict.fromkeys([*alone, *at_once])
    pairs = {name: (alone.get(name, NOBODY), at_once.get(name, NOBODY)) for name in names}
    wrong = [name for name, (one, other) in pairs.items() if one != other or (name == PROGRAM and one != GRADED)]
    return [f"{name}: alone {pairs[name][0]}; at once {pairs[name][1]}" for name in wrong]


def graded_entries(names: list[str], everything: Sequence[Entry]) -> list[Entry]:
    """Return the entries of these names, or the reference and some of each kind."""
    if names:
        return [entry for entry in everything if entry.kind != CHEAT and selected(entry, names)]
    chosen = [entry for entry in everything if entry.name == REFERENCE]
    for kind in (VARIANT, BUG):  # evenly from the first to the last
        own = [entry for entry in everything if entry.kind == kind and entry.name != REFERENCE]
        chosen += [own[i * (len(own) - 1) // (OF_EACH - 1)] for i in range(OF_EACH)]
    return chosen


def compare(some: list[Entry], grading: Grading, at_once: int, times: int) -> int:
    """Grade them alone and at once, with a line for each grade; returns how many verdicts differ."""
    alone = {}
    for entry in some:
        alone[entry.name] = grading.verdicts(entry)
        print(f"alone    {entry.name}: {len(alone[entry.name]) - 1} checks", flush=True)
    n_different = 0
    with ThreadPoolExecutor(at_once) as threads:
        again = [entry for _ in range(times) for entry in some]
        for entry, verdicts in zip(again, threads.map(grading.verdicts, again), strict=True):
            found = differences(alone[entry.name], verdicts)
            print(f"at once  {entry.name}: {'; '.join(found) or 'the same'}", flush=True)
            n_different += len(found)
    return n_different


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="as of python -m assignment.bank grade; cheats are left out")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="grades at one time (4)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="that all of them share (2)")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="grades of each submission at once (1)")
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK", help="as of grade.py")
    parser.add_argument("--seed", type=int, help="of all grades (default: a fresh one)")


def main(names: list[str], at_once: int, cores: int, times: int, only: list[str], seed: int | None) -> int:
    if not (some := graded_entries(names, entries())):
        print(f"nothing is called {' or '.join(names)}; see python -m assignment.bank grade --list", file=sys.stderr)
        return 2
    here.use_cores(cores)
    grading = Grading(seeds.new_seed() if seed is None else seed, tuple(only))
    has = here.cores()
    print(f"{len(some)} submissions, {at_once} at once on {has} cores, seed {grading.seed}", flush=True)
    n_different = compare(some, grading, at_once, times)
    print(f"{n_different} verdicts differ")
    return 1 if n_different else 0
