"""Whether a cheat came to what it must: pure functions of its result."""

import functools
import re

from assignment.bank.cheats import HARMLESS, LOSES, MISTAKE, REFUSED, REVIEWED, ZERO, Cheat
from assignment.bank.run.judging import Result
from assignment.verdict import checks, score

UNUSABLE = 2  # grade.py's exit status
LIMITS_ALONE = "rlimits"  # the rung that hides nothing


def wrong(cheat: Cheat, result: Result, problem_of: dict[str, str]) -> list[str]:
    """Return what is not as expected, a line each."""
    if is_unavailable(result) or is_open(cheat, result):
        return []
    if cheat.expected == REFUSED:
        return [*result.trouble, *_refusal(cheat, result)]
    if result.status != 0:
        return [*result.trouble, f"grade.py ended with {result.status}: {result.said.strip()[-200:]}"]
    own = [name for name in result.verdicts if problem_of[name] == cheat.problem]
    others = [name for name in result.verdicts if problem_of[name] != cheat.problem]
    lines = [*result.trouble, *_mistakes(result)]
    lines += [f"costs points elsewhere: {n}" for n in others if n in result.failed and not cheat.hurts_all]
    broken = [name for name in own if result.verdicts[name].status == score.GRADER_ERROR]
    lines += [f"the grader failed in {name}" for name in broken]
    return [*lines, *_points(cheat, result, own), *_evidence(cheat, result, own)]


def is_unavailable(result: Result) -> bool:
    """Return whether the machine does not offer the rung that was asked for."""
    return result.status == UNUSABLE and "--sandbox" in result.said


def is_open(cheat: Cheat, result: Result) -> bool:
    """Return whether nothing could hold it: limits alone hide no file, no process and no network."""
    return cheat.confined and result.rung.startswith(LIMITS_ALONE)


def _mistakes(result: Result) -> list[str]:
    return [f"{name}: {_first(result, name)}" for name in result.failed if MISTAKE in result.verdicts[name].message]


def _refusal(cheat: Cheat, result: Result) -> list[str]:
    if result.status == UNUSABLE and re.search(cheat.evidence, result.said):
        return []
    return [f"was to be refused, and grade.py ended with {result.status}: {result.said.strip()[-200:]}"]


def _points(cheat: Cheat, result: Result, own: list[str]) -> list[str]:
    if cheat.expected == ZERO and _is_worthless(cheat, result, own):
        return []
    lost = [name for name in own if name in result.failed]
    kept = [name for name in own if name not in result.failed]
    if cheat.expected == HARMLESS and lost:
        return [f"costs its author {name}: {_first(result, name)}" for name in lost[:1]]
    if cheat.expected == LOSES:
        kept = [name for name in kept if any(part in name for part in cheat.loses)]
    elif cheat.expected == REVIEWED:
        kept = [name for name in kept if result.verdicts[name].status != score.NEEDS_REVIEW]
    elif cheat.expected != ZERO:
        kept = []
    return [f"keeps {', '.join(kept)}"] if kept else []


def _is_worthless(cheat: Cheat, result: Result, own: list[str]) -> bool:
    """Return whether all checks of the functions that it replaces are lost, but for those of callers' mistakes."""
    replaced = [name for name in own if _function(name) in cheat.functions and "mistakes" not in name]
    return bool(replaced) and all(name in result.failed for name in replaced)


@functools.cache
def _function(check: str) -> str:
    return checks.place(check)[0]


def _evidence(cheat: Cheat, result: Result, own: list[str]) -> list[str]:
    """Return what no message says though a lost check must: one of them, or each of the checks that are named.

    Where what it computes is wrong or refused, for every check of the functions that it replaces, nothing need be seen.
    """
    if cheat.expected == ZERO and _is_worthless(cheat, result, own):
        return []
    lost = {name: result.verdicts[name] for name in own if name in result.failed}
    told = {name: verdict.message for name, verdict in lost.items() if verdict.ran}  # the others have none of their own
    if cheat.expected == LOSES:
        told = {name: text for name, text in told.items() if any(part in name for part in cheat.loses)}
    silent = [name for name, text in told.items() if not re.search(cheat.evidence, text)]
    if not silent or (cheat.expected != LOSES and len(silent) < len(told)):
        return []
    return [f"no evidence like {cheat.evidence!r} in {name}: {_first(result, name)}" for name in silent[:1]]


def _first(result: Result, name: str) -> str:
    return " / ".join(result.verdicts[name].message.splitlines())[:300]


def came(cheat: Cheat, result: Result, problem_of: dict[str, str]) -> str:
    """Return "2 of 2 checks lost, FAIL: …": what the first check that was lost says."""
    if result.status != 0:
        return f"exit status {result.status}"
    own = [name for name in result.verdicts if problem_of[name] == cheat.problem]
    lost = [name for name in own if name in result.failed]
    reviewed = [name for name in own if result.verdicts[name].status == score.NEEDS_REVIEW]
    if not lost:
        return f"needs review in {len(reviewed)} of {len(own)} checks" if reviewed else "keeps every point"
    statuses = ", ".join(sorted({result.verdicts[name].status for name in lost}))
    return f"loses {len(lost)} of {len(own)} checks: {statuses}"
