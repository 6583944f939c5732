"""A table of grades from a class's reports: a row a student."""

import csv
import datetime
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assignment.classroom import decisions
from assignment.classroom.handed_in import START, Handed, Person
from assignment.classroom.kept import KeptReport
from assignment.classroom.lateness import Dates, Late
from assignment.verdict import checks, score

Graded = tuple[Handed, KeptReport]
Cell = str | float  # of a table
LateOf = Callable[[Handed], Late | None]  # how late a submission is for one student; None where no date is set
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


def best(graded: list[Graded], late: LateOf = lambda _: None) -> Graded:
    """Return the submission that is worth most after lateness, of several the first.

    A grade of 0 goes before none. What is late by an unknown time may be worth all its points.
    """

    def worth(pair: Graded) -> tuple[float, bool, bool]:
        left = after(pair[1], late(pair[0]))
        return points(pair[1]) if left is None else left, pair[1].get("score") is not None, left is not None

    return max(sorted(graded, key=_when), key=worth)


def last(graded: list[Graded], late: LateOf = lambda _: None) -> Graded:
    """Return the submission that was handed in last."""
    return max(graded, key=_when)


PICKED: dict[str, Callable[[list[Graded], LateOf], Graded]] = {"best": best, "last": last}


def after(report: KeptReport, late: Late | None) -> float | None:
    """Return the score after lateness; None where that is not known."""
    return late.after(points(report)) if late else points(report)


@dataclass(frozen=True)
class Counted:
    """A student with the submission that counts: alone or in a group.

    Attributes:
        person: the student.
        handed, report: the submission.
        late: how late it is for this student; None where no date is set.
        until: their date, likewise.
    """

    person: Person
    handed: Handed
    report: KeptReport
    late: Late | None = None
    until: datetime.datetime | None = None

    @property
    def after(self) -> float | None:
        """The score after lateness; None where that is not known."""
        return after(self.report, self.late)


def by_person(graded: Iterable[Graded], pick: str, dates: Dates | None = None) -> list[Counted]:
    """Return each student with the submission that counts, in the order of submissions' names."""
    people: dict[str, Person] = {}
    theirs: dict[str, list[Graded]] = {}
    for one in sorted(graded, key=lambda one: (one[0].student, one[0].attempt)):
        for person in one[0].people or (Person(),):
            key = one[0].key_of(person)
            people.setdefault(key, person)
            theirs.setdefault(key, []).append(one)
    found = [_counted(people[key], theirs[key], key, pick, dates) for key in theirs]
    return sorted(found, key=lambda one: (one.handed.student, one.handed.attempt))


def _counted(person: Person, theirs: list[Graded], key: str, pick: str, dates: Dates | None) -> Counted:
    if dates is None:
        return Counted(person, *PICKED[pick](theirs, lambda _: None))
    late = {handed.name: dates.late(key, handed.submitted, handed.is_late_as_told) for handed, _ in theirs}
    handed, report = PICKED[pick](theirs, lambda handed: late[handed.name])
    return Counted(person, handed, report, late[handed.name], dates.until(key))


def days_late(handed: Handed, late: Late | None) -> int | str:
    """Return how many days a submission is late, begun ones counted.

    Where no date is set, or no time known, "late" if a platform says so, otherwise "" or "unknown".
    """
    if late is None or late.share is None:
        return "late" if handed.is_late else ""
    return "unknown" if late.days is None else late.days


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


def rows(students: Iterable[Counted]) -> list[dict[str, Cell]]:
    """Return a row for each student; in a group each has one. What was not graded has empty cells."""
    problems = [name for name in checks.problems() if not checks.is_practice(name)]
    return [_row(one, problems) for one in students]


def _row(one: Counted, problems: list[str]) -> dict[str, Cell]:
    person, handed, report = one.person, one.handed, one.report
    is_graded = report.get("score") is not None
    earned = {each["name"]: each["score"] for each in report["problems"] if each.get("gradable", True)}
    return {
        "student": handed.student,
        "source": handed.source,
        "name": person.name,
        "sid": person.sid,
        "email": person.email,
        "attempt": handed.attempt,
        **_dates(one),
        "late": days_late(handed, one.late),
        **({"credit": one.late.credit, "share": _cell(one.late.share)} if one.late else {}),
        "score": points(report) if is_graded else "",
        **({"after_lateness": _cell(one.after if is_graded else None)} if one.late else {}),
        "of": report.get("gradable", ""),
        **{name: earned.get(name, "") for name in problems},
        "state": state(report),
        "decided": "; ".join(each.told for each in report.get("decided", {}).values()),
    }


def _dates(one: Counted) -> dict[str, Cell]:
    """Return the cells of a student's date and of when the submission was handed in; none where no date is set."""
    if one.until is None:
        return {}
    submitted = one.handed.submitted.isoformat(timespec="seconds") if one.handed.submitted else "unknown"
    return {"due": one.until.isoformat(), "handed_in": submitted, "time_from": one.handed.time_from}


def _cell(value: float | None) -> Cell:
    return "" if value is None else value


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


@dataclass(frozen=True)
class Imported:
    """A student whom a platform can match, with the points after lateness and before; "" for no grade."""

    person: Person
    score: Cell
    before: Cell


def importable(students: Iterable[Counted]) -> tuple[list[Imported], list[str]]:
    """Return students whom a platform can match with their points; and the names of the others."""
    found, others = [], []
    for one in students:
        if not _is_matched(one.person):
            others.append(one.handed.student)
        elif state(one.report) in (WAITING, UNGRADED, PARTIAL):
            found.append(Imported(one.person, "", ""))
        else:
            found.append(Imported(one.person, _cell(one.after), points(one.report)))
    return found, others


def gradescope(students: list[Imported], is_dated: bool = False) -> bytes:
    """Return the columns that Gradescope matches students by, and the score; with a date, what it was before, too."""
    columns = ("Name", "SID", "Email", "Score", *(["Score before lateness"] if is_dated else []))
    told = [(one.person.name, one.person.sid, one.person.email, one.score, one.before) for one in students]
    return as_csv([dict(zip(columns, row, strict=False)) for row in told], columns)


def canvas(students: list[Imported], assignment: str) -> bytes:
    """Return the columns of Canvas's own export, and the assignment's score: every other column is an assignment."""
    columns = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section", assignment)
    people = [(one.person, one.score) for one in students]
    told = [(one.name, one.canvas, one.sid, one.login, one.section, score) for one, score in people]
    return as_csv([dict(zip(columns, row, strict=True)) for row in told], columns)
