"""The best score so far and the verdicts of the last full run, kept in the user's cache folder, for display alone.

Nothing is trusted: what cannot be read, or is not of the expected form, was never there.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from assignment.compiling import cache
from assignment.protocol import forms
from assignment.verdict import score
from assignment.verdict.entries import Report

KIND = "progress"
MAX_NAMED = 5
MAX_KEPT = 50  # scores


@dataclass(frozen=True)
class Earlier:
    """What is known of earlier runs of the submission in one folder."""

    best: float
    good: dict[str, bool]  # by check: whether it kept its points
    scores: tuple[float, ...] = ()  # of the last runs


def lines(path: Path, report: Report) -> list[str]:
    """Return how a full grade compares with those before it, which it then joins."""
    name = key(path, report)
    before, now = recall(name), good(report)
    best = max(report["score"], before.best if before else 0.0)
    scores = [*(before.scores if before else ()), report["score"]][-MAX_KEPT:]
    cache.remember(name, {"best": best, "good": now, "scores": scores}, KIND)
    return compare(before, report) if before else []


def scores(path: Path, report: Report) -> list[float]:
    """Return the scores of earlier full grades of a folder, and this one's."""
    before = recall(key(path, report))
    return [*(before.scores if before else ()), report["score"]]


def compare(before: Earlier, report: Report) -> list[str]:
    now = good(report)
    passed = [check for check, is_good in now.items() if is_good and before.good.get(check) is False]
    broken = [check for check, is_good in now.items() if not is_good and before.good.get(check) is True]
    told = [*_listed("Newly passed", passed), *_listed("Newly broken", broken)]
    gain = report["score"] - before.best
    if gain > 0:
        told.append(f"Your best score so far; before, it was {before.best:g}.")
    elif gain < 0:
        told.append(f"Your best score so far is {before.best:g}.")
    return [*told, ""] if told else []


def _listed(what: str, names: list[str]) -> list[str]:
    more = f", and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"{what} since the last full run: {', '.join(names[:MAX_NAMED])}{more}"] if names else []


def good(report: Report) -> dict[str, bool]:
    """Return, for each check that was graded, whether it keeps its points."""
    checks = [check for problem in report["problems"] for check in problem["checks"]]
    return {c["name"]: c["status"] in score.KEEPS_POINTS for c in checks if c["status"] != score.NOT_GRADED}


def key(path: Path, report: Report) -> str:
    """Return the key of a folder, and of what can be graded on the device."""
    text = os.fsencode(path.resolve()) + f"\0{report['gradable']:g}".encode()
    return hashlib.sha256(text).hexdigest()


def recall(name: str) -> Earlier | None:
    data = cache.recall(name, KIND)
    try:
        found = forms.read(Earlier, {"scores": [], **data} if isinstance(data, dict) else data)
    except forms.Misformed:
        return None
    return found if all(0 <= one <= 100 for one in (found.best, *found.scores)) else None
