"""`grade SUBMISSIONS --to RESULTS`: a report for every submission that has none, and the tables of grades.

Each step reads what the one before it has found: who has handed in what (layouts.py, roster.py), what of it is to be
graded, the graders' answers (batch.py, cluster.py), what is kept of them (results.py), and the tables (tables.py).
"""

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from assignment import text
from assignment.classroom import (
    batch,
    cluster,
    decisions,
    grades,
    layouts,
    names,
    results,
    roster,
    scratch,
    staff_dates,
    tables,
)
from assignment.classroom.batch import Job
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import KeptReport
from assignment.course import course
from assignment.submission import UnusableSubmission
from assignment.verdict import checks

GRADED, INCOMPLETE = 0, 1


@dataclass(frozen=True)
class ClassGrade:
    """What is asked for: each field is the option of its name."""

    submissions: Path
    to: Path
    again: list[str]
    only: list[str]
    device: str
    sandbox: str
    ray: str | None
    jobs: int | None
    limit: float
    tag: str
    before: datetime.datetime | None
    due: datetime.datetime | None
    extensions: Path | None
    times: Path | None
    roster: Path | None
    strict: bool
    pick: str
    assignment: str


def run(console: Console, asked: ClassGrade) -> int:
    """Grade what has no report yet, and write the tables; returns the exit status."""
    try:
        checks.select(checks.declared(), asked.only)
    except ValueError as error:
        raise UnusableSubmission(f"--only {error}: no such problem or check; see grade.py --list") from None
    scratch.sweep(batch.FOLDER)
    handed = _handed_in(asked, console)
    settings = results.opened(asked.to, asked.device, asked.sandbox, tuple(asked.only))
    staff_dates.keep(asked.to, asked.extensions, asked.times)
    decisions.read(asked.to)  # what is wrong with them is said before anything is graded
    kept = results.Results(asked.to, settings)
    jobs = _jobs(handed, kept, asked.again, console)
    waiting = {job.handed.name for job in jobs}
    try:
        _keep(_answers(jobs, settings, asked, console), waiting, kept, console)
    finally:
        form = tables.Form(tuple(handed), asked.pick, asked.due, asked.assignment, tuple(sorted(waiting)))
        written = tables.write(asked.to, form)
        _tell(written, console)
    return INCOMPLETE if written.waiting or written.failed else GRADED


def _handed_in(asked: ClassGrade, console: Console) -> list[Handed]:
    """Return the class's submissions, and tell what is in doubt; with --strict raises UnusableSubmission over it."""
    handed = layouts.found(asked.submissions, asked.tag, asked.before, asked.due)
    doubts = layouts.doubts(asked.submissions, handed, asked.tag, asked.before)
    if asked.roster:
        handed, more = roster.filled(handed, roster.read(asked.roster))
        doubts += more
    doubts += _doubts_of_dates(asked, handed)
    for doubt in doubts:
        console.print(Text(f"  {text.line(doubt)}", "yellow"))
    if doubts and asked.strict:
        raise UnusableSubmission(f"--strict: {len(doubts)} doubts, told above; nothing was graded")
    if unknown := sorted({*asked.again} - {one.student for one in handed}):
        raise UnusableSubmission(f"--again {unknown[0]}: nobody of that name has handed in anything")
    return handed


def _doubts_of_dates(asked: ClassGrade, handed: list[Handed]) -> list[str]:
    """Return what is in doubt about dates; raises UnusableSubmission where the files of dates cannot be used."""
    known = course()
    if not (due := asked.due or known.due) and asked.extensions:
        raise UnusableSubmission(
            "--extensions: no date is set that they could move; set `due` in course.toml, or --due"
        )
    for path in filter(None, (asked.extensions, asked.times)):
        if not path.is_file():
            raise UnusableSubmission(f"{path}: no such file")
    extensions = asked.extensions or asked.to / staff_dates.EXTENSIONS
    times = asked.times or asked.to / staff_dates.TIMES
    return staff_dates.dated(handed, due, known.late, extensions, times).doubts


def _jobs(handed: list[Handed], kept: results.Results, again: list[str], console: Console) -> list[Job]:
    """Return what has to be graded; of what cannot be read, keep the reason."""
    jobs, n_unreadable = list[Job](), 0
    for one in handed:
        try:
            submission = one.read()
        except (UnusableSubmission, OSError) as error:
            why = text.clean(str(error))
            kept.keep(one, "", results.failed(why), why)
            n_unreadable += 1
            continue
        key = results.key(submission, kept.settings)
        if one.student in again or not kept.is_done(one, key):
            jobs.append(Job(one, submission, key))
    done = len(handed) - len(jobs) - n_unreadable
    console.print(f"{len(handed)} submissions: {done} have a report, {n_unreadable} cannot be read")
    return jobs


def _answers(
    jobs: list[Job], settings: results.ClassSettings, asked: ClassGrade, console: Console
) -> Iterator[tuple[Job, batch.Answer]]:
    """Yield each job with its answer as it comes, from this machine or from a cluster."""
    if asked.ray is None or not jobs:
        yield from batch.grade_all(jobs, settings, batch.at_once(asked.jobs), asked.limit)
        return

    def tell(line: str) -> None:
        console.print(Text(f"  {line}", "yellow"))

    with cluster.connected(asked.ray):
        needs = cluster.needed(asked.device)
        nodes, at_once = cluster.room(needs)
        if not at_once:
            tell(f"no node has room for a grade yet ({needs}); waiting for one")
        console.print(f"Ray: {nodes} nodes, {at_once} submissions at once")
        yield from cluster.grade_all(jobs, settings, needs, asked.limit, tell)


def _keep(
    answers: Iterable[tuple[Job, batch.Answer]], waiting: set[str], kept: results.Results, console: Console
) -> None:
    """Keep what comes, and take its name from those that wait."""
    columns = (TextColumn("  grading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(waiting))
        for job, answer in answers:
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


def _line(handed: Handed, report: KeptReport) -> str:
    state = grades.state(report)
    said = f"  {handed.name}: {report['score']:g} of {report['gradable']:g} in {report['seconds']:.0f} s"
    return f"{said}, {state}" if state else said


def _tell(written: tables.Written, console: Console) -> None:
    """Say what is missing, last of all where the grades are."""
    if written.lateness:
        console.print(f"lateness: {written.lateness}")
    in_part = [name for name, report in written.failed.items() if report.get("score") is not None]
    if none := sorted({*written.failed} - {*in_part}):
        console.print(Text(f"{len(none)} got no grade: {names.some(none)}; their cells are empty", "bold red"))
    if in_part:
        said = f"{len(in_part)} ended by --limit, with the points of what was graded until then"
        console.print(Text(f"{said}: {names.some(in_part)}; decide on them in `review`", "bold red"))
    if written.left_out:
        why = "neither name nor e-mail, or a number, address or login that a spreadsheet takes for a formula"
        said = f"{len(written.left_out)} have {why}, and are in no file for import"
        console.print(Text(f"{said}: {names.some(written.left_out)}; --roster FILE gives them", "yellow"))
    if written.waiting:
        said = f"{len(written.waiting)} of {written.n_handed} submissions are not graded yet"
        console.print(Text(f"{said}: {written.grades} is not complete; give the same command again", "bold red"))
    else:
        console.print(f"{written.grades} has the grades")
