"""How long a student waits after a save: for the first words on a wrong kernel, for all, and for the likely cause.

python -m assignment.bank waiting [NAME ...] [--seeds 1]

Each bug is saved under `grade.py --next --watch`, whose processes are warm. Counted are seconds of the processor, of
all its processes. Without names: the mistakes of first drafts, which operators list as DRAFTS beside their bugs.
The search for a cause is taken by itself, too, for the check that must catch the bug.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from rich.console import Console

from assignment.bank import bugs
from assignment.bank.bugs import PlantedBug
from assignment.classroom import cpu
from assignment.commands import likely, run
from assignment.commands.collector import Judge
from assignment.digest import ROOT
from assignment.judge.pool import Pool
from assignment.plugin import parallel
from assignment.submission import Submission
from assignment.verdict import checks
from assignment.verdict.case import CheckCases

FIRST, WATCHING = "first to fail: ", "Watching: "
FIRST_MOST_S, ALL_MOST_S, CAUSE_MOST_S = 3.0, 10.0, 5.0  # medians, and nine of ten
NINE_OF_TEN = 0.9


@dataclass(frozen=True)
class Waited:
    """Seconds of the processor until the first words, until all is told, and of the search for the cause."""

    first_s: float
    all_s: float
    cause_s: float


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="parts of the names of bugs")
    parser.add_argument("--seeds", type=int, default=1, help="for each of them")


def main(names: Sequence[str], seeds: int) -> int:
    named = [one for one in bugs.all_bugs() if any(name in one.name for name in names)]
    chosen = named if names else bugs.first_drafts()
    parallel.compute_alone()
    waited = []
    for bug in chosen:
        for seed in range(seeds):
            waited.append(one := waited_for(bug, seed))
            print(f"{bug.name:<60}", *(f"{seconds:6.1f}" for seconds in astuple(one)), flush=True)
    if not waited:
        print("no bug has such a name", file=sys.stderr)
        return 2
    first, whole = (statistics.median(x) for x in zip(*((one.first_s, one.all_s) for one in waited), strict=True))
    in_time = sum(one.cause_s <= CAUSE_MOST_S for one in waited) / len(waited)
    print(
        f"first words after {first:.1f} s, all after {whole:.1f} s: at most {FIRST_MOST_S} and {ALL_MOST_S} (medians)",
        f"{in_time:.0%} of searches within {CAUSE_MOST_S} s: at least {NINE_OF_TEN:.0%}",
        sep="\n",
    )
    return 0 if first <= FIRST_MOST_S and whole <= ALL_MOST_S and in_time >= NINE_OF_TEN else 1


def waited_for(bug: PlantedBug, seed: int) -> Waited:
    return Waited(*after_save(bug, seed), searched(bug, seed)[1])


def after_save(bug: PlantedBug, seed: int) -> tuple[float, float]:
    """Return the seconds from a save to the first words, and to the last."""
    with tempfile.TemporaryDirectory(prefix="waiting-") as folder:
        files = bugs.submission(bug)
        for name, content in files.items():
            Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
            Path(folder, name).write_bytes(content)
        command = [sys.executable, "grade.py", folder, "--next", "--watch", "--device", "cpu", "--seed", str(seed)]
        process = subprocess.Popen(
            [*command, "--only", check_of(bug).name], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        try:
            until(process, WATCHING)  # whatever is loaded and compiled once
            before = cpu.tree_s(process.pid)
            name = next(iter(files))
            Path(folder, name).write_bytes(files[name] + b"\n")
            first = until(process, FIRST)
            return first - before, until(process, WATCHING) - before
        finally:
            process.terminate()
            process.communicate()


def until(process: "subprocess.Popen[str]", words: str) -> float:
    """Return the seconds that the processes have had when a line begins with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(words):
            return cpu.tree_s(process.pid)
    raise RuntimeError(f"grade.py has ended before it said {words!r}")


def searched(bug: PlantedBug, seed: int) -> tuple[list[CheckCases], float]:
    """Return what the search for the cause finds, and its seconds."""
    judged = gathered(bug, [check_of(bug)], seed)
    start = time.process_time()
    found = likely.explained(judged, 1, Console(file=io.StringIO()))
    return found, time.process_time() - start


def gathered(bug: PlantedBug, of: list[checks.Check], seed: int) -> list[CheckCases]:
    """Return what becomes of a bug's cases in some checks, without what may explain them."""
    judge = Judge(of, Console(file=io.StringIO()), "")
    pool = Pool(Submission(bugs.submission(bug)), "cpu", seed, jobs=1)
    try:
        run.run_pytest(of, judge, pool)
    finally:
        pool.close()
    return list(judge.gathered())


def check_of(bug: PlantedBug) -> checks.Check:
    """Return the check that must catch a bug."""
    own = [check for check in checks.declared() if check.problem == bug.problem]
    return next(check for check in own if check.name.endswith(bug.bug.caught_by))
