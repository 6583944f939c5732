"""Grade the bugs, the right variants and the cheats; say what went wrong: `python -m assignment.bank grade [NAME ...]`.

Every bug must be caught by its check on every seed, and by no check of another problem; every variant must keep all
points; every cheat must get what the bank says, in time, and leave nothing behind. Without names and seeds this is the
full run, which writes its sections of results.md. It goes on where it was interrupted.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import triton

from assignment.bank.cheats import CONFINED, quick
from assignment.bank.corpus import BUG, CHEAT, VARIANT, Entry, entries, everything
from assignment.bank.run import cheats_page, matrix, results_page, whole_runs, yardstick
from assignment.bank.run.judging import GradingJob, Result, digest, judge_all, key
from assignment.bank.run.verdicts import VerdictRow, costs, judge
from assignment.commands.settings import DEVICES
from assignment.judge.pool import pick_device
from assignment.simulator.triton_private import HAS_BLOCK_POINTERS
from assignment.system import here
from assignment.verdict import checks

SEEDS = {"bug": 5, "variant": 10, "cheat": 1}
PRACTICE = "practice"
KEPT = Path(__file__).resolve().parents[3] / ".bank" / "results.jsonl"


@dataclass(frozen=True)
class BankGrade:
    """What is asked for: each field is the option of its name."""

    names: Sequence[str] = ()
    seeds: int | None = None
    first: int = 0
    device: str = "auto"
    jobs: int = here.cores()
    quick: bool = False
    without: str = ""
    checks: Sequence[str] = ()
    sandbox: Sequence[str] = ("",)
    write: Path | None = None
    list: bool = False
    kept: Sequence[Path] = (KEPT,)
    shard: str = "1/1"

    @property
    def is_yardstick(self) -> bool:
        return [*self.names] == [yardstick.NAME]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(main=lambda **options: main(BankGrade(**options)))
    parser.argument_default = argparse.SUPPRESS
    names = "parts of names, or patterns with *: bugs, rmsnorm, …; none with !; yardstick: single defects, all checks"
    parser.add_argument("names", nargs="*", help=f"{names}; practice: those whose points are in no sum")
    seeds = "for each entry (default: 5 for a bug, 10 for a variant, 1 for a cheat)"
    parser.add_argument("--seeds", type=int, metavar="N", help=seeds)
    parser.add_argument("--first", type=int, metavar="K", help="the first seed")
    parser.add_argument("--device", choices=DEVICES)
    parser.add_argument("--jobs", type=int, help="processes that judge")
    parser.add_argument("--quick", action="store_true", help="everything on one seed, bugs by one check, cheats by few")
    without = "with --quick: run variants without the checks of this name"
    parser.add_argument("--without", metavar="WORD", help=without)
    of_variants = "of variants: the checks with this in their name, on all seeds"
    parser.add_argument("--checks", action="append", metavar="WORD", help=of_variants)
    rung = "run cheats on this rung; given again, on that one too"
    parser.add_argument("--sandbox", action="append", metavar="NAME", help=rung)
    sections = "write the sections of what was run there (a full run: results.md)"
    parser.add_argument("--write", type=Path, metavar="FILE", help=sections)
    parser.add_argument("--list", action="store_true", help="a line for each entry, and stop")
    earlier = "earlier results; new ones go to the first FILE"
    parser.add_argument("--kept", type=Path, action="append", metavar="FILE", help=earlier)
    parser.add_argument("--shard", metavar="I/N", help="of N parts of the submissions the I-th")


def has_block_pointers(entry: Entry) -> bool:
    """Return whether a submission makes block pointers, which Triton 3.9 has no longer."""
    return any(b"tl.make_block_ptr" in content for content in entry.submission.files.values())


def main(asked: BankGrade) -> int:
    part, n_parts = map(int, asked.shard.split("/"))
    named = [entry for entry in entries() if selected(entry, asked.names)]
    if n_left_out := sum(selected(entry, asked.names) for entry in everything()) - len(named):
        print(f"not graded, for the course leaves their problems out: {n_left_out} submissions")
    if not named:
        print(f"nothing is called {' or '.join(asked.names)}; see --list", file=sys.stderr)
        return 2
    chosen = named[part - 1 :: n_parts]
    removed = [entry for entry in chosen if not HAS_BLOCK_POINTERS and has_block_pointers(entry)]
    if removed:
        names = ", ".join(entry.name for entry in removed)
        print(f"not graded, for Triton {triton.__version__} has no block pointers: {names}")
        chosen = [entry for entry in chosen if entry not in removed]
    if asked.is_yardstick:  # what it costs is counted in its own problem
        chosen = [replace(entry, problems=(entry.problem,)) for entry in chosen]
    if asked.list:
        print(*(f"{entry.name:<72}  {entry.expectation}" for entry in chosen), sep="\n")
        return 0
    if not chosen:  # more parts than submissions, or only some that this Triton can't run
        print(f"nothing to grade in part {asked.shard} of {len(named)} submissions")
        return 0
    rows = run(chosen, asked)
    declared = checks.without_a_gpu(checks.declared())
    _, graded = split(rows)
    findings = [*judge(rows, declared), *matrix.useless(graded, of_whole_problems(chosen, declared))]
    if new := matrix.not_in_page(graded):
        print(f"passed over for checks that catch nothing alone, since results.md has no row yet: {', '.join(new)}")
    print(matrix.summary(graded) if asked.quick else shown(rows, asked, declared))
    print(cheats_page.summary(rows, declared), *findings, sep="\n")
    write(rows, asked, declared)
    return 1 if findings else 0


def of_whole_problems(chosen: list[Entry], declared: list[checks.Check]) -> list[checks.Check]:
    """Return the checks of the problems whose planted bugs are all chosen."""
    partly = {entry.problem for entry in entries() if entry.kind == BUG and entry not in chosen}
    return [check for check in declared if check.problem not in partly]


def shown(rows: list[VerdictRow], asked: BankGrade, declared: list[checks.Check]) -> str:
    if asked.is_yardstick:
        return matrix.yardstick(costs(rows, declared))
    cheats, graded = split(rows)
    return "\n".join(its.render(own, declared) for its, own in ((matrix, graded), (cheats_page, cheats)) if own)


def split(rows: list[VerdictRow]) -> tuple[list[VerdictRow], list[VerdictRow]]:
    """Return the cheats and the others."""
    return [row for row in rows if row.entry.kind == CHEAT], [row for row in rows if row.entry.kind != CHEAT]


def write(rows: list[VerdictRow], asked: BankGrade, declared: list[checks.Check]) -> None:
    """Write the sections of results.md that were run in full; of all that was run, to the file that was asked for."""
    command = " ".join(["python -m assignment.bank grade", *asked.names])
    file = asked.write or results_page.PAGE
    if asked.is_yardstick:
        if asked.write or not asked.quick:
            results_page.write(matrix.YARDSTICK, command, matrix.yardstick(costs(rows, declared)), file)
        return
    is_full = not (asked.quick or asked.first or asked.seeds)
    cheats, graded = split(rows)
    for its, own in ((matrix, graded), (cheats_page, cheats)):
        if own and (asked.write or (is_full and len(own) == how_many(is_cheat=own is cheats))):
            results_page.write(its.TITLE, command, its.section(own, declared), file)


def how_many(is_cheat: bool) -> int:
    """Return how many cheats, or other submissions, can be graded with this Triton."""
    own = [entry for entry in entries() if (entry.kind == CHEAT) == is_cheat]
    return sum(HAS_BLOCK_POINTERS or not has_block_pointers(entry) for entry in own)


def selected(entry: Entry, names: Sequence[str]) -> bool:
    """Return whether an entry fits one of the names, and none of those that begin with "!"."""
    wanted, unwanted = [n for n in names if n[:1] != "!"], [n[1:] for n in names if n[:1] == "!"]
    return (not wanted or _fits(entry, wanted)) and not _fits(entry, unwanted)


def _fits(entry: Entry, names: Sequence[str]) -> bool:
    groups = {yardstick.NAME: entry.name in yardstick.DEFECTS, PRACTICE: _is_practice(entry)}
    return any(name in entry.name or fnmatch(entry.name, name) or groups.get(name, False) for name in names)


def _is_practice(entry: Entry) -> bool:
    problems = (entry.cheat.problem,) if entry.cheat else entry.problems
    return all(map(checks.is_practice, problems))


def run(chosen: list[Entry], asked: BankGrade) -> list[VerdictRow]:
    """Return all results of the chosen entries: kept ones, and those of the jobs that remain."""
    device = pick_device(asked.device)
    judged_by = digest(device)
    jobs = {key(job, judged_by): job for entry in chosen for job in jobs_of(entry, asked)}
    kept = {name: result for file in asked.kept for name, result in read(file, set(jobs)).items()}
    remaining = [job for name, job in jobs.items() if name not in kept]
    print(f"{len(jobs)} gradings of {len(chosen)} submissions on {device}, {len(kept)} of them kept", flush=True)
    asked.kept[0].parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with asked.kept[0].open("a", encoding="utf-8") as file:
        for done, result in enumerate(results_of(remaining, device, asked.jobs), start=1):
            kept[result.key] = result
            print(result.line(), file=file, flush=True)
            failed = f"{len(result.failed)} of {len(result.verdicts)} checks failed"
            position = f"[{done}/{len(remaining)}, {time.monotonic() - start:.0f} s]"
            print(f"{position} {result.name}, seed {result.seed}: {failed}, {result.seconds} s", flush=True)
    results = defaultdict(list)
    for name, job in jobs.items():
        results[job.entry.name].append(kept[name])
    return [VerdictRow(entry, tuple(results[entry.name])) for entry in chosen]


def results_of(jobs: list[GradingJob], device: str, processes: int) -> Iterator[Result]:
    """Yield those of cheats from runs of grade.py, the others from warm judges."""
    yield from judge_all([job for job in jobs if job.entry.kind != CHEAT], device, processes)
    yield from whole_runs.judge_all([job for job in jobs if job.entry.kind == CHEAT], device, processes)


def cheat_jobs(entry: Entry, asked: BankGrade) -> list[GradingJob]:
    """Return a job for each seed and rung; the rungs differ only in what the sandbox has a part in."""
    cheat = entry.cheat
    assert cheat is not None
    if asked.quick and cheat.slow:
        return []
    own = cheat.only or (quick(cheat.problem) if asked.quick else (cheat.problem,))
    rungs = asked.sandbox if cheat.group in CONFINED else asked.sandbox[:1]
    seeds = range(asked.first, asked.first + (1 if asked.quick else asked.seeds or SEEDS[CHEAT]))
    names = [*own, *(check.name for check in checks.declared() if check.name == cheat.bystander)]
    return [GradingJob(entry, seed, " ".join(names), sandbox=rung) for seed in seeds for rung in rungs]


def jobs_of(entry: Entry, asked: BankGrade) -> list[GradingJob]:
    """Return all checks, for bugs on the first seed; on the others the one that must catch it."""
    if entry.kind == CHEAT:
        return cheat_jobs(entry, asked)
    if asked.checks and entry.kind == VARIANT:
        own = [check.name for check in checks.declared() if check.problem in entry.problems]
        named = [name for name in own if any(word in name for word in asked.checks)]
        seeds = range(asked.first, asked.first + (asked.seeds or SEEDS[VARIANT]))
        return [GradingJob(entry, seed, only=name) for seed in seeds for name in named]
    if asked.quick:
        return [GradingJob(entry, asked.first, only=entry.caught_by, without=asked.without)]
    count = max(1, asked.seeds or (1 if asked.is_yardstick else SEEDS[entry.kind]))
    first, *others = range(asked.first, asked.first + count)
    return [GradingJob(entry, first), *(GradingJob(entry, seed, only=entry.caught_by) for seed in others)]


def read(file: Path, wanted: set[str]) -> dict[str, Result]:
    """Return the kept results that are still good."""
    if not file.exists():
        return {}
    results = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # a line that was cut short
            kept = json.loads(line)
            if kept["key"] in wanted:  # others may have another form
                results.append(Result.read(kept))
    return {result.key: result for result in results}
