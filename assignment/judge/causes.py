"""Which failed checks have one cause, so that it is told once."""

import re
from collections.abc import Hashable, Iterable
from typing import Any

from assignment.judge import score

PLACES = ("at ", "computed at ", "called from ")
WRONG_VALUES = re.compile(r"^ *\w+: [\d,]+ of [\d,]+ elements? wrong", re.MULTILINE)
NOT_IMPORTED = re.compile(r"cs336_kernels\S* cannot be imported: .*")
IN_CASE = re.compile(r"^In case \[.*?\]: ")
SILENT = (score.OK, score.TO_DO, score.NOT_GRADED)


def grouped(checks: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the checks of a report that failed, those with one cause together, and first the one that tells it.

    They have one cause if they have the same likely cause, or fail at the same lines for the same reason. Where a
    function's first check has wrong values, other wrong values of that function are put down to the same cause, unless
    another was found for them.
    """
    groups: dict[Hashable, list[dict[str, Any]]] = {}
    plain: dict[str, Any] = {}  # by function, the group of its first check
    for check in checks:
        function = check["claim"].partition(" ")[0].removesuffix("'s")
        is_first = function not in plain
        group = plain.setdefault(function, None)
        if check["status"] in SILENT:
            continue
        has_wrong_values = bool(WRONG_VALUES.search(check["message"]))
        if check["hint"] or not has_wrong_values or group is None:
            group = groups.setdefault(cause(check), [])
        group.append(check)
        if is_first and has_wrong_values:
            plain[function] = group
    return list(groups.values())


def cause(check: dict[str, Any]) -> Hashable:
    return ("likely", IN_CASE.sub("", check["hint"])) if check["hint"] else reason(check["message"])


def reason(message: str) -> Hashable:
    """Return what two messages have in common that tell of one reason: the kind of failure and its lines, if any."""
    if broken := NOT_IMPORTED.search(message):
        return broken[0]
    _, _, said = message.removeprefix(score.NO_POINTS).partition("\n")  # without the call that the first line tells
    lines = [line.strip() for line in said.splitlines()]
    places = [line for line in lines if line.startswith(PLACES)]
    return (lines[0].partition(":")[0], *places) if places else said or message
