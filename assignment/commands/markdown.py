"""The report as GitHub-flavoured Markdown: what the terminal shows, for a page, a job's summary or a mail.

What a submission may have written stands in code, which no Markdown is read in: no markup, link, image or mention.
"""

import re
from collections.abc import Iterable

from assignment import text
from assignment.commands import report as screen
from assignment.verdict import causes, reporting
from assignment.verdict.entries import CheckEntry, Report

MARKUP = re.compile(r"([\\`*_{}\[\]<>#!|~&$@])")
MAX_BYTES = 900_000  # of failures: GitHub takes 1 MiB for the summary of a step


def page(report: Report) -> str:
    """Return the whole report: the total, points by problem, every cause of failure once, all checks."""
    groups = causes.grouped(reporting.entries_of(report))
    lines = [f"# {plain(screen.total(report))}", "", *summary(report), *dates(), *_remarks(report), *_failures(groups)]
    for problem in reporting.problems_of(report):
        lines += ["", f"## {code(problem['name'])}: {screen.fraction(problem)}", "", *_checks(problem["checks"])]
    if step := screen.next_step(report):
        lines += ["", "## Next", "", *block(step)]
    return "\n".join([*lines, "", *_origin(report)]) + "\n"


def summary(report: Report) -> list[str]:
    """Return a table of points by problem."""
    lines = ["| problem | points | |", "|---|---:|---|"]
    for problem, told in screen.told_of_problems(report):
        lines.append(f"| {code(problem['name'])} | {screen.fraction(problem)} | {plain(told)} |")
    return lines


def dates() -> list[str]:
    """Return a paragraph on dates and lateness; nothing where no date is set."""
    return ["", plain(said)] if (said := " ".join(screen.dates())) else []


def check(entry: CheckEntry) -> list[str]:
    """Return what is told of one check that has failed: its claim, its case, the likely cause, how to run it again."""
    lines = [plain(entry["claim"]), "", *block(screen.short(entry["message"]))]
    if entry["hint"]:
        lines += ["", "Likely cause:", "", *block(screen.wrapped(entry["hint"], causes.sections(entry)))]
    for name, command in (("Again", entry.get("rerun")), ("In a debugger", entry.get("debug"))):
        if command:
            lines += ["", f"{name}:", "", *block(command, "sh")]
    return lines


def _failures(groups: list[list[CheckEntry]]) -> list[str]:
    lines: list[str] = []
    for number, (first, *others) in enumerate(groups):
        said = ["", f"## {plain(first['status'])}: {code(first['name'])}", "", *check(first)]
        if others:
            names = ", ".join(code(other["name"].partition("::")[2]) for other in others)
            said += ["", f"{len(others)} more, as it seems for the same cause: {names}"]
        if len("\n".join([*lines, *said]).encode()) > MAX_BYTES:
            return [*lines, "", f"{len(groups) - number} more causes are left out here; the JSON report has them."]
        lines += said
    return lines


def _remarks(report: Report) -> list[str]:
    """Return what is told beside the points: an import that failed, warnings, notes to staff."""
    notes = reporting.warnings_in(reporting.entries_of(report))
    told = [("Warning", note) for note in notes[: screen.MAX_NOTES]]
    told += [("Note to staff", note) for note in report["notes_to_staff"]]
    if said := report["import_error"]:
        told.insert(0, ("`cs336_kernels` cannot be imported; each of its files is graded by itself", said))
    return [line for title, said in told for line in ("", f"{title}:", "", *block(screen.short(said)))]


def _checks(entries: Iterable[CheckEntry]) -> list[str]:
    lines = ["| status | points | cases | check |", "|---|---:|---:|---|"]
    for entry in entries:
        told = [plain(entry["claim"]), *(code(str(measured)) for measured in entry.get("measured", ()))]
        cases = f"{entry['passed']} of {entry['cases']}" if entry["cases"] else ""
        lines.append(f"| {plain(entry['status'])} | {screen.fraction(entry)} | {cases} | {'<br>'.join(told)} |")
    return lines


def _origin(report: Report) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    facts = {
        "seed": report["seed"],
        "device": report["device"],
        "sandbox": report["sandbox"],
        "versions": versions,
        "SHA-256 of the submission": report["submission_sha256"],
        "seconds": report["seconds"],
    }
    return [f"- {name}: {code(str(fact))}" for name, fact in facts.items()]


def plain(said: str) -> str:
    """Return our own words, so that no character of theirs is markup."""
    return MARKUP.sub(r"\\\1", text.line(said))


def code(said: str) -> str:
    """Return a name or a number as code within a line, and within a cell of a table."""
    said = text.line(said).replace("|", "¦") or " "
    fence = "`" * (_longest_run(said) + 1)
    space = " " if "`" in said else ""
    return f"{fence}{space}{said}{space}{fence}"


def block(said: str, language: str = "text") -> list[str]:
    """Return text that a submission may have written as the lines of a block of code, which it cannot end."""
    said = text.clean(said)
    fence = "`" * max(3, _longest_run(said) + 1)
    return [f"{fence}{language}", *said.splitlines(), fence]


def _longest_run(said: str) -> int:
    return max(map(len, re.findall("`+", said)), default=0)
