"""`report RESULTS`: a page on the class, and a page for each student behind it."""

import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from assignment import text
from assignment.classroom import (
    COMMAND,
    decisions,
    evidence,
    grades,
    lateness,
    overview,
    pages,
    results,
    review,
    tables,
)
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import KeptReport
from assignment.commands.excerpts import excerpts
from assignment.course import course
from assignment.submission import UnusableSubmission
from assignment.verdict import causes, reporting, score
from assignment.verdict.entries import CheckEntry

PAGE, STUDENTS = "report.html", "students"
SLOWEST = 5  # grades that are named
MAX_LOG = 200_000  # characters


def run(console: Console, results: Path, title: str, price: float | None) -> int:
    """Write the pages; returns the exit status."""
    found = tables.read(results)
    if not found.counted:
        raise UnusableSubmission(f"{results}: no reports yet; run `{COMMAND} grade` first")
    shown = of_class(found, title, price)
    pages.write(results / PAGE, "report.html", **shown)
    for handed, report in found.counted:
        path = results / STUDENTS / f"{handed.name}.html"
        pages.write(path, "student.html", **of_student(found, handed, report))
    students = len(found.counted)
    console.print(f"{results / PAGE} is the class's page, for {students} students")
    return 0


def of_class(found: tables.Class, title: str, price: float | None) -> dict[str, Any]:
    """Return what the class's page shows."""
    counted = {handed.name: report for handed, report in found.counted}
    graded = {name: report for name, report in counted.items() if "failed" not in report}
    findings = review.of_class(found)
    took = {name: one["seconds"] for name, one in found.reports.items() if "seconds" in one}
    seconds = overview.figures(took.values())
    settled = {finding.decision: None for finding in findings if finding.decision}
    return {
        "title": f"{title}: the class",
        "about": _about([*found.reports.values()]),
        "pick": found.form.pick,
        "dates": course().told_dates(found.dates.due) if found.dates else "",
        "lateness": lateness.told(one.late for own in found.students.values() for one in own if one.late),
        "rows": [_row(own) for own in found.students.values()],
        "scores": overview.figures(grades.points(report) for report in graded.values()),
        "most": max((report["gradable"] for report in graded.values()), default=0.0),
        "waiting": [finding for finding in findings if finding.decision is None],
        "settled": list(settled),
        "void": decisions.void(found.made, found.reports),
        "notes": _notes(graded),
        "distribution": overview.distribution(graded),
        "problems": overview.problems(graded),
        "misconceptions": overview.misconceptions(graded),
        "others": overview.others(graded),
        "rates": overview.rates(graded),
        "seconds": seconds,
        "price": price,
        "cost": None if price is None else price * seconds.get("sum", 0.0) / 3600,
        "attempts": len(found.reports),
        "slowest": sorted(took.items(), key=lambda pair: -pair[1])[:SLOWEST],
        "machines": Counter(_machine(found.reports[name]) for name in took).most_common(),
    }


def _machine(report: KeptReport) -> str:
    return text.line(f"{report['device']}, {report['sandbox']}")


def _about(reports: list[KeptReport]) -> str:
    """Return when, and with what, a class was graded."""
    when = sorted(report["classroom"]["graded"] for report in reports)
    commits = sorted({report["classroom"]["grader"] for report in reports} - {""})
    days = sorted({when[0][:10], when[-1][:10]})
    told = f"Graded {' to '.join(days)}"
    return f"{told} with the grader of {', '.join(commits)}" if commits else told


def _row(own: list[grades.Counted]) -> dict[str, Any]:
    """Return what the class's page shows of a submission, which counts for one student or for several of a group."""
    handed, report = own[0].handed, own[0].report
    return {
        "name": handed.name,
        "people": people(handed),
        "score": report["score"],
        "problems": {one["name"]: one["score"] for one in report["problems"] if one["gradable"]},
        "late": list(dict.fromkeys(grades.days_late(handed, one.late) for one in own)),
        "after": list(dict.fromkeys(one.after for one in own if report["score"] is not None)),
        "state": grades.state(report),
    }


def people(handed: Handed) -> str:
    """Return the names that the platform has of a student or a group, "" if none."""
    return text.line(", ".join(one.name for one in handed.people if one.name))


