"""What needs a person before grades are published, with the code around the lines it names."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from assignment import text
from assignment.classroom import decisions
from assignment.classroom.kept import Decision, KeptReport
from assignment.commands.excerpts import Excerpt, excerpts
from assignment.sandbox import rungs
from assignment.submission import UnusableSubmission, read
from assignment.verdict import causes, score
from assignment.verdict.entries import CheckEntry

NO_GRADE, SANDBOX = "not graded", "sandbox"


@dataclass(frozen=True)
class Evidence:
    """Something about a submission that needs a person.

    Attributes:
        name: of the submission.
        problem: whose points it is about, or decisions.TOTAL.
        why: a status of a check, NO_GRADE or SANDBOX.
        message: the evidence, which may tell the call.
        summary: its first line, which does not.
        checks: of these.
        earned, most: points now, and those that can be had.
        excerpts: the code that the message names.
        decision: what staff have decided about it; None while it is open.
    """

    name: str
    problem: str
    why: str
    message: str
    summary: str
    checks: tuple[str, ...]
    earned: float
    most: float
    excerpts: tuple[Excerpt, ...]
    decision: Decision | None = None


def sources(folder: Path, name: str, sha256: str) -> dict[str, str]:
    """Return the files of a submission as they were graded; none where they were not kept."""
    try:
        kept = read(folder / "sources" / f"{name}.zip")
    except UnusableSubmission:
        return {}
    return kept.sources if kept.sha256 == sha256 else {}


def is_below(got: str, asked: str) -> bool:
    """Return whether a sandbox holds less than the one asked for; for `auto` only the unsafe do."""
    if got in rungs.UNSAFE or got not in rungs.RUNGS:
        return True
    return asked in rungs.RUNGS and rungs.RUNGS.index(got) > rungs.RUNGS.index(asked)


def findings(
    name: str, report: KeptReport, decided: dict[str, Decision], files: dict[str, str], asked: str = rungs.AUTO
) -> list[Evidence]:
    """Return what needs a person, problem by problem, and last what is of the whole.

    Args:
        name: of the submission.
        report: on it.
        decided: the decisions that count for it, by problem.
        files: its sources.
        asked: the sandbox that was asked for.
    """
    found = []
    settled = decided.get(decisions.TOTAL)
    for problem in report["problems"] if "failed" not in report else ():
        decision = settled or decided.get(problem["name"])
        for group in _alike(problem["checks"]):
            message = group[0]["message"]
            names = tuple(check["name"] for check in group)
            points, why = (problem["score"], problem["max_score"]), group[0]["status"]
            here = excerpts(causes.lines(group[0]), files, set())
            of = problem["name"]
            says = next((one["says"] for one in group[0].get("findings", ())), message)
            found.append(Evidence(name, of, why, message, _first(says), names, *points, here, decision))
    points = (report["score"] or 0.0, report["max_score"] or decisions.largest(decisions.TOTAL))
    for why, message in _of_all(report, asked):
        found.append(Evidence(name, decisions.TOTAL, why, message, _first(message), (), *points, (), settled))
    return found


def _first(said: str) -> str:
    return next(iter(said.splitlines()), "no message").strip()


def _alike(checks: list[CheckEntry]) -> list[list[CheckEntry]]:
    """Return the checks that need a person, together those whose messages name the same lines."""
    groups: dict[Hashable, list[CheckEntry]] = {}
    for check in checks:
        if check["status"] in (score.NEEDS_REVIEW, score.GRADER_ERROR):
            groups.setdefault((check["status"], causes.cause(check)), []).append(check)
    return list(groups.values())


def _of_all(report: KeptReport, asked: str) -> list[tuple[str, str]]:
    """Return what needs a person about a whole submission: why, and the evidence."""
    if "failed" in report:
        return [(NO_GRADE, text.clean(report["failed"]))]
    told = [(score.GRADER_ERROR, text.clean(said)) for said in report.get("grader_failures", ())]
    if is_below(report["sandbox"], asked):
        wanted = "a real sandbox" if asked == rungs.AUTO else asked
        told.append((SANDBOX, f"graded in {report['sandbox'] or 'none'}; expected {wanted}"))
    return told
