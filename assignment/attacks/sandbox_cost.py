"""How much longer a grade takes in each sandbox than with limits alone: medians of interleaved runs.

python -m assignment.attacks.sandbox_cost [--rounds 5] [--only NAME]

The reference is graded in turn on every rung that works here, with one seed; nothing else should be running.
"""

import argparse
import statistics
import subprocess
import sys
import time

from assignment.attacks.judging import ROOT
from assignment.sandbox import rungs


def seconds(rung: str, seed: int, only: list[str]) -> float:
    command = [sys.executable, str(ROOT / "grade.py"), str(ROOT / "assignment/reference"), "--device", "cpu"]
    command += ["--sandbox", rung, "--seed", str(seed), *(["--only", *only] if only else [])]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m assignment.attacks.sandbox_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="as of grade.py")
    options = parser.parse_args()
    names = [rung for rung in reversed(rungs.RUNGS) if not rungs.problem(rung, "cpu")]
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            times[name].append(seconds(name, number, options.only))
    base = statistics.median(times[rungs.RLIMITS])
    for name, each in times.items():
        middle = statistics.median(each)
        print(f"{name:<12}{middle:6.1f} s  ({min(each):.1f} to {max(each):.1f})  {middle / base - 1:+.1%}")


if __name__ == "__main__":
    main()
