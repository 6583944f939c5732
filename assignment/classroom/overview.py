"""What a class's reports say together: pure functions of data."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from assignment.classroom.kept import KeptReport
from assignment.verdict import causes, finding, reporting, score
from assignment.verdict.entries import CheckEntry, ProblemEntry
from assignment.verdict.finding import Explanation

Reports = Mapping[str, KeptReport]  # of the submissions that count, by name

BINS = 10
# What is said of a kind of finding without a likely cause.
KINDS = {
    finding.NOT_IMPORTED: "The file cannot be imported",
    finding.NOT_PLAYED: "An operation of PyTorch's that the grader does not repeat",
    finding.NOT_THE_WORK: "Values that no kernel of theirs has computed",
    "out of bounds": "Memory out of bounds is read or written",
    "race": "A race: programs touch the same memory in no order",
    "unwritten memory": "Memory is read that nobody has written",
    "undefined result": "A result is used that the language leaves undefined",
    "false hint": "A hint to the compiler that does not hold",
    "input written to": "An input is written to",
    "endless loop": "A kernel's loop never ends",
    "deadlock": "Programs wait for each other for ever",
    finding.NEVER_STORED: "Elements of a result that nobody stores",
    finding.NO_ERROR: "A caller's mistake does not raise ValueError",
    finding.RAISED: "The call raises an exception",
    finding.TOO_MUCH_MOVED: "More memory is moved than is needed",
    finding.TOO_SLOW: "Right, but slow",
    finding.WRONG_VALUES: "Wrong values, and no misconception agrees with them",
    score.CRASHED: "The process crashes",
    score.TIMEOUT: "A call takes too long",
}
OTHER = "Something else"


@dataclass(frozen=True)
class Bar:
    """A column of the distribution: from `low` up to `high` points."""

    low: float
    high: float
    count: int
    share: float  # of the highest column


@dataclass(frozen=True)
class CheckRate:
    """How a check went over the class.

    Attributes:
        problem, name, claim, points: of the check.
        counts: of `ok`, which needs review too; `todo`; `lost`, all else that was graded.
        graded: submissions for which it was graded.
    """

    problem: str
    name: str
    claim: str
    points: float
    counts: dict[str, int]
    graded: int

    @property
    def rate(self) -> float:
        return self.counts["ok"] / self.graded if self.graded else 0.0


@dataclass(frozen=True)
class CommonCause:
    """A misconception, or another reason for failed checks, and the submissions that have it."""

    says: str
    more: str  # where the handout tells of it, and where to look
    name: str  # of the misconception; "" of another reason
    who: tuple[str, ...]


class ProblemFigures(TypedDict):
    """How a problem went over the class."""

    name: str
    title: str
    most: float
    mean: float
    all: int  # how many have all of its points
    none: int
    count: int


def distribution(reports: Reports) -> list[Bar]:
    """Return how many submissions have how many points, in tenths of those that can be had."""
    scores = [report["score"] for report in reports.values() if report["score"] is not None]
    most = max((report.get("gradable") or 0.0 for report in reports.values()), default=0.0) or 1.0
    counts = Counter(min(int(BINS * one / most), BINS - 1) for one in scores)
    highest = max(counts.values(), default=1)
    width = most / BINS
    return [Bar(i * width, (i + 1) * width, counts[i], counts[i] / highest) for i in range(BINS)]


def figures(values: Iterable[float]) -> dict[str, float]:
    """Return count, mean, quartiles, least and most of some numbers; of none only the count."""
    found = sorted(values)
    if not found:
        return {"count": 0}
    low, middle, high = statistics.quantiles(found, method="inclusive") if found[1:] else found * 3
    told = {"least": found[0], "low": low, "median": middle, "high": high, "most": found[-1]}
    return {"count": len(found), "mean": statistics.fmean(found), "sum": sum(found), **told}


def problems(reports: Reports) -> list[ProblemFigures]:
    """Return of each problem its title, points, mean and how many have all of it and none."""
    found: dict[str, list[ProblemEntry]] = {}
    for report in reports.values():
        for problem in report["problems"]:
            if problem["gradable"]:
                found.setdefault(problem["name"], []).append(problem)
    return [
        {
            "name": name,
            "title": group[0]["title"],
            "most": max(one["gradable"] for one in group),
            "mean": statistics.fmean(one["score"] for one in group),
            "all": sum(one["score"] >= one["gradable"] for one in group),
            "none": sum(not one["score"] for one in group),
            "count": len(group),
        }
        for name, group in found.items()
    ]


def rates(reports: Reports) -> list[CheckRate]:
    """Return how each check went, in the order of the reports."""
    found: dict[str, tuple[str, CheckEntry, Counter[str]]] = {}
    for report in reports.values():
        for problem in report["problems"]:
            for check in problem["checks"]:
                first = (problem["name"], check, Counter[str]())
                counts = found.setdefault(check["name"], first)[2]
                if check["status"] in score.KEEPS_POINTS:
                    counts["ok"] += 1
                elif check["status"] != score.NOT_GRADED:
                    counts["todo" if check["status"] == score.TO_DO else "lost"] += 1
    return [
        CheckRate(problem, name, check["claim"], check["max_score"], _parts_of(counts), counts.total())
        for name, (problem, check, counts) in found.items()
        if counts.total()
    ]


def _parts_of(counts: Counter[str]) -> dict[str, int]:
    return {part: counts[part] for part in ("ok", "lost", "todo")}


def misconceptions(reports: Reports) -> list[CommonCause]:
    """Return the likely causes that the reports name, the commonest first; those of one name are one cause."""
    first: dict[str, Explanation] = {}
    who: dict[str, dict[str, None]] = {}
    for name, report in reports.items():
        for one in (one for check in reporting.entries_of(report) for one in causes.misconceptions(check)):
            first.setdefault(one.name, one)
            who.setdefault(one.name, {})[name] = None
    return _commonest(
        CommonCause(one.says, f"{one.section}: {one.look}" if one.section else "", one.name, tuple(who[name]))
        for name, one in first.items()
    )


def others(reports: Reports) -> list[CommonCause]:
    """Return other kinds of failure, each once a submission, the commonest first."""
    who: dict[str, list[str]] = {}
    for name, report in reports.items():
        groups = causes.grouped(reporting.entries_of(report))
        kinds = {kind(group[0]) for group in groups if not any(check["hint"] for check in group)}
        for one in sorted(kinds - {""}):
            who.setdefault(one, []).append(name)
    return _commonest(CommonCause(says, "", "", tuple(whose)) for says, whose in who.items())


def kind(check: CheckEntry) -> str:
    """Return what is said of a failed check's kind; "" where it is none of the student's."""
    if check["status"] in (score.NEEDS_REVIEW, score.GRADER_ERROR):
        return ""
    return KINDS.get(causes.kind(check), OTHER)


def _commonest(found: Iterable[CommonCause]) -> list[CommonCause]:
    return sorted(found, key=lambda one: (-len(one.who), one.says))
