"""`grade SUBMISSIONS --to RESULTS`: a report for every submission that has none, and the tables of grades."""

import argparse
import datetime
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from assignment import text
from assignment.classroom import batch, cluster, decisions, grades, layouts, names, results, roster, scratch, tables
from assignment.classroom.batch import Job
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import KeptReport
from assignment.sandbox import rungs
from assignment.scoring import checks
from assignment.submission import UnusableSubmission

GRADED, INCOMPLETE = 0, 1
ZONED, UTC = "2026-11-30T23:59+01:00", "2026-11-30T22:59Z"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    grade = commands.add_parser("grade", help="grade every submission of a folder; again: only what is missing")
    grade.set_defaults(run=run)
    grade.add_argument("submissions", type=Path, help="Gradescope's export, Canvas's download, or a folder of folders")
    grade.add_argument("--to", type=Path, required=True, metavar="RESULTS", help="the folder of reports")
    grade.add_argument("--again", nargs="+", default=[], metavar="NAME", help="grade these students anew")
    grade.add_argument("--only", nargs="+", default=[], metavar="NAME", help="problems: see grade.py --list")
    grade.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where kernels run")
    grade.add_argument("--sandbox", choices=(rungs.AUTO, *rungs.RUNGS), default=rungs.AUTO, help="default: the best")
    ray = "on a Ray cluster; local: of this machine, for the run"
    grade.add_argument("--ray", nargs="?", const="auto", metavar="ADDRESS", help=ray)
    grade.add_argument("--jobs", type=int, help="submissions at once (default: as cores and memory allow)")
    grade.add_argument("--limit", type=float, default=batch.LIMIT_S, metavar="S", help="seconds for one submission")
    grade.add_argument("--tag", default="", help="of git repositories: read this tag")
    grade.add_argument("--before", type=_time, metavar="TIME", help="of git repositories: the last commit before")
    grade.add_argument("--due", type=_time, metavar="TIME", help=f"count late days from here, such as {ZONED}")
    grade.add_argument("--roster", type=Path, metavar="FILE", help="Canvas's gradebook or Gradescope's roster, as CSV")
    grade.add_argument("--strict", action="store_true", help="end where it is in doubt who has handed in what")
    grade.add_argument("--pick", choices=grades.PICKED, default="best", help="which of several submissions counts")
    grade.add_argument("--assignment", type=_heading, default="CS336 kernels", help="its column in Canvas's form")


def _time(said: str) -> datetime.datetime:
    try:
        when = datetime.datetime.fromisoformat(said)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time such as {ZONED}, got {said!r}") from None
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{said!r} names no zone; expected a time such as {ZONED} or {UTC}")
    return when


def _heading(said: str) -> str:
    if grades.plain(said) != said:
        raise argparse.ArgumentTypeError(f"{said!r} is a formula in a spreadsheet; expected a name without = + - @")
    return said


def run(options: argparse.Namespace, console: Console) -> int:
    """Grade what has no report yet, and write the tables; returns the exit status."""
    try:
        checks.select(checks.declared(), options.only)
    except ValueError as error:
        raise UnusableSubmission(f"--only {error}: no such problem or check; see grade.py --list") from None
    scratch.sweep(batch.FOLDER)
    handed = _handed_in(options, console)
    unknown = sorted(set(options.again) - {one.student for one in handed})
    if unknown:
        raise UnusableSubmission(f"--again {unknown[0]}: nobody of that name has handed in anything")
    settings = results.opened(options.to, options.device, options.sandbox, tuple(options.only))
    decisions.read(options.to)  # what is wrong with them is said before anything is graded
    kept = results.Results(options.to, settings)
    jobs, unreadable = _jobs(handed, kept, set(options.again))
    for one, why in unreadable:
        kept.keep(one, "", results.failed(why), why)
    done = len(handed) - len(jobs) - len(unreadable)
    console.print(f"{len(handed)} submissions: {done} have a report, {len(unreadable)} cannot be read")
    waiting = {job.handed.name for job in jobs}
    try:
        _grade(jobs, waiting, kept, options, console)
    finally:
        written = _write_tables(handed, waiting, kept, options)
        _tell(handed, written, kept, console)
    return INCOMPLETE if _without_grade(handed, kept) else GRADED


def _handed_in(options: argparse.Namespace, console: Console) -> list[Handed]:
    """Return the class's submissions, and tell what is in doubt; with --strict raises UnusableSubmission over it."""
    handed = layouts.found(options.submissions, options.tag, options.before, options.due)
    doubts = layouts.doubts(options.submissions, handed, options.tag, options.before, options.due)
    if options.roster:
        handed, more = roster.filled(handed, roster.read(options.roster))
        doubts += more
    for doubt in doubts:
        console.print(Text(f"  {text.line(doubt)}", "yellow"))
    if doubts and options.strict:
        raise UnusableSubmission(f"--strict: {len(doubts)} doubts, told above; nothing was graded")
    return handed


