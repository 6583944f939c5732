"""How much processor time a grade takes here against another checkout: of all its processes, in turns.

python -m assignment.bank cpu_time OTHER [--submission FOLDER] [--only NAME ...] [--rounds 2]

Both checkouts grade their own reference with one seed: this one, the other, the other, this one. `--submission .` has
them grade their stubs. Each has a cache of its own, which a first grade that does not count fills. Processor time is
compared, since wall time tells more of what else runs; the ratio is of neighbours, so that what slows both falls out.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assignment.digest import ROOT
from assignment.system import here

Times = list[float]


@dataclass(frozen=True)
class Checkout:
    root: Path
    cache: Path

    def grade(self, arguments: list[str]) -> float:
        """Return the processor time of a grade, in seconds."""
        command = [sys.executable, "grade.py", "--device", "cpu", *arguments]
        return cpu_seconds(command, self.root, {"XDG_CACHE_HOME": str(self.cache)})


def cpu_seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Return what a command and all that comes from it have used, when the last of them has ended.

    The caller has adopted orphans, and has no other child.
    """
    before = used()
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, stdout=subprocess.DEVNULL)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return used() - before


def used() -> float:
    """Return the processor time of all children that have been waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def in_turns(ours: Checkout, other: Checkout, rounds: int, arguments: list[str]) -> tuple[Times, Times]:
    """Return the times of both, neighbours at one place."""
    times: dict[Checkout, Times] = {ours: [], other: []}
    for checkout in times:
        checkout.grade(arguments)
    for checkout in [ours, other, other, ours] * rounds:
        times[checkout].append(checkout.grade(arguments))
    return times[ours], times[other]


def described(ours: Times, others: Times) -> list[str]:
    ratios = [mine / theirs for mine, theirs in zip(ours, others, strict=True)]
    return [
        *(f"{name}  {spread(times, 1)} CPU-seconds" for name, times in (("here ", ours), ("other", others))),
        f"ratio  {spread(ratios, 3)}, of {len(ratios)} pairs",
    ]


def spread(values: Times, digits: int) -> str:
    middle, least, most = (f"{x:.{digits}f}" for x in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("other", type=Path, metavar="OTHER", help="the folder of the other checkout")
    parser.add_argument("--submission", default="assignment/reference", metavar="FOLDER", help="in each checkout")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="as of grade.py")
    parser.add_argument("--rounds", type=int, default=2, help="of four grades each")
    parser.add_argument("--seed", default="7")
    parser.add_argument("--caches", type=Path, metavar="FOLDER", help="keep both caches here, for another time")


def main(other: Path, submission: str, only: list[str] | None, rounds: int, seed: str, caches: Path | None) -> None:
    here.adopt_orphans()
    here.die_with_parent()
    given = [submission, "--seed", seed, *(["--only", *only] if only else [])]
    with tempfile.TemporaryDirectory() as folder:
        kept = (caches or Path(folder)).resolve()
        ours, theirs = Checkout(ROOT, kept / "here"), Checkout(other.resolve(), kept / "other")
        print("\n".join(described(*in_turns(ours, theirs, rounds, given))))
