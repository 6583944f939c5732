"""The report on the screen, from the plain data that reporting.report() returns; files.py writes the other forms."""

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assignment import text
from assignment.commands import handout
from assignment.course import course
from assignment.verdict import causes, checks, finding, reporting, score
from assignment.verdict.case import Case
from assignment.verdict.entries import CheckEntry, ProblemEntry, Report
from tests import operators

STYLES = {
    score.OK: "green",
    score.FAIL: "bold red",
    score.CRASHED: "bold red",
    score.TIMEOUT: "bold red",
    score.GRADER_ERROR: "bold magenta",
    score.TO_DO: "yellow",
    score.NOT_GRADED: "dim",
    score.NEEDS_REVIEW: "cyan",
}
MAX_MESSAGE_LINES = 15  # on the screen
MAX_IN_FULL, IN_FULL_OF_MANY = 3, 1  # causes that are told at length: all of a few, else the first
BRIEF_LINES = 2  # of the message of another, without the call
MAX_LINE = 180
WIDTH = 80  # of prose
SMALLEST = 0.001  # points: less is a rounding of sums
CLAIM_AT = 26  # the column of a claim, after its status and its points
MAX_NOTES = 5
LIKELY = "  likely cause: "
GUTTER = "    | "  # before each line that a submission may have written


class Screen(Console):
    """A terminal or a pipe. Where nobody reads it any more the grade goes on: rich would exit with status 1."""

    def __reduce__(self) -> tuple[partial["Screen"], tuple[()]]:
        """Have a process that is started have its own, on the same terminal."""
        return partial(Screen, highlight=False, soft_wrap=True), ()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def points(value: float) -> str:
    return f"{value:g}"


def fraction(entry: CheckEntry | ProblemEntry) -> str:
    """Return the points of a problem or a check, "3/4"."""
    return f"{points(entry['score'])}/{points(entry['max_score'])}"


def short(message: str) -> str:
    return text.clean(message, MAX_MESSAGE_LINES, MAX_LINE)


def print_block(console: Console, message: str, first: str = GUTTER, style: str = "") -> None:
    """Print text that a submission may have written, behind a gutter even where a terminal breaks its lines."""
    width = console.width if console.is_terminal else text.MAX_LINE * 2
    for row in text.block(message, width, GUTTER, first):
        console.print(Text(row, style))


def print_import_error(console: Console, said: str) -> None:
    console.print(Text("cs336_kernels cannot be imported; each of its files is graded by itself:", "bold red"))
    print_block(console, short(said))
    console.print()


def verdict_line(check: CheckEntry) -> Text:
    """Return a check's line: "FAIL   0/3   rmsnorm_forward returns …   (2 of 3 passed)"."""
    line = Text()
    line.append(f"  {check['status']:<12}", STYLES[check["status"]])
    line.append(f" {fraction(check):>9}  ")
    counts = check["status"] not in (score.OK, score.TO_DO, score.NOT_GRADED) and check["cases"] > 1
    cases = f"  ({check['passed']} of {check['cases']} passed)" if counts else ""
    line.append(cut(check["claim"], WIDTH - CLAIM_AT - len(cases)))
    line.append(cases, "dim")
    for measured in check.get("measured", ()):
        line.append(f"\n{' ' * CLAIM_AT}{measured}", "dim")
    return line


OVER_STEPS = "ranks over steps, from left to right; how long a step takes is not known"


def cut(words: str, width: int) -> str:
    """Return words that are not wider: the last ones give way to an ellipsis."""
    return textwrap.shorten(words, width, placeholder=" …")


def claim_lines(claim: str, indent: int) -> list[str]:
    """Return a claim as lines that are not too wide, so many spaces from the left."""
    margin = " " * indent
    return textwrap.wrap(claim, WIDTH, initial_indent=margin, subsequent_indent=margin, break_long_words=False) or [""]


def print_first_words(console: Console, check: checks.Check, case: Case) -> None:
    """Print that a case has failed, and where it is wrong, before the rest is known."""
    case_name = f"[{case.name}]" if case.name else ""
    console.print(Text(text.line(f"first to fail: {check.name}{case_name}"), STYLES[case.status]))
    print_block(console, in_first_lines(case.finding.says if case.finding else case.message))


