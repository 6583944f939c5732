"""Text that a submission can influence, made safe to show on a terminal, in JSON, XML or a log."""

import difflib
from collections.abc import Iterable
from pathlib import Path

MAX_CHARACTERS = 4_000
MAX_LINES = 40
MAX_LINE = 1_000
TAB = 4
MAX_NEAR = 3


def of(path: str | Path) -> str:
    """Return a file's text; an empty string if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that somebody who wrote this one may have meant."""
    return difflib.get_close_matches(name, dict.fromkeys(names), MAX_NEAR, cutoff=0.7)


def clean(text: str, max_lines: int = MAX_LINES, max_line: int = MAX_LINE) -> str:
    """Return lines of printable characters, limited in number and length.

    Control characters, those that change the writing direction, invisible ones and halves of a
    surrogate pair each become a �: what is left is legal in UTF-8 and in XML, and moves no cursor.
    """
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]} …"
    lines = text.expandtabs(TAB)[: 2 * MAX_CHARACTERS].splitlines()[:max_lines]
    cut = [line if len(line) <= max_line else f"{line[:max_line]} …" for line in lines]
    return "\n".join("".join(char if char.isprintable() else "�" for char in line) for line in cut)


def line(text: str) -> str:
    """Return the text cleaned, in one line, for a name or a path."""
    return clean(text.replace("\n", "�"), max_lines=1)


def block(text: str, width: int, gutter: str, first: str) -> list[str]:
    """Return the lines of a text behind a gutter, the first behind `first`, at most `width` wide.

    A terminal would continue at its left edge, where only the grader may write.
    """
    room = max(width - len(max(gutter, first, key=len)), 20)
    rows = [row for line in text.splitlines() for row in _folded(line, room)] or [""]
    return [first + rows[0], *(gutter + row for row in rows[1:])]


def _folded(line: str, width: int) -> list[str]:
    """Return the pieces of a line. Beyond ASCII a character counts as two columns."""
    rows, used = [""], 0
    for char in line:
        columns = 1 if char.isascii() else 2
        if used + columns > width:
            rows.append("")
            used = 0
        rows[-1] += char
        used += columns
    return rows
