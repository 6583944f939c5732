"""Where verdicts of the simulator and of a GPU differ: `python -m assignment.bank devices --kept FILE --kept FILE`.

The files are those of `python -m assignment.bank grade NAME ... --kept FILE --device cpu` and of the same with cuda,
from whatever machines. Each difference is printed with what both say; without one the exit status is 0.
"""

import argparse
from pathlib import Path

from assignment.bank.corpus import CHEAT, entries
from assignment.bank.run.grade import SEEDS, BankGrade, jobs_of, read, selected
from assignment.bank.run.judging import GradingJob, Result, Verdict, digest, key
from assignment.verdict import score

DEVICES = ("cpu", "cuda")


def main(names: list[str], kept: list[Path], seeds: int, first: int) -> int:
    """Compare all results that both devices have; returns 1 where any differs."""
    by_device = [digest(device) for device in DEVICES]
    chosen = [entry for entry in entries() if entry.kind != CHEAT and selected(entry, names)]
    jobs = [job for entry in chosen for job in jobs_of(entry, BankGrade(names, seeds=seeds, first=first))]
    wanted = {key(job, judged_by) for job in jobs for judged_by in by_device}
    found = {name: result for file in kept for name, result in read(file, wanted).items()}
    n_compared, differences = 0, []
    for job in jobs:
        on_cpu, on_gpu = (found.get(key(job, judged_by)) for judged_by in by_device)
        if on_cpu and on_gpu:
            n_compared += len(on_cpu.verdicts)
            differences += different(job, on_cpu, on_gpu)
    print(*differences, sep="\n")
    print(f"{n_compared} checks judged by both, {len(differences)} of them differently")
    return 1 if differences else 0


def different(job: GradingJob, on_cpu: Result, on_gpu: Result) -> list[str]:
    """Return the checks of which one device keeps the points and the other does not."""
    pairs = {name: (verdict, on_gpu.verdicts[name]) for name, verdict in on_cpu.verdicts.items()}
    return [
        f"{job.entry.name}, seed {job.seed}, {name}:\n  cpu   {told(a)}\n  cuda  {told(b)}"
        for name, (a, b) in pairs.items()
        if (a.status in score.KEEPS_POINTS) != (b.status in score.KEEPS_POINTS)
    ]


def told(verdict: Verdict) -> str:
    """Return the verdict in a line."""
    where = f" [{verdict.case}]" if verdict.case else ""
    said = " ".join(verdict.message.split())[:200]
    return f"{verdict.status}, margin {verdict.margin:.3g}{where} {said}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="as of python -m assignment.bank grade")
    parser.add_argument("--kept", type=Path, action="append", required=True, metavar="FILE", help="results of both")
    parser.add_argument("--seeds", type=int, default=max(SEEDS.values()), metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the first seed")
