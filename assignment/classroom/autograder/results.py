"""A report in Gradescope's form, results.json: a test for each check, and what only staff see."""

import json
import re
from typing import Any

from assignment import text
from assignment.commands import markdown
from assignment.commands import report as screen
from assignment.judge import checks, score
from assignment.sandbox import rungs

RATIO = re.compile(r": (\d+\.\d+) × ")
FAILED = (
    "**The grader failed. This is no grade, and it is not your code.** "
    "The course's staff see why, and can run it again: nothing has to be handed in anew."
)
NO_SANDBOX = (
    "**No sandbox works in this container**, not even Landlock. The submission ran as a plain user, with limits alone: "
    "it could have forged its report, and used the network. Read its code before you trust its points, or grade the "
    "class elsewhere: `python -m assignment.classroom grade`."
)


def of(report: dict[str, Any], commit: str, machine: str, visibility: str) -> dict[str, Any]:
    """Return a grade."""
    tests = [
        _test(f"{first}.{second}", problem, entry)
        for first, problem in enumerate((*report["problems"], *report["practice"]), start=1)
        for second, entry in enumerate(problem["checks"], start=1)
        if entry["status"] != score.NOT_GRADED
    ]
    lines = [f"**{markdown.plain(screen.total(report))}**", "", *markdown.summary(report)]
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
        "tests": [*tests, _for_staff(report, commit, machine)],
        "leaderboard": leaderboard(report),
        "extra_data": {name: report[name] for name in ("submission_sha256", "versions", "device", "sandbox", "jobs")}
        | {"seed": str(report["seed"]), "grader": commit},  # a seed has 64 bits, more than a float
    }


def _test(number: str, problem: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
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


def _for_staff(report: dict[str, Any], commit: str, machine: str) -> dict[str, Any]:
    """Return a test that students never see: what it takes to repeat the run, and what a person should look at."""
    facts = {"seed": report["seed"], "grader": commit, "machine": machine, "sandbox": report["sandbox"]}
    lines = [f"- {name}: {markdown.code(str(fact))}" for name, fact in facts.items()]
    if report["sandbox"] in rungs.UNSAFE:
        lines = [NO_SANDBOX, "", *lines]
    for entry in score.entries_of(report):
        if entry["status"] == score.NEEDS_REVIEW:
            title = f"**needs review**: {markdown.code(entry['name'])}"
            lines += ["", title, "", *markdown.block(screen.short(entry["message"]))]
    for note in report["notes_to_staff"]:
        lines += ["", "Note of the grader:", "", *markdown.block(screen.short(note))]
    return {"name": "For staff", "visibility": "hidden", "output": "\n".join(lines), "output_format": "md"}


def leaderboard(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each check of speed the smallest ratio to its baseline; nothing where a value is wrong."""
    entries = score.entries_of(report)
    timed = [entry for entry in entries if entry.get("measured")]
    if any(entry["status"] != score.OK for entry in entries if entry not in timed):
        return []
    board = []
    for entry in timed:
        ratios = [float(found[1]) for line in entry["measured"] if (found := RATIO.search(line))]
        if ratios:
            name = text.line(entry["name"].partition("::")[2].removeprefix("test_").replace("_", " "))
            board.append({"name": name, "value": min(ratios), "order": "desc"})
    return board


def unusable(why: str) -> dict[str, Any]:
    """Return the results of an upload that is no submission: no points, and what was expected."""
    return {
        "score": 0.0,
        "output": "\n".join(["There is nothing to grade in what you have uploaded:", "", *markdown.block(why)]),
        "output_format": "md",
    }


def failed(why: str = "") -> dict[str, Any]:
    """Return results without a score, which Gradescope shows as a failure of the autograder."""
    return {"output": FAILED, "output_format": "md", "extra_data": {"failed": text.clean(why)}}


def as_json(results: dict[str, Any]) -> bytes:
    return json.dumps(results, indent=1, allow_nan=False).encode()
