"""The lines of a submission that a message names, with the code around them."""

import re
from dataclasses import dataclass

from assignment import text
from assignment.submission import PACKAGE

AROUND = 4  # lines before and after the one that is named
MAX_EXCERPTS = 5
PLACE = re.compile(rf"({PACKAGE}/[\w./-]+\.py)[:\"](?:, line )?(\d+)")


@dataclass(frozen=True)
class Excerpt:
    """Lines of a submission around one that a message names."""

    path: str
    line: int
    lines: tuple[tuple[int, str], ...]


def excerpts(message: str, files: dict[str, str]) -> tuple[Excerpt, ...]:
    """Return the code around each line that a message names, once."""
    found: dict[tuple[str, int], Excerpt] = {}
    for path, number in PLACE.findall(message):
        line, lines = int(number), files.get(path, "").splitlines()
        if 0 < line <= len(lines) and (path, line) not in found:
            first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
            shown = tuple((i, text.line(lines[i - 1])) for i in range(first, last + 1))
            found[path, line] = Excerpt(path, line, shown)
    return tuple(found.values())[:MAX_EXCERPTS]
