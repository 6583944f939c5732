"""A report in Gradescope's form, results.json: a test for each check; and what only staff see, as text."""

import json
from typing import TypedDict

from assignment import text
from assignment.classroom import COMMAND
from assignment.commands import markdown
from assignment.commands import report as screen
from assignment.sandbox import rungs
from assignment.verdict import checks, reporting, score
from assignment.verdict.entries import CheckEntry, ProblemEntry, Report

FAILED = (
    "**The grader failed. This is no grade, and it is not your code.** "
    "The course's staff see why, and can run it again: nothing has to be handed in anew."
)
NO_SANDBOX = (
    "!! No sandbox works in this container, not even Landlock. The submission ran as a plain user, with limits alone: "
    "it could have forged its report, and used the network. Read its code before you trust its points, or grade the "
    f"class elsewhere: `{COMMAND} grade`."
)


class GradescopeTest(TypedDict):
    """A check, as Gradescope shows a test."""

    number: str
    name: str
    score: float
    max_score: float
    status: str
    output: str
    output_format: str
    tags: list[str]


class LeaderboardEntry(TypedDict):
    """A row of Gradescope's leaderboard."""

    name: str
    value: float
    order: str


class GradescopeResults(TypedDict, total=False):
    """A results.json; without a score Gradescope shows a failure of the autograder."""

    score: float
    execution_time: int
    output: str
    output_format: str
    test_output_format: str
    test_name_format: str
    visibility: str
    stdout_visibility: str
    tests: list[GradescopeTest]
    leaderboard: list[LeaderboardEntry]
    extra_data: dict[str, object]  # for staff: of any form


def of(report: Report, commit: str, visibility: str) -> GradescopeResults:
    """Return a grade; without a hidden test, beside which Gradescope shows no student a total."""
    tests = [
        _test(f"{first}.{second}", problem, entry)
        for first, problem in enumerate(reporting.problems_of(report), start=1)
        for second, entry in enumerate(problem["checks"], start=1)
        if entry["status"] != score.NOT_GRADED
    ]
    lines = [f"**{markdown.plain(screen.total(report))}**", "", *markdown.summary(report), *markdown.dates()]
    if step := screen.next_step(report):
        lines += ["", "Next:", "", *markdown.block(step)]
    return {
        "score": report["score"],
        "execution_time": round(report["seconds"]),
        "output": "\n".join(lines),
        "output_format": "md",
        "test_output_format": "md",
        "test_name_format": "text",
        "visibility": visibility,
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": leaderboard(report),
        "extra_data": {
            "submission_sha256": report["submission_sha256"],
            "versions": report["versions"],
            "device": report["device"],
            "sandbox": report["sandbox"],
            "jobs": report["jobs"],
            "seed": str(report["seed"]),  # it has 64 bits, more than a float
            "grader": commit,
        },
    }


def _test(number: str, problem: ProblemEntry, entry: CheckEntry) -> GradescopeTest:
    """Return a check as a test; one of practice is worth nothing."""
    is_good = entry["status"] in score.KEEPS_POINTS
    is_practice = checks.is_practice(problem["name"])
    told = [markdown.plain(entry["claim"])] if is_good else markdown.check(entry)
    return {
        "number": number,
        "name": f"{problem['name']}: {entry['name'].partition('::')[2]}",
        "score": 0.0 if is_practice else entry["score"],
        "max_score": 0.0 if is_practice else entry["max_score"],
        "status": "passed" if is_good else "failed",
        "output": "\n".join(told if is_good else [f"**{markdown.plain(entry['status'])}**", "", *told]),
        "output_format": "md",
        "tags": [problem["name"], entry["status"]],
    }


def for_staff(report: Report, commit: str, machine: str) -> str:
    """Return what only staff are told, as text: what it takes to repeat the run, and what a person should look at."""
    facts = {"seed": report["seed"], "grader": commit, "machine": machine, "sandbox": report["sandbox"]}
    lines = [NO_SANDBOX, ""] if report["sandbox"] in rungs.UNSAFE else []
    lines += ["For staff:", *(f"  {name}: {text.line(str(fact))}" for name, fact in facts.items())]
    for entry in reporting.entries_of(report):
        if entry["status"] == score.NEEDS_REVIEW:
            lines += ["", f"needs review: {text.line(entry['name'])}", *_quoted(entry["message"])]
    for note in report["notes_to_staff"]:
        lines += ["", "Note of the grader:", *_quoted(note)]
    return "\n".join(lines)


def _quoted(message: str) -> list[str]:
    return [f"  | {line}" for line in text.clean(screen.short(message)).splitlines()]


def leaderboard(report: Report) -> list[LeaderboardEntry]:
    """Return for each check of speed the smallest ratio to its baseline; nothing where a value is wrong."""
    entries = reporting.entries_of(report)
    timed = [entry for entry in entries if entry.get("timings")]
    if any(entry["status"] != score.OK for entry in entries if entry not in timed):
        return []
    board: list[LeaderboardEntry] = []
    for entry in timed:
        name = text.line(entry["name"].partition("::")[2].removeprefix("test_").replace("_", " "))
        board.append({"name": name, "value": min(timing["ratio"] for timing in entry["timings"]), "order": "desc"})
    return board


def unusable(why: str) -> GradescopeResults:
    """Return the results of an upload that is no submission: no points, and what was expected."""
    return {
        "score": 0.0,
        "output": "\n".join(["There is nothing to grade in what you have uploaded:", "", *markdown.block(why)]),
        "output_format": "md",
    }


def failed(why: str = "") -> GradescopeResults:
    """Return results without a score, which Gradescope shows as a failure of the autograder."""
    return {"output": FAILED, "output_format": "md", "extra_data": {"failed": text.clean(why)}}


def as_json(results: GradescopeResults) -> bytes:
    return json.dumps(results, indent=1, allow_nan=False).encode()
