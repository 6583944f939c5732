"""What a student reads after the first run of all, when nothing is written yet."""

from assignment.verdict import checks, score, where
from assignment.verdict.entries import Report


def lines(report: Report) -> list[str]:
    """Return a greeting that leads to the first kernel, which is practice; nothing where somebody has begun."""
    statuses = {check["status"] for problem in report["problems"] for check in problem["checks"]}
    if report["practice"] or score.TO_DO not in statuses or statuses - {score.TO_DO, score.NOT_GRADED}:
        return []
    check = next(check for check in checks.declared() if checks.is_practice(check.problem))
    first = where.place(check)
    return [
        "Welcome! Nothing is written yet, and nothing is wrong.",
        '  read    handout.md, from the top to "Your first kernel"',
        f"  write   {first.function}, your first kernel, in {first.file}",
        f"  grade   uv run grade.py --only {check.problem}",
        "",
    ]
