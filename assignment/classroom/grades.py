"""A table of grades from a class's reports: a row a student."""

import csv
import io
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from assignment.classroom import decisions
from assignment.classroom.handed_in import Handed, Person
from assignment.judge import checks, score

Graded = tuple[Handed, dict[str, Any]]
DAY_S = 86_400
DECIDED = "decided"


def points(report: dict[str, Any]) -> float:
    """Return the score; of a submission that got no grade 0."""
    return float(report.get("score") or 0.0)


def best(graded: list[Graded]) -> Graded:
    """Return the submission with the most points, and of several the first."""
    return max(graded, key=lambda pair: (points(pair[1]), -pair[0].attempt))


def last(graded: list[Graded]) -> Graded:
    """Return the submission that was handed in last."""
    return max(graded, key=lambda pair: pair[0].attempt)


PICKED: dict[str, Callable[[list[Graded]], Graded]] = {"best": best, "last": last}


def chosen(graded: Iterable[Graded], pick: str) -> list[Graded]:
    """Return the submission of each student that counts, in the order of their names."""
    by_student: dict[str, list[Graded]] = {}
    for one in graded:
        by_student.setdefault(one[0].student, []).append(one)
    return [PICKED[pick](by_student[student]) for student in sorted(by_student)]


def late_days(handed: Handed, due: Any) -> int | str:
    """Return how many days a submission is late, begun ones counted; "late" where only that is known."""
    if due is not None and handed.submitted is not None:
        return max(0, math.ceil((handed.submitted - due).total_seconds() / DAY_S))
    return "late" if handed.is_late else 0


def state(report: dict[str, Any]) -> str:
    """Return what is to be done about a report before it is published.

    "" is nothing, and `decided` that staff have settled all there was.
    """
    decided = report.get("decided", {})
    if decisions.TOTAL in decided:
        return DECIDED
    if "failed" in report:
        return "not graded"
    problems = [problem for problem in report["problems"] if problem["name"] not in decided]
    entries = [entry for problem in problems for entry in problem["checks"]]
    statuses = {entry["status"] for entry in entries}
    if score.GRADER_ERROR in statuses or report.get("grader_failures"):
        return score.GRADER_ERROR
    if score.NEEDS_REVIEW in statuses:
        return score.NEEDS_REVIEW
    return DECIDED if decided else ""


def rows(graded: Iterable[Graded], pick: str, due: Any) -> list[dict[str, Any]]:
    """Return a row for each student; in a group each has one."""
    problems = [name for name in checks.problems() if not checks.is_practice(name)]
    table = []
    for handed, report in chosen(graded, pick):
        earned = {problem["name"]: problem["score"] for problem in report["problems"]}
        for person in handed.people or (Person(),):
            table.append(
                {
                    "student": handed.student,
                    **asdict(person),
                    "attempt": handed.attempt,
                    "late": late_days(handed, due),
                    "score": points(report),
                    "of": report.get("gradable", ""),
                    **{name: earned.get(name, 0) for name in problems},
                    "state": state(report),
                    "decided": "; ".join(map(told, report.get("decided", {}).values())),
                }
            )
    return table


def told(decision: dict[str, Any]) -> str:
    """Return a decision of a report in a line."""
    return decisions.Decision(**decision).told


def as_csv(table: list[dict[str, Any]]) -> bytes:
    """Return a table as CSV; what a spreadsheet would take for a formula is text."""
    out = io.StringIO()
    if table:
        writer = csv.DictWriter(out, list(table[0]))
        writer.writeheader()
        writer.writerows({name: plain(value) for name, value in row.items()} for row in table)
    return out.getvalue().encode()


def plain(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def gradescope(table: list[dict[str, Any]]) -> bytes:
    """Return the columns that Gradescope matches students by, and the score."""
    return as_csv([{"Name": r["name"], "SID": r["sid"], "Email": r["email"], "Score": r["score"]} for r in table])


def canvas(table: list[dict[str, Any]], assignment: str) -> bytes:
    """Return the columns that Canvas imports: the student, their number, an empty section, the assignment's score."""
    return as_csv([{"Student": r["name"], "ID": r["sid"], "Section": "", assignment: r["score"]} for r in table])