def print_failures(console: Console, checks: Iterable[CheckEntry], import_error: str = "", command: str = "") -> None:
    """Print every cause once: the claim of the first check that fails for it, its case, the command, and the rest.

    import_error: what was told above of files that cannot be imported; command: repeats the run.
    """
    groups = [untold(group, import_error) for group in causes.grouped(checks)]
    in_full = len(groups) if len(groups) <= MAX_IN_FULL else IN_FULL_OF_MANY
    for number, (first, *others) in enumerate(groups):
        is_brief = number >= in_full
        console.print()
        console.print(Text(f"{first['name']}: {first['status']}", STYLES[first["status"]]))
        if is_brief:
            print_block(console, brief(first))
            print_hint(console, first, WIDTH)
        else:
            console.print(Text("\n".join(claim_lines(first["claim"], 2))))
            print_block(console, short(first["message"]))
            print_hint(console, first)
        if others:
            print_others(console, others)
    if len(groups) == 1:
        print_commands(console, groups[0][0])
    elif groups and command:
        print_commands_once(console, command)


def untold(group: list[CheckEntry], import_error: str) -> list[CheckEntry]:
    """Return a group of failed checks, without the text of an import error that was told already."""
    first, *others = group
    found = first["findings"][0] if causes.kind(first) == finding.NOT_IMPORTED else None
    if found is None or not import_error or found.get("why") != reporting.in_brief(import_error):
        return group
    return [{**first, "message": f"{found['file']} cannot be imported: see above", "findings": []}, *others]


def brief(check: CheckEntry) -> str:
    """Return what is wrong with a check, in its first lines; its message tells the call, too."""
    return in_first_lines(next((found["says"] for found in check["findings"]), check["message"]))


def in_first_lines(said: str) -> str:
    """Return the first lines of what is wrong."""
    return text.clean("\n".join(said.splitlines()[:BRIEF_LINES]), BRIEF_LINES, WIDTH)


def print_others(console: Console, others: list[CheckEntry]) -> None:
    """Print which checks fail for the cause that was told."""
    count = "1 check more" if len(others) == 1 else f"{len(others)} checks more"
    names = ", ".join(check["name"].partition("::")[2] for check in others)
    told = textwrap.fill(names, WIDTH - 4, break_long_words=False)
    console.print(Text(f"  {count}, as it seems for the same cause:\n{textwrap.indent(told, '    ')}"))


def print_commands_once(console: Console, command: str) -> None:
    """Print how to look into any of several checks."""
    console.print(Text("\nFor each of them, with its NAME:", "dim"))
    console.print(Text(text.line(f"  again: {command} --only NAME"), "dim"))
    console.print(Text(text.line(f"  all of it, where to open it, and a debugger: {command} --explain NAME"), "dim"))


def print_hint(console: Console, check: CheckEntry, width: int | None = None) -> None:
    """Print what a check's wrong results may come from, cut to a width if one is given."""
    if hint := check["hint"]:
        shown = cut(hint, width) if width else hint
        print_block(console, wrapped(shown, causes.sections(check)), LIKELY, "yellow")


def wrapped(hint: str, sections: Sequence[str]) -> str:
    """Return a hint in lines that end at spaces, with the addresses of the sections of the handout that it names."""
    for section in sections:
        hint = hint.replace(f"({section})", f"({handout.address(section)})")
    room, margin = WIDTH - len(GUTTER), " " * (len(LIKELY) - len(GUTTER))
    return textwrap.fill(hint, room, initial_indent=margin, break_on_hyphens=False, break_long_words=False).lstrip()


def print_commands(console: Console, check: CheckEntry) -> None:
    """Print how to run it again, and in a debugger."""
    for name, command in (("again", check.get("rerun")), ("debug", check.get("debug"))):
        if command:
            console.print(Text(f"  {name}: {command}", "dim"))


def print_notes(console: Console, checks: Iterable[CheckEntry]) -> None:
    """Print what the simulator remarked about code that keeps its points, each remark once."""
    for note in reporting.warnings_in(checks)[:MAX_NOTES]:
        console.print()
        print_block(console, short(note), "warning: ", "yellow")


def print_printed(console: Console, checks: Iterable[CheckEntry]) -> None:
    """Count what code that keeps its points has printed."""
    talking = [check for check in checks if check["status"] == score.OK and check.get("printed")]
    if talking:
        lines = sum(check["printed"] for check in talking)
        count = "1 line" if lines == 1 else f"{lines} lines"
        console.print(Text(f"\n{count} printed: --explain {talking[0]['name']} shows them", "dim"))


