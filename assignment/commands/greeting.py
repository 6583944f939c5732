"""What a student reads after the first run of all, when nothing is written yet."""

from typing import Any

from assignment.judge import score, where
from assignment.judge.checks import Check


def lines(report: dict[str, Any], first_verdict_s: float) -> list[str]:
    """A greeting where all checks are to do, else nothing; what a run costs is what this one did."""
    checks = [check for problem in report["problems"] for check in problem["checks"]]
    todo = [check for check in checks if check["status"] == score.TO_DO]
    if not todo or any(check["status"] not in (score.TO_DO, score.NOT_GRADED) for check in checks):
        return []
    problem = next(problem["name"] for problem in report["problems"] if todo[0] in problem["checks"])
    first = where.place(Check(todo[0]["name"], problem, todo[0]["claim"], todo[0]["max_score"]))
    return [
        "Welcome! Nothing is written yet, and nothing is wrong.",
        f"  first   read handout.md and {first.section}; open {first.file} and write {first.function}",
        f"  time    this run took {report['seconds']:.0f} s; its first verdict came after {first_verdict_s:.0f} s",
        "  then    uv run grade.py --next            the first check that is not finished, and no more",
        "          uv run grade.py --next --watch    the same, again whenever you save",
        "",
    ]
