"""What the files of a class hold: reports as they are kept, and who handed in what."""

from dataclasses import dataclass
from typing import NotRequired, TypedDict

from assignment.verdict.entries import GradeDetails


@dataclass(frozen=True)
class Decision:
    """The points of a problem of one submission, or with the problem "total" of all of it."""

    name: str
    problem: str
    points: float
    reason: str
    by: str
    when: str
    sha256: str  # of the submission; "" of one that cannot be read

    @property
    def told(self) -> str:
        """Say it in a line."""
        return f"{self.problem}: {self.points:g} points, by {self.by}: {self.reason}"


class HandedEntry(TypedDict):
    """Who handed in what: a handed_in.Handed."""

    student: str
    attempt: int
    people: list[dict[str, str]]  # handed_in.Person
    submitted: str  # "" where that is not known
    time_from: NotRequired[str]  # which tables of an earlier version have not
    is_late: bool
    source: str


class GradingEntry(HandedEntry):
    """When a submission was graded, with what, and the key that says whether that still holds."""

    key: str
    sha256: str
    grader: str
    graded: str


class KeptReport(GradeDetails, total=False):
    """A report of a class; of a submission that got no grade `failed` says why, and most keys are absent."""

    score: float | None
    max_score: float | None
    cpu_s: float
    failed: str
    waiting: bool
    classroom: GradingEntry
    decided: dict[str, Decision]  # by problem


class GraderAnswer(TypedDict):
    """What a grader's process says of a submission: its report, and what is printed of it."""

    report: KeptReport
    log: str
