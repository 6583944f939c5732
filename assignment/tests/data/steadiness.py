"""How steady verdicts on speed are: each timed check's race is run many times over in one grade. Needs a GPU.

    python assignment/tests/data/steadiness.py [RACES [FOLDER]]

Prints a row for each case: the ratio to its peer, the median and the lowest and highest of all races, and how far from
it a threshold may be that some race would have crossed.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]


def main(races: int, folder: str) -> int:
    sys.path.insert(0, str(ROOT))
    from assignment.commands import cli
    from assignment.timing import clock
    from assignment.verdict import checks

    race = clock.race

    def many(
        workload: clock.Workload, contestants: Sequence[clock.Contestant], memory: clock.BufferMemory, rounds: int
    ) -> clock.RaceTimes:
        raced = [race(workload, contestants, memory, rounds) for _ in range(races)]
        ratios = [one.ratios[contestants[-1].name][0] for one in raced]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        shape = f"{str(workload.largest.dtype).removeprefix('torch.')} {tuple(workload.largest.shape)}"
        reach = max(high / middle, middle / low) - 1
        row = f"| {workload.function} | {shape} | {contestants[-1].name} | {middle:.3f} | {low:.3f}–{high:.3f} |"
        print(f"{row} {reach:.1%} |", file=sys.stderr, flush=True)
        return raced[0]

    clock.race = many
    timed = [check.name for check in checks.declared() if check.is_timed]
    return cli.main([folder, "--device", "cuda", "--only", *timed])


if __name__ == "__main__":
    print(
        "| function | shape | peer | median | of all | a threshold is safe beyond |\n|---|---|---|---|---|---|",
        file=sys.stderr,
    )
    sys.exit(main(int((sys.argv[1:2] or ["20"])[0]), (sys.argv[2:3] or [str(ROOT / "assignment/reference")])[0]))
