"""Where verdicts of the simulator and of a GPU differ: `python -m assignment.bank devices --kept FILE --kept FILE`.

The files are those of `python -m assignment.bank grade NAME ... --kept FILE --device cpu` and of the same with cuda,
from whatever machines. Each difference is printed with what both say; without one the exit status is 0. With --write,
a section tells of submissions that are wrong by the language what a GPU gave: those that lose here and there, and those
that lose here alone.
"""

import argparse
import re
from pathlib import Path

from assignment.bank.corpus import entries
from assignment.bank.run import results_page
from assignment.bank.run.grade import SEEDS, BankGrade, jobs_of, read, selected
from assignment.bank.run.judging import GradingJob, Result, Verdict, digest, key
from assignment.verdict import score

DEVICES = ("cpu", "cuda")
SECTION = "Wrong here and seen wrong there"
Pair = tuple[str, Verdict, Verdict]  # of a check: its submission's and its own name, what is said here, and there


def main(names: list[str], kept: list[Path], seeds: int, first: int, quick: bool, write: Path | None) -> int:
    """Compare all results that both devices have; returns 1 where any differs."""
    by_device = [digest(device) for device in DEVICES]
    chosen = [entry for entry in entries() if selected(entry, names)]
    asked = BankGrade(names, seeds=seeds, first=first, quick=quick)
    jobs = [job for entry in chosen for job in jobs_of(entry, asked)]
    wanted = {key(job, judged_by) for job in jobs for judged_by in by_device}
    found = {name: result for file in kept for name, result in read(file, wanted).items()}
    pairs: list[Pair] = []
    for job in jobs:
        on_cpu, on_gpu = (found.get(key(job, judged_by)) for judged_by in by_device)
        if on_cpu and on_gpu:
            pairs += compared(job, on_cpu, on_gpu)
    differences = [pair for pair in pairs if is_right(pair[1]) != is_right(pair[2])]
    print(*(f"{name}:\n  cpu   {told(a)}\n  cuda  {told(b)}" for name, a, b in differences), sep="\n")
    print(f"{len(pairs)} checks judged by both, {len(differences)} of them differently")
    if write:
        command = " ".join(["python -m assignment.bank devices", *names])
        results_page.write(SECTION, command, section(pairs), write)
    return 1 if differences else 0


def compared(job: GradingJob, on_cpu: Result, on_gpu: Result) -> list[Pair]:
    """Return what both devices say of each check."""
    both = {name: (verdict, on_gpu.verdicts[name]) for name, verdict in on_cpu.verdicts.items()}
    return [(f"{job.entry.name}, seed {job.seed}, {name}", *verdicts) for name, verdicts in both.items()]


def is_right(verdict: Verdict) -> bool:
    return verdict.status in score.KEEPS_POINTS


def section(pairs: list[Pair]) -> str:
    """Return a table of the checks that fail here: how many were seen to fail on a GPU, and what it gave."""
    wrong = [pair for pair in pairs if not is_right(pair[1])]
    n_seen = sum(not is_right(there) for _, _, there in wrong)
    totals = f"Wrong here and seen wrong there: {n_seen}; wrong by the language, not seen: {len(wrong) - n_seen}."
    rows = [(name, told(here), told(there)) for name, here, there in wrong]
    return "\n".join([totals, "", *results_page.table("check | the simulator said | the GPU gave", rows)])


def told(verdict: Verdict) -> str:
    """Return the verdict in a line."""
    where = f" [{verdict.case}]" if verdict.case else ""
    said = re.sub(r" ?\(handout/[^)]*\)|; handout/\S*", "", " ".join(verdict.message.split())).replace("|", "\\|")[:200]
    return f"{verdict.status}, margin {verdict.margin:.3g}{where} {said}"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="as of python -m assignment.bank grade")
    parser.add_argument("--kept", type=Path, action="append", required=True, metavar="FILE", help="results of both")
    parser.add_argument("--seeds", type=int, default=max(SEEDS.values()), metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the first seed")
    parser.add_argument("--quick", action="store_true", help="as of python -m assignment.bank grade")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of what is wrong there, too")