def print_staff_notes(console: Console, report: Report) -> None:
    """Print what failed in the grader while it looked for causes, and what processes say of themselves."""
    for note in report["notes_to_staff"]:
        console.print()
        print_block(console, short(note), "note to staff: ", "magenta")


def print_summary(console: Console, report: Report, remarks: Iterable[str], step: str) -> None:
    """Print points by problem, remarks, what to do next, and the total on the last line."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    for problem, told in told_of_problems(report):
        table.add_row(problem["name"], fraction(problem), told)
    console.print()
    console.print(table)
    console.print()
    for remark_ in remarks:
        console.print(Text(remark_))
    if step:
        print_block(console, step, "Next: ")
    console.print(Text(total(report), "bold"))


def dates() -> list[str]:
    """Return when the course wants it handed in, and what lateness costs; nothing where no date is set."""
    return textwrap.wrap(course().told_dates(), WIDTH)


def told_of_problems(report: Report) -> Iterator[tuple[ProblemEntry, str]]:
    """Yield each problem, with what is told of it beside its points."""
    for problem in reporting.problems_of(report):
        kind = "practice, not in the score" if problem in report["practice"] else ""
        yield problem, "; ".join(part for part in (kind, remark(problem, report)) if part)


def remark(problem: ProblemEntry, report: Report) -> str:
    statuses = [check["status"] for check in problem["checks"]]
    needing_linux = reporting.needing_linux([problem])
    if problem["gradable"] == 0 and needing_linux:
        return f"{score.NEEDS_LINUX}: not graded here"
    if problem["gradable"] == 0:
        return "needs a GPU: not graded here" if report["device"] == "cpu-simulated" else score.NOT_GRADED
    linux = checks.needed(needing_linux, 0)
    graded = [status for status in statuses if status != score.NOT_GRADED] if linux else statuses
    lost = sum(status not in (*score.KEEPS_POINTS, score.NOT_GRADED) for status in graded)
    told = f"{lost} of {len(graded)} checks to go" if lost else ""
    told = "to do" if all(status == score.TO_DO for status in graded) else told
    return "; ".join(filter(None, (told, linux)))


def next_step(report: Report) -> str:
    """Return what to open for the first check that is to do; where all are finished, what comes after them."""
    todo = (check for check in reporting.entries_of(report) if check["status"] == score.TO_DO)
    if step := next((short(check["message"]).rpartition("\n")[2] for check in todo), ""):
        return step
    problems = reporting.problems_of(report)
    lacking = [problem["max_score"] - problem["score"] - reporting.needing_linux([problem]) for problem in problems]
    if not problems or max(lacking) > SMALLEST:
        return ""
    names = [problem["name"] for problem in problems]
    return "; practice: ".join([*after_course(names), *after_practice(names)])


def after_course(names: list[str]) -> list[str]:
    """Return the problem with points that comes after finished ones, and its section; the first after vector_add."""
    course = [name for name in checks.problems() if name != checks.SPEED and not checks.is_practice(name)]
    done = [course.index(name) for name in names if name in course]
    if not done and any(operators.operator_of(name).follows for name in names):
        return []
    return [in_handout(name) for name in course[max(done, default=-1) + 1 :][:1]]


def after_practice(names: list[str]) -> list[str]:
    """Return the practice that follows the last of finished problems, and its section."""
    found = [one for one in operators.operators() if one.follows == names[-1]]
    return [in_handout(problem.name) for one in found for problem in one.problems]


def in_handout(problem: str) -> str:
    return f"{problem}, {checks.problems()[problem].section}"


def total(report: Report) -> str:
    """Return the total: "71/80 gradable here, 20 need a GPU"."""
    if not report["problems"]:
        earned = sum(problem["score"] for problem in report["practice"])
        whole = sum(problem["max_score"] for problem in report["practice"])
        return f"Practice: {points(earned)}/{points(whole)}, not in the score"
    here = f"{points(report['score'])}/{points(report['gradable'])}"
    elsewhere = report["max_score"] - report["gradable"]
    if not elsewhere:
        return f"Score: {here}"
    linux = reporting.needing_linux(report["problems"])
    is_simulated = report["device"] == "cpu-simulated"
    why = checks.needed(linux, elsewhere - linux) if is_simulated else f"{points(elsewhere)} not graded"
    return f"Score: {here} gradable here, {why}"
