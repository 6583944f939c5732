"""What staff have decided about submissions: a TOML file beside the results.

    [[decision]]
    name = "ada"
    problem = "rmsnorm"
    points = 12.0
    reason = "clamps its input: agreed in the office hour"
    by = "Grace"
    when = 2026-12-02T10:00:00+00:00
    sha256 = "…"

A decision sets the points of a problem, or with the problem "total" of all, of the submission with
this hash and of no other. Decisions are only ever added, and may be edited by hand: of two about the
same the later one counts.
"""

import datetime
import fcntl
import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from assignment import text
from assignment.classroom.kept import Decision, KeptReport
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission
from assignment.verdict import checks

FILE = "decisions.toml"
TOTAL = "total"
HEAD = """\
# Decisions of the staff: see "Grade a class" in assignment/README.md.
# Of two about the same, the later one counts.
# sha256 says which submission is meant: once another is handed in, the decision is void.
"""
BEGIN = re.compile(r"^[ \t]*\[\[[ \t]*decision[ \t]*\]\]", re.MULTILINE)


def largest(problem: str) -> float:
    """Return the points that a problem, or the total, may have; raises ValueError for another name."""
    graded = {n: one.points for n, one in checks.problems().items() if not checks.is_practice(n)}
    if problem == TOTAL:
        return sum(graded.values())
    if problem not in graded:
        raise ValueError(f"problem: expected {', '.join([*graded, TOTAL])}, got {problem!r}")
    return graded[problem]


def checked(entry: dict[str, Any]) -> Decision:
    """Return a table of the file as a decision; raises ValueError."""
    wanted = [field.name for field in fields(Decision)]
    if wrong := sorted(set(entry) - set(wanted)):
        raise ValueError(f"{wrong[0]}: expected one of {', '.join(wanted)}")
    if missing := [name for name in wanted if name not in entry]:
        raise ValueError(f"{missing[0]} is missing")
    when, points = entry["when"], entry["points"]
    if isinstance(when, (datetime.date, datetime.datetime)):
        entry = {**entry, "when": when.isoformat()}
    for name in wanted:
        if name != "points" and not isinstance(entry[name], str):
            raise ValueError(f"{name}: expected text in quotation marks, got {entry[name]!r}")
    most = largest(entry["problem"])
    is_number = isinstance(points, (int, float)) and not isinstance(points, bool)
    if not is_number or not math.isfinite(points) or not 0 <= points <= most:
        raise ValueError(f"points: expected a number from 0 to {most:g}, got {points!r}")
    return Decision(**{**entry, "points": float(points)})


def parsed(content: str, path: Path) -> list[Decision]:
    """Return the decisions of a text, in its order; raises UnusableSubmission, with the line."""
    try:
        data = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise _refusal(path, str(error)) from None
    entries = data.pop("decision", [])
    if data:
        line = _line_of(rf"^[ \t\[]*{re.escape(next(iter(data)))}\b", content)
        raise _refusal(path, f"{next(iter(data))!r} in line {line}: expected only [[decision]]")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _refusal(path, f"line {_line_of('decision', content)}: expected [[decision]]")
    begun = [_number(content, match.start()) for match in BEGIN.finditer(content)]
    found = []
    for i, entry in enumerate(entries):
        try:
            found.append(checked(entry))
        except ValueError as error:
            has_line = len(begun) == len(entries)
            where = f"the decision in line {begun[i]}" if has_line else f"decision {i + 1}"
            raise _refusal(path, f"{where}: {error}") from None
    return found


def _number(content: str, position: int) -> int:
    return content.count("\n", 0, position) + 1


def _line_of(pattern: str, content: str) -> int:
    match = re.search(pattern, content, re.MULTILINE)
    return _number(content, match.start()) if match else 1


def _refusal(path: Path, why: str) -> UnusableSubmission:
    return UnusableSubmission(f"{path}: {why}; mend it: until then no decision can count")


def read(folder: Path) -> list[Decision]:
    """Return the decisions beside the results; raises UnusableSubmission."""
    return parsed(_content(folder / FILE), folder / FILE)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(path, str(error)) from error


def add(folder: Path, decision: Decision) -> None:
    """Append a decision to the file, of which nothing else changes; raises UnusableSubmission."""
    path = folder / FILE
    with _locked(folder):
        before = _content(path)
        parsed(before, path)
        start = before if not before or before.endswith("\n") else f"{before}\n"
        content = f"{start or HEAD}\n{as_toml(decision)}"
        if parsed(content, path)[-1] != decision:
            raise _refusal(path, "the decision cannot be added to it")
        replace(path, content.encode())


def as_toml(decision: Decision) -> str:
    """Return a decision as a table of the file."""
    lines = ["[[decision]]"]
    for name, value in asdict(decision).items():
        shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
        lines.append(f"{name} = {shown}")
    return "\n".join(lines) + "\n"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time change the file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def new(name: str, problem: str, points: float, reason: str, by: str, sha256: str) -> Decision:
    """Return a decision of this moment; raises ValueError."""
    when = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    said = {"name": name, "problem": problem, "reason": text.line(reason), "by": text.line(by)}
    if not said["reason"].strip() or not said["by"].strip():
        raise ValueError("--reason and --by: expected a few words")
    return checked({**said, "points": points, "when": when, "sha256": sha256})


def about(decisions: Iterable[Decision], name: str, report: KeptReport) -> dict[str, Decision]:
    """Return the decisions that count for a report, by problem."""
    kept = [one for one in decisions if one.name == name and one.sha256 == sha256_of(report)]
    return {one.problem: one for one in kept if one.problem in (TOTAL, *_problems(report))}


def void(decisions: Iterable[Decision], reports: dict[str, KeptReport]) -> list[tuple[Decision, str]]:
    """Return the decisions that count for none of the reports, each with the reason."""
    found = []
    for one in decisions:
        report = reports.get(one.name)
        if report is None:
            found.append((one, "there is no report of this name"))
        elif one.sha256 != sha256_of(report):
            found.append((one, "the submission has changed since"))
        elif one.problem not in (TOTAL, *_problems(report)):
            found.append((one, "the report has no such problem"))
    return found


def _problems(report: KeptReport) -> list[str]:
    return [problem["name"] for problem in report["problems"]]


def sha256_of(report: KeptReport) -> str:
    """Return the hash of the submission that a report is of; "" where it could not be read."""
    return str(report.get("submission_sha256") or report.get("classroom", {}).get("sha256") or "")


def applied(report: KeptReport, decided: dict[str, Decision]) -> KeptReport:
    """Return a report with the points that were decided, and the decisions under `decided`."""
    if not decided:
        return report
    problems = [*report["problems"]]
    for i, one in enumerate(problems):
        if one["name"] in decided:
            problems[i] = {**one, "score": decided[one["name"]].points}
    summed = round(sum(problem["score"] for problem in problems), 6)
    return {
        **report,
        "problems": problems,
        "score": decided[TOTAL].points if TOTAL in decided else summed,
        "decided": decided,
    }
