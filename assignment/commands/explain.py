"""`--explain CHECK`: all that a check says, and the section of the handout that belongs to it."""

import base64
import sys
from collections.abc import Hashable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from assignment import failure, text
from assignment.commands import handout, likely, report, run
from assignment.commands.collector import Judge
from assignment.commands.next_check import counted
from assignment.commands.settings import Settings
from assignment.simulator import launch_page
from assignment.submission import UnusableSubmission
from assignment.verdict import causes, checks, reporting, score, where
from assignment.verdict.case import Case
from assignment.verdict.entries import CheckEntry

MAX_NAMED = 8


def named(name: str, declared: list[checks.Check]) -> checks.Check:
    """Return the one check of that name, with or without its file and the case; raises UnusableSubmission."""
    try:
        fitting = checks.select(declared, [name.partition("[")[0]])
    except ValueError:
        raise UnusableSubmission(f"--explain {name}: no such check{nearest(name, declared)}") from None
    if len(fitting) != 1:
        names = listed([check.name for check in fitting])
        raise UnusableSubmission(f"--explain {name}: expected one check, and {len(fitting)} fit; say which:{names}")
    return fitting[0]


def nearest(name: str, declared: list[checks.Check]) -> str:
    wanted = name.partition("[")[0].rpartition("::")[2]
    functions = [check.name.partition("::")[2] for check in declared]
    near = text.nearest(wanted, functions)
    names = [check.name for check, function in zip(declared, functions, strict=True) if function in near]
    return f"; did you mean:{listed(names)}" if names else "; --list shows them all"


def listed(names: list[str]) -> str:
    more = [f"and {len(names) - MAX_NAMED} more: see --list"] if len(names) > MAX_NAMED else []
    return "".join(f"\n  {line}" for line in [*names[:MAX_NAMED], *more])


class Quiet(Judge):
    """Prints no verdicts."""

    def hear(self, entry: CheckEntry) -> None:
        """Do nothing: the case is told at length afterwards."""


def explain(settings: Settings, asked: run.GraderRun) -> int:
    """Grade one check and print all that is known of it; return the exit status."""
    (check,), pool, console = asked.selected, asked.pool, asked.console
    runnable = run.runnable(settings, asked.selected, pool)
    run.introduce(settings, pool, console)
    commands = settings.command(pool.seed), settings.debugger(pool.seed)
    judge = Quiet(runnable, console, commands[0])
    if not run.judged(judge, runnable, pool):
        return run.INTERRUPTED
    if judge.problems:
        return failure.tell(judge.problems)
    results = score.results(likely.explained(judge.gathered(), pool.jobs, console, is_thorough=True))
    entries = [reporting.check_entry(result, *commands) for result in results]
    show_check(console, check, next(iter(causes.sections(entries[0])), "") if entries else "")
    if not results:
        lacking = "a GPU, and there is none" if check.is_timed else "Linux, for which Triton has its compiler"
        console.print(Text(f"\nIt needs {lacking}: not graded here."))
        return run.GRADED
    show_result(console, results[0], entries[0])
    if settings.html and (problem := draw(settings.html, results[0])):
        print(f"grade.py: {problem}", file=sys.stderr)
        return run.BROKEN
    return run.BROKEN if results[0].status == score.GRADER_ERROR else run.GRADED


def draw(path: Path, result: score.CheckResult) -> str | None:
    """Write a page of the launches of the case that is shown first; returns the problem if it cannot."""
    worst = result.worst
    if worst is None or worst.status == score.OK:
        return f"{path} was not written: no case of {result.check.name} fails"
    name = f"{result.check.name}[{worst.name}]" if worst.name else result.check.name
    if not worst.drawn:
        return f"{path} was not written: no launch of {name} was kept; leave out --inline, let the call launch a kernel"
    return launch_page.write(path, name, base64.b64decode(worst.drawn))


def show_check(console: Console, check: checks.Check, citation: str) -> None:
    """Print what is claimed and tested, and the part of the handout that a hint, or else the check, points to."""
    place = where.place(check)
    console.print()
    console.print(Text(check.name, "bold"))
    console.print(Text("\n".join(report.claim_lines(f"{check.claim}, for {counted(check.points, 'point')}", 2))))
    file = check.path.partition("::")[0]
    console.print(Text(f"  tested by tests/{file}:{check.line}"))
    # of a whole chapter that a hint names, the part on the function is enough
    shown = citation if "#" in citation and handout.section(citation) else place.section
    console.print(Text(f"\nFrom {shown}:\n", "bold"))
    handout.show(console, handout.section(shown))
    console.print()


def show_result(console: Console, result: score.CheckResult, entry: CheckEntry) -> None:
    """Print the verdict, every case that failed, and what to do next."""
    style = report.STYLES[result.status]
    counts = f"{entry['passed']} of {counted(entry['cases'], 'case')} right" if result.status != score.TO_DO else ""
    earned = f"{report.points(result.score)}/{counted(result.check.points, 'point')}"
    console.print(Text(": ".join([result.status, ", ".join(filter(None, (earned, counts)))]), style))
    show_cases(console, result)
    for case in (case for case in result.cases if case.printed):
        console.print(Text(text.line(f"  printed in [{case.name}], which is right:")))
        report.print_block(console, "\n".join(case.printed))
    report.print_notes(console, [{**entry, "status": score.OK, "notes": unsaid(result, entry)}])
    report.print_hint(console, entry)
    if result.worst and result.worst.steps:
        console.print(Text(text.line(f"  what host code did in the last call of [{result.worst.name}]:")))
        report.print_block(console, "\n".join(result.worst.steps))
    if lanes := entry.get("lanes"):
        console.print(Text(f"  {report.OVER_STEPS}:"))
        report.print_block(console, "\n".join(lanes))
    console.print(Text(f"  open:  {where.place(result.check)}"))
    report.print_commands(console, entry)


def unsaid(result: score.CheckResult, entry: CheckEntry) -> list[str]:
    """Return the remarks of a check that its message does not have, which is that of the worst case."""
    said = reporting.notes_of([result.worst]) if result.worst and result.worst.message else []
    return [note for note in entry["notes"] if note not in said]


def show_cases(console: Console, result: score.CheckResult) -> None:
    """Print the cases that failed, the one that the report shows first; those with one cause together."""
    lost = [case for case in result.cases if case.status != score.OK]
    told: dict[Hashable, str] = {}
    for case in sorted(lost, key=lambda case: case is not result.worst):
        first = told.setdefault(alike(case), case.name)
        if first != case.name and case.status != score.TO_DO:
            console.print(Text(text.line(f"  [{case.name}] {case.status}: the same as in [{first}]")))
            continue
        if case.name and case.status != score.TO_DO:
            console.print()
            console.print(Text(text.line(f"  [{case.name}] {case.status}"), "bold"))
        if first == case.name:
            report.print_block(console, text.clean(case.message))


def alike(case: Case) -> Hashable:
    """Return what is equal of cases that differ in nothing that matters: in their numbers alone, or not at all."""
    found = case.finding
    if found is None or not found.result:
        return found.cause if found else case.message
    n = found.numbers
    return found.kind, found.result, found.places, n["nan"] > 0, n["wrong"] == n["elements"]
