"""Which failed checks have one cause, so that it is told once."""

from collections.abc import Hashable, Iterable

from assignment.verdict import finding, score
from assignment.verdict.entries import CheckEntry

VALUES = (finding.WRONG_VALUES, finding.NEVER_STORED)
SILENT = (score.OK, score.TO_DO, score.NOT_GRADED)


def grouped(checks: Iterable[CheckEntry]) -> list[list[CheckEntry]]:
    """Return the checks of a report that failed, those with one cause together, and first the one that tells it.

    They have one cause if they have the same likely cause, or fail at the same lines for the same reason. Where a
    function's first check has wrong values, other wrong values of that function are put down to the same cause, unless
    another was found for them.
    """
    groups: dict[Hashable, list[CheckEntry]] = {}
    plain: dict[str, list[CheckEntry] | None] = {}  # by function, the group of its first check
    for check in checks:
        function = check.get("function", "")
        is_first = function not in plain
        group = plain.setdefault(function, None)
        if check["status"] in SILENT:
            continue
        has_wrong_values = kind(check) in VALUES
        if check["hint"] or not has_wrong_values or group is None:
            group = groups.setdefault(cause(check), [])
        group.append(check)
        if is_first and has_wrong_values:
            plain[function] = group
    return list(groups.values())


def kind(check: CheckEntry) -> str:
    """Return the kind of what is told of a failed check; "" in a report of an older grader."""
    return next((found["kind"] for found in check.get("findings", ())), "")


def cause(check: CheckEntry) -> Hashable:
    """Return what two checks have in common that have one cause: the misconceptions, or else what is told first."""
    if likely := frozenset(misconceptions(check)):
        return likely
    return next((finding.finding(found).cause for found in check.get("findings", ())), check["message"])


def lines(check: CheckEntry) -> list[finding.LineEntry]:
    """Return the lines of the submission that are named where it is told what is wrong with a check."""
    return [line for found in check.get("findings", ())[:1] for line in found.get("lines", ())]


def sections(check: CheckEntry) -> list[str]:
    """Return the sections of the handout that a check's hint names, such as "handout/rmsnorm.md#algorithm"."""
    return list(dict.fromkeys(one.section for one in misconceptions(check) if one.section))


def misconceptions(check: CheckEntry) -> list[finding.Explanation]:
    """Return what a check's wrong results may come from, each once."""
    told = (one for found in check.get("findings", ()) for one in found["misconceptions"])
    return list(dict.fromkeys(map(finding.explanation, told)))
