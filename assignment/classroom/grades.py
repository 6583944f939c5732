"""A table of grades from a class's reports: a row a student."""

import csv
import datetime
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence

from assignment.classroom import decisions
from assignment.classroom.handed_in import START, Handed, Person
from assignment.classroom.kept import KeptReport
from assignment.verdict import checks, score

Graded = tuple[Handed, KeptReport]
Cell = str | float  # of a table
DAY_S = 86_400
DECIDED, WAITING, UNGRADED, PARTIAL = "decided", "not graded yet", "not graded", "graded in part"
# What begins a formula: = + - @, and what becomes one of these where text is normalised, as full-width signs do.
SIGNS = "=+\\-@⁺⁻⁼₊₋₌−⩵⩶﬩﹢﹣﹦﹫＋－＝＠"
# Where a formula may begin: of a cell, and behind what spreadsheets divide at, or pass over.
BEGIN = re.compile(rf"""(?:^|(?<=[\s\x00-\x1f\x7f-\x9f\ufeff\u200b,;|:"']))(?=[{SIGNS}])""")


def points(report: KeptReport) -> float:
    """Return the score; of a submission that got no grade 0."""
    return float(report.get("score") or 0.0)


def _when(graded: Graded) -> tuple[datetime.datetime, int]:
    return graded[0].submitted or START, graded[0].attempt


def best(graded: list[Graded]) -> Graded:
    """Return the submission with the most points, of several the first; a grade of 0 goes before none."""
    in_order = sorted(graded, key=_when)
    return max(in_order, key=lambda pair: (points(pair[1]), pair[1].get("score") is not None))


def last(graded: list[Graded]) -> Graded:
    """Return the submission that was handed in last."""
    return max(graded, key=_when)


PICKED: dict[str, Callable[[list[Graded]], Graded]] = {"best": best, "last": last}


def by_person(graded: Iterable[Graded], pick: str) -> list[tuple[Person, Graded]]:
    """Return each student with the submission that counts, alone or in a group, in the order of submissions' names."""
    people: dict[str, Person] = {}
    theirs: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: (one[0].student, one[0].attempt)):
        for person in one[0].people or (Person(),):
            key = person.key.casefold() or f"\0{one[0].student}"  # no platform's key
            people.setdefault(key, person)
            theirs.setdefault(key, []).append(one)
    found = [(people[key], PICKED[pick](theirs[key])) for key in theirs]
    return sorted(found, key=lambda pair: (pair[1][0].student, pair[1][0].attempt))


def that_count(graded: Iterable[Graded], pick: str) -> list[Graded]:
    """Return the submissions that count for anybody, in the order of their names."""
    counted = {one[0].name: one for _, one in by_person(graded, pick)}
    return list(counted.values())


def late_days(handed: Handed, due: datetime.datetime | None) -> int | str:
    """Return how many days a submission is late, begun ones counted; "late" where only that is known, or else ""."""
    if due is not None and handed.submitted is not None:
        return max(0, math.ceil((handed.submitted - due).total_seconds() / DAY_S))
    return "late" if handed.is_late else ""


def state(report: KeptReport) -> str:
    """Return what is to be done about a report before it is published.

    "" is nothing, and `decided` that staff have settled all there was.
    """
    decided = report.get("decided", {})
    if decisions.TOTAL in decided:
        return DECIDED
    if "failed" in report:
        return WAITING if report.get("waiting") else UNGRADED if report.get("score") is None else PARTIAL
    problems = [problem for problem in report["problems"] if problem["name"] not in decided]
    entries = [entry for problem in problems for entry in problem["checks"]]
    statuses = {entry["status"] for entry in entries}
    if score.GRADER_ERROR in statuses or report.get("grader_failures"):
        return score.GRADER_ERROR
    if score.NEEDS_REVIEW in statuses:
        return score.NEEDS_REVIEW
    return DECIDED if decided else ""


def rows(graded: Iterable[Graded], pick: str, due: datetime.datetime | None) -> list[dict[str, Cell]]:
    """Return a row for each student; in a group each has one. What was not graded has empty cells."""
    problems = [name for name in checks.problems() if not checks.is_practice(name)]
    return [_row(person, *one, problems, due) for person, one in by_person(graded, pick)]


def _row(
    person: Person, handed: Handed, report: KeptReport, problems: list[str], due: datetime.datetime | None
) -> dict[str, Cell]:
    is_graded = report.get("score") is not None
    earned = {one["name"]: one["score"] for one in report["problems"] if one.get("gradable", True)}
    return {
        "student": handed.student,
        "source": handed.source,
        "name": person.name,
        "sid": person.sid,
        "email": person.email,
        "attempt": handed.attempt,
        "late": late_days(handed, due),
        "score": points(report) if is_graded else "",
        "of": report.get("gradable", ""),
        **{name: earned.get(name, "") for name in problems},
        "state": state(report),
        "decided": "; ".join(one.told for one in report.get("decided", {}).values()),
    }


def as_csv(table: list[dict[str, Cell]], columns: Sequence[str] = ()) -> bytes:
    """Return a table as CSV, in which nothing is a formula."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns or list(table[0] if table else ()))
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in table)
    return out.getvalue().encode(errors="backslashreplace")


def plain(value: Cell) -> Cell:
    """Return a cell of which no part is a formula, wherever a spreadsheet divides it; what is no plain word is text."""
    if not isinstance(value, str):
        return value
    made = BEGIN.sub("'", value)
    return value if made == value and value.isprintable() else f"'{made.removeprefix(chr(39))}"


def _is_matched(person: Person) -> bool:
    """Return whether a platform can match a student by the file that is imported, in which nothing is changed."""
    keys = [key for key in (person.sid, person.email, person.canvas, person.login) if key] or [person.name]
    return bool(person.name or person.email) and all(plain(key) == key for key in keys)


def importable(graded: Iterable[Graded], pick: str) -> tuple[list[tuple[Person, Cell]], list[str]]:
    """Return students whom a platform can match with their points, "" for no grade; and the names of the others."""
    found, others = [], []
    for person, (handed, report) in by_person(graded, pick):
        if _is_matched(person):
            found.append((person, "" if state(report) in (WAITING, UNGRADED, PARTIAL) else points(report)))
        else:
            others.append(handed.student)
    return found, others


def gradescope(students: list[tuple[Person, Cell]]) -> bytes:
    """Return the columns that Gradescope matches students by, and the score."""
    rows = [{"Name": one.name, "SID": one.sid, "Email": one.email, "Score": score} for one, score in students]
    return as_csv(rows, ("Name", "SID", "Email", "Score"))


def canvas(students: list[tuple[Person, Cell]], assignment: str) -> bytes:
    """Return the columns of Canvas's own export, and the assignment's score."""
    columns = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment)
    told = [(one.name, one.canvas, one.sid, one.login, one.section, score) for one, score in students]
    return as_csv([dict(zip(columns, row, strict=True)) for row in told], columns)
