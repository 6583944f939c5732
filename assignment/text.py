"""Text that a submission can influence, made safe to show on a terminal, in JSON, XML or a log."""

import bisect
import difflib
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

MAX_CHARACTERS = 4_000
MAX_LINES = 40
MAX_LINE = 1_000
TAB = 4
MAX_NEAR = 3
MAX_WORD = 40  # that is left out whole where a line is cut
SOURCE = re.compile(r" *at \S+:\d+ in \S+: ")  # before a line of code


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
    cut = (_cut(line, max_line) for line in lines)
    return "\n".join("".join(char if char.isprintable() else "�" for char in line) for line in cut)


def _cut(line: str, width: int) -> str:
    """Return a line that is not longer but for an ellipsis; it ends with a whole word, unless that is very long."""
    if len(line) <= width:
        return line
    space = line.rfind(" ", width - MAX_WORD, width + 1)
    return f"{line[: space if space > 0 else width]} …"


def line(text: str) -> str:
    """Return the text cleaned, in one line, for a name or a path."""
    return clean(text.replace("\n", "�"), max_lines=1)


def block(text: str, width: int, gutter: str, first: str) -> list[str]:
    """Return the lines of a text behind a gutter, the first behind `first`, at most `width` wide.

    A terminal would continue at its left edge, where only the grader may write.
    """
    rooms = [max(width - len(before), 20) for before in (first, gutter)]
    lines = text.splitlines() or [""]
    rows = [*_folded(lines[0], *rooms), *(row for line in lines[1:] for row in _folded(line, rooms[1], rooms[1]))]
    return [first + rows[0], *(gutter + row for row in rows[1:])]


def _folded(line: str, first: int, width: int) -> list[str]:
    """Return the rows of a line, which end at spaces where they can; code that needs a second row begins there."""
    indent = len(line) - len(line.lstrip(" "))
    margin = " " * min(indent + 2, width // 3)
    rows: list[str] = []
    while (end := _fitting(line, width if rows else first)) < len(line):
        source = SOURCE.match(line)
        at = source.end() if source and source.end() <= end else line.rfind(" ", indent + 1, end + 1)
        at = at if at > indent else end
        rows.append(line[:at].rstrip(" "))
        line, indent = margin + line[at:].lstrip(" "), len(margin)
    return [*rows, line]


def _fitting(line: str, width: int) -> int:
    """Return how many characters fit. Beyond ASCII a character counts as two columns."""
    columns = itertools.accumulate(1 if char.isascii() else 2 for char in line)
    return bisect.bisect_right([*columns], width)