def _notes(reports: dict[str, KeptReport]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, report in reports.items():
        for says in _told_staff(report):
            found.setdefault(says, []).append(name)
    return found


def _told_staff(report: KeptReport) -> list[str]:
    """Return what staff are told, without the checks, which an older grader has not told apart."""
    return [one["says"] for one in report["told_staff"]] if "told_staff" in report else report["notes_to_staff"]


def of_student(found: tables.Class, handed: Handed, report: KeptReport) -> dict[str, Any]:
    """Return what a student's page shows: nothing of the class, of the seed, or of the machine's paths."""
    private, seen = _private(found, handed), set[evidence.Excerpt]()
    report = _shown(report, private)
    sha256 = decisions.sha256_of(found.reports[handed.name])
    files = evidence.sources(found.folder, handed.name, sha256)
    shown = [("", problem) for problem in report["problems"]]
    shown += [("practice", problem) for problem in report["practice"]]
    likely = _likely_causes(report)
    entries = [check for problem in report["problems"] for check in problem["checks"]]
    checks = [check for check in entries if check["cases"]]
    late, after = _lateness(found, handed)
    return {
        "title": people(handed) or handed.name,
        "heading": course().heading,
        "about": f"Submission {handed.name}, graded {report['classroom']['graded'][:10]}",
        "report": {"import_error": "", **report},
        "failed": report.get("failed", "").removeprefix(": "),  # behind a path that is hidden
        "dates": course().told_dates(found.dates.due) if found.dates else "",
        "late": late,
        "after": after,
        "passed": sum(check["status"] in score.KEEPS_POINTS for check in checks),
        "graded": len(checks),
        "decided": [hidden(one.told, private) for one in report.get("decided", {}).values()],
        "causes": [{"says": says, "checks": names} for says, names in likely.items()],
        "problems": [
            {
                **problem,
                "practice": kind,
                "checks": [
                    {**check, "excerpts": excerpts(causes.lines(check), files, seen), "causes": _numbers(check, likely)}
                    for check in problem["checks"]
                ],
            }
            for kind, problem in shown
        ],
        "log": hidden(text.of(found.folder / "logs" / f"{handed.name}.txt"), private),
    }


def _lateness(found: tables.Class, handed: Handed) -> tuple[int | str, float | None]:
    """Return days late, and the score after lateness where a date is set.

    Nothing where these differ within a group: they tell that one of it has an extension.
    """
    own = found.students[handed.name]
    told = {(grades.days_late(handed, one.late), one.after if one.late else None) for one in own}
    return told.pop() if len(told) == 1 else ("", None)


def _likely_causes(report: KeptReport) -> dict[str, list[str]]:
    """Return each likely cause once, with the checks that it explains; those of one name are one."""
    found: dict[str, list[str]] = {}
    says: dict[str, str] = {}
    for check in reporting.entries_of(report):
        for one in causes.misconceptions(check):
            names = found.setdefault(says.setdefault(one.name, str(one)), [])
            names += [check["name"]] if check["name"] not in names else []
    return found


def _numbers(check: CheckEntry, likely: dict[str, list[str]]) -> list[int]:
    return [i for i, names in enumerate(likely.values(), start=1) if check["name"] in names]


def _private(found: tables.Class, handed: Handed) -> tuple[str, ...]:
    """Return what a student's page must not hold."""
    seed = str(results.known(found.folder).seed)
    options = f" --seed {seed}"
    path = handed.path.absolute()
    places = {str(handed.path), str(path), str(path.parent), str(found.folder.absolute()), str(results.ROOT)}
    inner = sorted((place for place in places if place.count("/") > 1), key=len, reverse=True)
    return (*(f" {shlex.quote(place)}" for place in inner), options, f", seed {seed}", seed, *inner)


def _shown(data: Any, private: tuple[str, ...]) -> Any:
    """Return data with every text in it as `hidden` leaves it."""
    match data:
        case str():
            return hidden(data, private)
        case dict():
            return {name: _shown(value, private) for name, value in data.items()}
        case list() | tuple():
            return [_shown(value, private) for value in data]
    return data


def hidden(said: str, private: tuple[str, ...]) -> str:
    """Return a text without what is private, and without characters that move a cursor."""
    for part in private:
        said = re.sub(rf"{re.escape(part)}(?!\w)", "", said)
    rows = said[:MAX_LOG].splitlines()
    return "\n".join("".join(c if c.isprintable() else "�" for c in row) for row in rows)
