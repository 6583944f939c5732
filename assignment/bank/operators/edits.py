"""How a planted bug and a right style are written: edits of a correct solution, and what must come of them.

Bugs lie in operators/NAME/bugs, styles in operators/NAME/styles; bugs.py and corpus.py gather them.
"""

import ast
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


@dataclass(frozen=True)
class Style:
    """One right submission: the base written in another style."""

    name: str
    edits: tuple[tuple[str, str], ...]  # as of a bug; "def f" or "class C" stands for all of it, decorators too
    more: tuple[tuple[str, str], ...]  # files beside it: name in the package, text


def style(name: str, *edits: tuple[str, str], **more: str) -> Style:
    """Return a style from edits (old, new); `more` are modules of its own, by name."""
    return Style(name, edits, tuple((f"{module}.py", text) for module, text in more.items()))


def edited(files: dict[str, bytes], edits: tuple[tuple[str, str], ...], name: str) -> dict[str, bytes]:
    """Return files by path with edits made, in turns; what an edit replaces stands once in one of them.

    Raises:
        ValueError: if it does not.
    """
    files = dict(files)
    for old, new in edits:
        whole = {path: _whole(content.decode(), old) for path, content in files.items()}
        counts = {path: content.count(whole[path].encode()) for path, content in files.items()}
        if sum(counts.values()) != 1:
            raise ValueError(f"{name}: expected {old!r} once, got {counts}")
        path = max(counts, key=counts.__getitem__)
        files[path] = files[path].replace(whole[path].encode(), new.encode())
    return files


def _whole(source: str, old: str) -> str:
    """Return what an edit replaces: for "def f" or "class C", at the top of a module, all its lines."""
    if not (named := re.fullmatch(r"(?:def|class) (\w+)", old)):
        return old
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == named[1]:
            first = min(part.lineno for part in (node, *node.decorator_list))
            return "".join(source.splitlines(keepends=True)[first - 1 : node.end_lineno])
    return old


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
