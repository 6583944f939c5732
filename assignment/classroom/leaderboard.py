"""`leaderboard RESULTS`: a page of speed, as ratios to the baselines timed in the same minutes."""

import json
import math
import secrets
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from assignment import text
from assignment.classroom import class_report, grades, pages, tables
from assignment.classroom.kept import KeptReport
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission
from assignment.verdict import checks, reporting, score
from assignment.verdict.entries import CheckEntry

PAGE, PSEUDONYMS = "leaderboard.html", "pseudonyms.json"
ROUNDING = 1e-6  # points
# What a check is about that is not values: its name ends so.
NOT_VALUES, SPEED = ("_traffic", "_memory", "_compiles", "_mistakes"), "_speed"
WORDS = Path(__file__).with_name("pseudonyms.txt")  # a line of adjectives, one of animals


@dataclass(frozen=True)
class Ratio:
    """How fast a function is beside its baseline: over the cases of its check the geometric mean.

    Attributes:
        middle: of the medians of the rounds.
        low, high: of the slowest and of the fastest round of each case.
        cases: each in a line.
    """

    middle: float
    low: float
    high: float
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A function that is timed: its name, its baseline, and the ratio that earns full points."""

    function: str
    against: str
    full: float


@dataclass(frozen=True)
class LeaderboardRow:
    """A submission: its name on the board, its day, its ratios by function, and their mean."""

    name: str
    day: str
    ratios: dict[str, Ratio]
    overall: float | None  # where every function was timed


def run(console: Console, results: Path, to: Path | None, title: str, is_pseudonymous: bool) -> int:
    """Write the page; returns the exit status."""
    found = tables.read(results)
    reports = {handed.student: one for handed, one in found.counted}
    timed = {name: one for name, one in reports.items() if ratios_of(one)}
    if not timed:
        raise UnusableSubmission(f"{results}: nothing was timed; grade with --device cuda")
    if is_pseudonymous:
        names = pseudonyms(results / PSEUDONYMS, reports)
    else:
        names = distinct({one.student: class_report.people(one) for one, _ in found.counted})
    right = {name: one for name, one in timed.items() if is_right(one)}
    boards = [
        {"machine": text.line(machine), "columns": columns(own.values()), "rows": rows(own, names)}
        for machine, own in by_machine(right).items()
    ]
    path = to or results / PAGE
    left_out = len(timed) - len(right)
    pages.write(path, "leaderboard.html", title=f"{title}: leaderboard", boards=boards, left_out=left_out)
    console.print(f"{path} has {len(right)} submissions; {left_out} were timed and are not on it")
    return 0


def timed_checks(of: KeptReport) -> list[CheckEntry]:
    """Return the checks of speed that have figures; an older grader's do not say which function is timed."""
    return [one for one in reporting.entries_of(of) if one.get("timings") and one.get("function")]


def ratios_of(of: KeptReport) -> dict[str, Ratio]:
    """Return the ratios of a report, by function."""
    found = {}
    for check in timed_checks(of):
        timings = check["timings"]
        middle = _mean(one["ratio"] for one in timings)
        low, high = _mean(one["low"] for one in timings), _mean(one["high"] for one in timings)
        told = tuple(
            f"{one['case']}: {one['ratio']:.2f} ({one['low']:.2f}–{one['high']:.2f}), {one['us']:,.0f} µs"
            for one in timings
        )
        found[check["function"]] = Ratio(middle, low, high, told)
    return found


def _mean(values: Iterable[float]) -> float:
    """Return the geometric mean, 0 where one value is."""
    found = list(values)
    return statistics.geometric_mean(found) if min(found) > 0 else 0.0


def is_right(of: KeptReport) -> bool:
    """Return whether all values are right, with nothing open and no points taken away.

    What is timed has no points where a value is wrong, and a share of them where it is only slow.
    """
    if grades.state(of) not in ("", grades.DECIDED) or has_less(of):
        return False
    entries = [check for problem in of["problems"] for check in problem["checks"]]
    timed = [check for check in entries if check["name"].endswith(SPEED)]
    values = [one for one in entries if not one["name"].endswith((*NOT_VALUES, checks.SPEED))]
    if not {one["function"] for one in timed} <= {one["function"] for one in values}:
        return False  # whether its values are right was not asked
    return all(one["score"] or one["status"] == score.NOT_GRADED for one in timed) and all(
        one["status"] in score.KEEPS_POINTS for one in values
    )


def has_less(of: KeptReport) -> bool:
    """Return whether staff have taken points away from what the checks have earned."""
    earned = [sum(check["score"] for check in one["checks"]) for one in of["problems"]]
    pairs = [(one["score"], own) for one, own in zip(of["problems"], earned, strict=True)]
    return any(now < own - ROUNDING for now, own in [*pairs, (grades.points(of), sum(earned))])


def by_machine(reports: dict[str, KeptReport]) -> dict[str, dict[str, KeptReport]]:
    """Return the reports of each machine: ratios of two machines are not compared."""
    found: dict[str, dict[str, KeptReport]] = {}
    for name, one in reports.items():
        found.setdefault(one["device"].removeprefix("cuda: "), {})[name] = one
    return found


def columns(reports: Iterable[KeptReport]) -> list[Column]:
    """Return the functions that were timed, in the order of the reports."""
    found: dict[str, Column] = {}
    for one in reports:
        for check in timed_checks(one):
            first = check["timings"][0]
            column = Column(check["function"], first["against"], first["full_points_from"])
            found.setdefault(column.function, column)
    return list(found.values())


def rows(reports: dict[str, KeptReport], names: dict[str, str]) -> list[LeaderboardRow]:
    """Return a row for each submission, those first that are faster over all functions."""
    wanted = [column.function for column in columns(reports.values())]
    found = []
    for name, one in reports.items():
        ratios = ratios_of(one)
        is_whole = all(function in ratios for function in wanted)
        overall = _mean(ratio.middle for ratio in ratios.values()) if is_whole else None
        found.append(LeaderboardRow(names[name], one["classroom"]["graded"][:10], ratios, overall))
    return sorted(found, key=lambda row: (-(row.overall or -math.inf), row.name))


def distinct(names: dict[str, str]) -> dict[str, str]:
    """Return what students are called: their names, with what tells them apart where these are alike."""
    count = Counter(names.values())
    return {
        student: name if name and count[name] == 1 else f"{name} ({student})" if name else student
        for student, name in names.items()
    }


def pseudonyms(path: Path, students: Iterable[str]) -> dict[str, str]:
    """Return a pseudonym for each student: drawn once, kept in a file, and never changed.

    Raises:
        UnusableSubmission: the file cannot be read.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        kept = {str(name): text.line(str(said)) for name, said in kept.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise UnusableSubmission(f"{path} cannot be read: {error}; mend it or remove it") from error
    adjectives, animals = (line.split() for line in WORDS.read_text().splitlines())
    free = {f"{adjective} {animal}" for adjective in adjectives for animal in animals}
    left = sorted(free - set(kept.values()))
    secrets.SystemRandom().shuffle(left)
    for student in students:
        if student not in kept:
            kept[student] = left.pop() if left else f"student {secrets.token_hex(4)}"
    replace(path, json.dumps(kept, indent=1, sort_keys=True).encode())
    return kept
