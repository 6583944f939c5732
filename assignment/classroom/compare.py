"""`compare RESULTS OLD`: what a change of the grader does to the grades of a class, before they are published."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from assignment.classroom import decisions, grades, tables
from assignment.classroom.kept import KeptReport
from assignment.submission import UnusableSubmission
from assignment.verdict import reporting

ALIKE, CHANGED = 0, 1
NO_GRADE = "not graded"
MOST = 20  # checks in the summary


@dataclass(frozen=True)
class Change:
    """What has become of one submission: its points before and after, and each check that ended otherwise."""

    name: str
    before: float
    after: float
    checks: tuple[tuple[str, str], ...]  # name; "ok → FAIL, −3"
    is_other: bool = False  # the submission itself is another one


def run(console: Console, results: Path, old: Path) -> int:
    """Compare two folders of results; returns 1 where a verdict on the same submission changes, otherwise 0."""
    new, before = reports(results), reports(old)
    for line in _heads(new, before):
        console.print(Text(line))
    both = sorted(new.keys() & before.keys())
    changes = [change for name in both if (change := changed(name, before[name], new[name]))]
    graders = [change for change in changes if not change.is_other]
    for change in changes:
        _tell(change, console)
    for title, names in (("only before", before.keys() - new.keys()), ("only now", new.keys() - before.keys())):
        if names:
            console.print(Text(f"{title}: {', '.join(sorted(names))}"))
    moved = [change for change in graders if change.before != change.after]
    up = sum(change.after > change.before for change in moved)
    console.print(f"{len(both)} in both: {len(both) - len(changes)} the same, {up} gain points, "
                  f"{len(moved) - up} lose points, {len(graders) - len(moved)} keep them with another verdict, "
                  f"{len(changes) - len(graders)} handed in something else")  # fmt: skip
    by_check = Counter((name, what) for change in graders for name, what in change.checks)
    for (name, what), count in by_check.most_common(MOST):
        console.print(Text(f"  {count:4} × {name}: {what}"))
    return CHANGED if graders else ALIKE


def reports(folder: Path) -> dict[str, KeptReport]:
    """Return a class's reports by name; raises UnusableSubmission."""
    if not any((folder / "reports").glob("*.json")):
        raise UnusableSubmission(f"{folder}: holds no reports; expected a folder that `grade --to` has made")
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in tables.report_paths(folder)}


def _heads(new: dict[str, KeptReport], old: dict[str, KeptReport]) -> list[str]:
    """Return what the two were graded with, and a warning where they differ in more than the grader."""
    lines, seeds = [], []
    for title, found in (("now", new), ("before", old)):
        graded = [report for report in found.values() if "failed" not in report]
        commits = sorted({report["classroom"].get("grader") or "?" for report in graded})
        seeds.append({report["seed"] for report in graded})
        lines.append(f"{title}: {len(found)} reports, grader {', '.join(commits) or '?'}")
    if seeds[0] != seeds[1]:
        lines.append("the seeds differ: a verdict may change with the inputs; copy class.toml into a new folder first")
    return lines


def changed(name: str, before: KeptReport, after: KeptReport) -> Change | None:
    """Return what has changed in a submission's verdicts; None for nothing."""
    of = decisions.sha256_of(before), decisions.sha256_of(after)
    is_other = all(of) and of[0] != of[1]  # one that could not be read has no hash
    was, now = _verdicts(before), _verdicts(after)
    different = [check for check in dict.fromkeys([*was, *now]) if was.get(check) != now.get(check)]
    checks = tuple((check, _in_words(was.get(check), now.get(check))) for check in different)
    points = grades.points(before), grades.points(after)
    if not checks and points[0] == points[1] and not is_other:
        return None
    return Change(name, *points, checks, is_other)


def _verdicts(report: KeptReport) -> dict[str, tuple[str, float]]:
    """Return status and points of each check; of no grade one entry."""
    if "failed" in report:
        return {NO_GRADE: (NO_GRADE, 0.0)}
    return {entry["name"]: (entry["status"], entry["score"]) for entry in reporting.entries_of(report)}


def _in_words(was: tuple[str, float] | None, now: tuple[str, float] | None) -> str:
    (before, had), (after, has) = was or ("absent", 0.0), now or ("absent", 0.0)
    return f"{before} → {after}, {has - had:+g}"


def _tell(change: Change, console: Console) -> None:
    said = f"{change.name}: {change.before:g} → {change.after:g}"
    console.print(Text(said + (", another submission" if change.is_other else "")))
    for name, what in change.checks:
        console.print(Text(f"    {name}: {what}"))