def _without_grade(handed: list[Handed], kept: results.Results) -> list[str]:
    return [one.name for one in handed if "failed" in (kept.of(one) or {"failed": ""})]


def _tell(handed: list[Handed], written: tables.Written, kept: results.Results, console: Console) -> None:
    """Say what is missing, last of all where the grades are."""
    missing = [name for name in _without_grade(handed, kept) if name not in written.waiting]
    told = {one.name: kept.of(one) for one in handed}
    in_part = [name for name in missing if (report := told[name]) and report.get("score") is not None]
    if none := sorted({*missing} - {*in_part}):
        console.print(Text(f"{len(none)} got no grade: {names.some(none)}; their cells are empty", "bold red"))
    if in_part:
        said = f"{len(in_part)} ended by --limit, with the points of what was graded until then"
        console.print(Text(f"{said}: {names.some(in_part)}; decide on them in `review`", "bold red"))
    if written.left_out:
        why = "neither name nor e-mail, or a number, address or login that a spreadsheet takes for a formula"
        said = f"{len(written.left_out)} have {why}, and are in no file for import"
        console.print(Text(f"{said}: {names.some(written.left_out)}; --roster FILE gives them", "yellow"))
    if written.waiting:
        said = f"{len(written.waiting)} of {len(handed)} submissions are not graded yet"
        console.print(Text(f"{said}: {written.grades} is not complete; give the same command again", "bold red"))
    else:
        console.print(f"{written.grades} has the grades")


def _jobs(handed: list[Handed], kept: results.Results, again: set[str]) -> tuple[list[Job], list[tuple[Handed, str]]]:
    """Return what has to be graded, and what cannot be read, with the reason."""
    jobs, unreadable = [], []
    for one in handed:
        try:
            submission = one.read()
        except (UnusableSubmission, OSError) as error:
            unreadable.append((one, text.clean(str(error))))
            continue
        key = results.key(submission, kept.settings)
        if one.student in again or not kept.is_done(one, key):
            jobs.append(Job(one, submission, key))
    return jobs, unreadable


def _grade(
    jobs: list[Job], waiting: set[str], kept: results.Results, options: argparse.Namespace, console: Console
) -> None:
    """Grade, keep what comes, and take its name from those that wait."""
    columns = (TextColumn("  grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(jobs))
        for job, answer in _answers(jobs, kept.settings, options, console):
            progress.advance(task)
            if isinstance(answer, Exception):
                why = text.clean(f"{type(answer).__name__}: {answer}")
                kept.keep(job.handed, "", results.failed(why), why, job.submission)
                console.print(Text(f"  {job.handed.name}: no grade: {why.splitlines()[0]}", "bold red"))
            else:
                is_whole = "failed" not in answer["report"]
                kept.keep(job.handed, job.key if is_whole else "", answer["report"], answer["log"], job.submission)
                console.print(Text(_line(job.handed, answer["report"]), "" if is_whole else "bold red"))
            waiting.discard(job.handed.name)


def _answers(
    jobs: list[Job], settings: results.ClassSettings, options: argparse.Namespace, console: Console
) -> Iterator[tuple[Job, batch.Answer]]:
    """Yield each job with its answer as it comes, from this machine or from a cluster."""
    if options.ray is None or not jobs:
        yield from batch.grade_all(jobs, settings, batch.at_once(options.jobs), options.limit)
        return

    def tell(line: str) -> None:
        console.print(Text(f"  {line}", "yellow"))

    with cluster.connected(options.ray):
        needs = cluster.needed(options.device)
        nodes, at_once = cluster.room(needs)
        if not at_once:
            tell(f"no node has room for a grade yet ({needs}); waiting for one")
        console.print(f"Ray: {nodes} nodes, {at_once} submissions at once")
        yield from cluster.grade_all(jobs, settings, needs, options.limit, tell)


def _line(handed: Handed, report: KeptReport) -> str:
    state = grades.state(report)
    said = f"  {handed.name}: {report['score']:g} of {report['gradable']:g} in {report['seconds']:.0f} s"
    return f"{said}, {state}" if state else said


def _write_tables(
    handed: list[Handed], waiting: set[str], kept: results.Results, options: argparse.Namespace
) -> tables.Written:
    form = tables.Form(tuple(handed), options.pick, options.due, options.assignment, tuple(sorted(waiting)))
    return tables.write(kept.folder, form)
