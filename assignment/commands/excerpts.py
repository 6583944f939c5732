"""The lines of a submission that a finding names, with the code around them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignment import text
from assignment.verdict.finding import LineEntry

AROUND = 4  # lines before and after the one that is named
MAX_EXCERPTS = 5


@dataclass(frozen=True)
class Excerpt:
    """Lines of a submission around those that a finding names."""

    path: str
    named: tuple[int, ...]
    lines: tuple[tuple[int, str], ...]


def excerpts(named: Iterable[LineEntry], files: Mapping[str, str], seen: set[Excerpt]) -> tuple[Excerpt, ...]:
    """Return the code around the named lines that is not among those seen, and add it to these.

    Lines of one place, between which no line is left out, are in one excerpt.
    """
    places: list[tuple[str, list[int]]] = []
    for path, line in ((one["path"], one["line"]) for one in named):
        if 0 < line <= len(files.get(path, "").splitlines()):
            near = [place for place in places if place[0] == path and _is_near(line, place[1])]
            places = [place for place in places if place not in near]
            places.append((path, sorted({line, *(other for _, lines in near for other in lines)})))
    found = (_excerpt(path, lines, files[path].splitlines()) for path, lines in places)
    new = tuple(one for one in found if one not in seen)[:MAX_EXCERPTS]
    seen.update(new)
    return new


def _is_near(line: int, others: list[int]) -> bool:
    return any(abs(line - other) <= 2 * AROUND + 1 for other in others)


def _excerpt(path: str, named: list[int], lines: list[str]) -> Excerpt:
    first, last = max(1, named[0] - AROUND), min(len(lines), named[-1] + AROUND)
    return Excerpt(path, tuple(named), tuple((i, text.line(lines[i - 1])) for i in range(first, last + 1)))
