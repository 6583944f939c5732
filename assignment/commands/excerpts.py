"""The lines of a submission that a finding names, with the code around them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignment import text
from assignment.verdict.finding import LineEntry

AROUND = 4  # lines before and after the one that is named
MAX_EXCERPTS = 5


@dataclass(frozen=True)
class Excerpt:
    """Lines of a submission around one that a finding names."""

    path: str
    line: int
    lines: tuple[tuple[int, str], ...]


def excerpts(named: Iterable[LineEntry], files: Mapping[str, str], seen: set[Excerpt]) -> tuple[Excerpt, ...]:
    """Return the code around each named line that is not among those seen, and add it to these."""
    found: dict[Excerpt, None] = {}
    for path, line in ((one["path"], one["line"]) for one in named):
        lines = files.get(path, "").splitlines()
        if 0 < line <= len(lines):
            first, last = max(1, line - AROUND), min(len(lines), line + AROUND)
            shown = tuple((i, text.line(lines[i - 1])) for i in range(first, last + 1))
            found[Excerpt(path, line, shown)] = None
    new = tuple(one for one in found if one not in seen)[:MAX_EXCERPTS]
    seen.update(new)
    return new
