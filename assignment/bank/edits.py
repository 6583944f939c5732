"""How a planted bug is written: edits of a correct solution, the check that must catch them, and what must be told.

Bugs lie in operators/NAME/bugs; bugs.py gathers them.
"""

import re
from dataclasses import dataclass

ARROW = " → "
CELL, LINE_END = " | ", "⏎"  # of a table
DIRECTIONS = ("forward", "backward")  # that stand in the names of checks
QUOTED = ("line", "computed", "compiled")


@dataclass(frozen=True)
class Bug:
    """One wrong submission: the base with a few edits, and what must come of it."""

    name: str  # in plain words, short, unique in the problem
    edits: tuple[tuple[str, str], ...]  # (old, new); old occurs exactly once in the problem's files of the base
    caught_by: (
        str  # the check that must catch it, in the problem's file or as "file::check"; its message leads to the bug
    )
    line: str = ""  # of a bug in its accesses: what caught_by must quote, a part of the line at fault or "never stored"
    computed: str = ""  # of a bug whose results are not a kernel's: what caught_by must quote of the line that computes
    compiled: str = ""  # of a bug that only a compiler sees: what caught_by must quote
    named: tuple[str, ...] = ()  # misconceptions or parts of the message, one of which must be told; none: not yet


def bug(
    name: str,
    caught_by: str,
    *edits: str,
    line: str = "",
    computed: str = "",
    compiled: str = "",
    named: str | tuple[str, ...] = (),
) -> Bug:
    """Return a bug from edits written as "old → new".

    `named` is what a student must be told: a misconception by its name, or a part of the message; of several, one:
    which case is shown depends on the seed. A bug that has a line at fault is told by it.
    """
    pairs = tuple((old, new) for old, new in (edit.split(ARROW) for edit in edits))
    names = (named,) if isinstance(named, str) else named
    return Bug(name, pairs, caught_by, line, computed, compiled, names)


def table(direction: str, rows: str, **parts: str) -> list[Bug]:
    """Return bugs from a table: a line "name | check | edit | hint" for each, which indented lines go on.

    "values" is the check test_forward_values if the direction is forward or backward, otherwise test_values; a name
    that begins with test_ is meant as it stands. There may be several edits. In them ⏎ ends a line, and {PART} stands
    for one of the parts. The hint is what `bug` takes as `named`, several with " / " between, "-" for none, or begins
    with "line: ", "computed: " or "compiled: ".
    """
    lines = re.sub(r"\n +", " ", rows.strip()).splitlines()
    return [_of_row(direction, line.split(CELL), parts) for line in lines]


def _of_row(direction: str, cells: list[str], parts: dict[str, str]) -> Bug:
    name, check, *edits, hint = cells
    prefix = "" if check.startswith("test_") else f"test_{direction}_" if direction in DIRECTIONS else "test_"
    filled = [re.sub(r"\{(\w+)\}", lambda m: parts.get(m[1], m[0]), edit).replace(LINE_END, "\n") for edit in edits]
    kind, _, quoted = hint.partition(": ")
    told = {kind: quoted} if kind in QUOTED else {}
    named = () if told or hint == "-" else tuple(hint.split(" / "))
    return bug(f"{direction}: {name}", prefix + check, *filled, named=named, **told)
