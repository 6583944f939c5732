"""`review RESULTS`: what needs a person before grades are published, and what was decided."""

import shlex
from pathlib import Path

from rich.console import Console
from rich.text import Text

from assignment import text
from assignment.classroom import COMMAND, decisions, evidence, results, tables
from assignment.classroom.evidence import Evidence, Excerpt
from assignment.classroom.kept import KeptReport
from assignment.submission import UnusableSubmission

SETTLED, OPEN = 0, 1
MAX_CHECKS = 2  # named; the others are counted
GUTTER = "    | "


def run(console: Console, results: Path, decide: list[str] | None, reason: str, by: str) -> int:
    """Keep a decision, or list what needs one; exit status 1 where something is open."""
    form = tables.form_of(results)
    if decide:
        decision = _decide(results, tables.reports(results, form), decide, reason, by)
        tables.write(results, form)
        console.print(Text(f"{decision.name}: {decision.told}"))
        console.print(f"kept in {results / decisions.FILE}; the tables are written anew")
        return SETTLED
    if reason or by:
        raise UnusableSubmission("--reason, --by: expected --decide NAME PROBLEM POINTS with them")
    written = tables.write(results, form)  # decisions and dates may have been edited by hand
    whole = tables.read(results)
    found = of_class(whole)
    waiting = [finding for finding in found if finding.decision is None]
    for finding in waiting:
        _show(finding, results, console)
    for decision in {one.decision: None for one in found if one.decision}:
        console.print(Text(f"decided: {decision.name}, {decision.told}"))
    for decision, why in decisions.void(whole.made, whole.reports):
        console.print(Text(f"void: {decision.name}, {decision.told}; {why}", "yellow"))
    for name, report in whole.reports.items():
        for note in report.get("notes_to_staff", ()):
            console.print(Text(f"note: {name}: {text.line(note)}", "yellow"))
    if written.lateness:
        console.print(Text(f"lateness: {written.lateness}"))
    names = {finding.name for finding in waiting}
    console.print(Text(f"{len(waiting)} open, of {len(names)} submissions", "bold"))
    return OPEN if waiting else SETTLED


def _decide(folder: Path, reports: dict[str, KeptReport], asked: list[str], reason: str, by: str) -> decisions.Decision:
    """Keep the decision; raises UnusableSubmission."""
    name, problem, points = asked
    if name not in reports:
        where = f"{folder}/reports"
        raise UnusableSubmission(f"--decide {name}: no report of that name; see {where}")
    report = reports[name]
    sha256 = decisions.sha256_of(report)
    try:
        decision = decisions.new(name, problem, float(points), reason, by, sha256)
    except ValueError as error:
        raise UnusableSubmission(f"--decide {name} {problem} {points}: {error}") from None
    if problem not in decisions.about([decision], name, report):
        raise UnusableSubmission(f"--decide {name} {problem}: the report has no such problem")
    decisions.add(folder, decision)
    return decision


def of_class(whole: tables.Class) -> list[Evidence]:
    """Return what needs a person, of the submissions that count; raises UnusableSubmission."""
    asked = results.known(whole.folder).sandbox
    found = []
    for handed, _ in whole.counted:
        name, report = handed.name, whole.reports[handed.name]
        files = evidence.sources(whole.folder, name, decisions.sha256_of(report))
        decided = decisions.about(whole.made, name, report)
        found += evidence.findings(name, report, decided, files, asked)
    return found


def _show(finding: Evidence, folder: Path, console: Console) -> None:
    earned = f"{finding.earned:g} of {finding.most:g} points"
    title = f"{finding.name}: {finding.problem}, {earned}: {finding.why}"
    console.print(Text(title, "bold"))
    if finding.checks:
        named, more = finding.checks[:MAX_CHECKS], len(finding.checks) - MAX_CHECKS
        console.print(Text(f"  {', '.join(named)}{f' and {more} more' if more > 0 else ''}"))
    width = console.width if console.is_terminal else text.MAX_LINE
    for row in text.block(finding.message, width, GUTTER, GUTTER):
        console.print(Text(row))
    for excerpt in finding.excerpts:
        _show_code(excerpt, console)
    what = shlex.join([str(folder), "--decide", finding.name, finding.problem, f"{finding.earned:g}"])
    command = f"{COMMAND} review {what} --reason 'as it is' --by \"$USER\""
    console.print(Text(f"  decide, with other points or these: {command}\n", "dim"))


def _show_code(excerpt: Excerpt, console: Console) -> None:
    console.print(Text(f"  {excerpt.path}", "dim"))
    for number, line in excerpt.lines:
        mark = ">" if number in excerpt.named else " "
        console.print(Text(f"  {mark} {number:>5} | {line}"))
