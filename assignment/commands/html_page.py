"""`grade.py --html FILE`: the report as a page, with pictures of where results are wrong and the code around faults."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from assignment.commands import figures, handout
from assignment.commands import report as screen
from assignment.commands.excerpts import Excerpt, excerpts
from assignment.course import course
from assignment.pages import Pages
from assignment.verdict import causes, reporting, score
from assignment.verdict.entries import CheckEntry, MapEntry, Report

REFRESH_S = 2  # of a page that --watch keeps
CELL, LEAST = 14, 2  # units of a picture: of an element at most, of a part at least
WIDEST, HIGHEST = 640, 300  # units of a picture
CHART_HEIGHT, CHART_STEP = 60, 12  # units: of the scores so far
NOT_A_NUMBER = "N"  # of a map's cells; the others are . right, + partly wrong, # wrong
REACH = (1.0, 10.0, 1000.0)  # the largest errors of the first levels, in bounds
LEVELS = ("right", "off by up to 10 bounds", "off by up to 1,000 bounds", "off by more", "NaN, or never written")
_pages = Pages(Path(__file__).parent / "templates")


def of_report(report: Report, sources: Mapping[str, str], scores: Sequence[float], is_watched: bool) -> bytes:
    """Return the page.

    Args:
        report: as it is written to --json.
        sources: the files of the submission, by name.
        scores: of the full grades so far, this one's last.
        is_watched: whether the file is written again on every save; the page then reloads itself.
    """
    entries = reporting.entries_of(report)
    checked = [check for check in entries if check["cases"]]
    seen: set[Excerpt] = set()
    return _pages.page(
        "grade.html",
        title=screen.total(report),
        heading=course().heading,
        refresh=REFRESH_S if is_watched else 0,
        report=report,
        problems=[(problem, screen.remark(problem, report)) for problem in reporting.problems_of(report)],
        passed=sum(check["status"] in score.KEEPS_POINTS for check in checked),
        graded=len(checked),
        lost=[_lost(group, sources, seen) for group in causes.grouped(entries)],
        notes=reporting.warnings_in(entries),
        moved=figures.moved(entries),
        lanes=[check for check in entries if check.get("lanes")],
        over_steps=screen.OVER_STEPS,
        compiled=figures.compiled(entries),
        roofline=figures.roofline(entries),
        next=screen.next_step(report),
        dates=" ".join(screen.dates()),
        chart=chart(scores, report["gradable"]) if len(scores) > 1 else None,
        scores=scores,
    )


def _lost(group: list[CheckEntry], sources: Mapping[str, str], seen: set[Excerpt]) -> dict[str, Any]:
    """Return what the page shows of checks that failed for one cause: the first in full, the others by name."""
    first, *others = group
    drawn = next((check["map"] for check in group if check.get("map")), None)
    return {
        "check": first,
        "message": screen.short(first["message"]),
        "hint": linked(first["hint"], causes.sections(first)),
        "others": others,
        "points": sum(check["max_score"] - check["score"] for check in group),
        "excerpts": excerpts(causes.lines(first), sources, seen),
        "map": map_of(drawn) if drawn else None,
    }


def linked(hint: str, sections: Sequence[str]) -> Markup:
    """Return a hint with the sections of the handout that it names as links."""
    shown, link = escape(hint), Markup('(<a href="{}">{}</a>)')
    for section in sections:
        shown = shown.replace(f"({section})", link.format(address(section), section))
    return shown


def address(citation: str) -> str:
    """Return the address of a section of the handout: of the course's pages, or else of a file of this machine."""
    if course().pages:
        return handout.address(citation)
    file, _, anchor = citation.partition("#")
    path = handout.ROOT / file
    return f"{path.as_uri()}#{anchor}" if anchor else path.as_uri()


@dataclass(frozen=True)
class Cell:
    """A part of a result that is wrong alike: where it is drawn, how it is coloured and what it says of itself."""

    x: float
    y: float
    width: float
    height: float
    level: int
    is_partly: bool
    says: str


@dataclass(frozen=True)
class Drawn:
    """A map of a result in the units of a picture."""

    name: str
    case: str
    width: float
    height: float
    cells: list[Cell]
    legend: list[tuple[int, str]]


def map_of(found: MapEntry) -> Drawn:
    """Return the picture of a check's `map`, to scale, but that no part is thinner than LEAST."""
    columns, rows = _sides(found["widths"], WIDEST), _sides(found["heights"], HIGHEST)
    cells = [
        Cell(x, y, width, height, level(sign, found["over"][i][j]), sign == "+", _says(found, i, j))
        for i, (y, height) in enumerate(rows)
        for j, ((x, width), sign) in enumerate(zip(columns, found["signs"][i], strict=True))
    ]
    used = {cell.level for cell in cells}
    legend = [(i, name) for i, name in enumerate(LEVELS) if i in used]
    return Drawn(found["name"], found["case"], sum(columns[-1]), sum(rows[-1]), cells, legend)


def _sides(sizes: Sequence[int], most: float) -> list[tuple[float, float]]:
    """Return where each part begins, and how long it is."""
    unit = min(CELL, (most - LEAST * len(sizes)) / sum(sizes))
    lengths = [LEAST + unit * size for size in sizes]
    return list(zip(itertools.accumulate(lengths, initial=0.0), lengths, strict=False))


def level(cell: str, error: float) -> int:
    """Return what a cell says, as a place in LEVELS."""
    return len(LEVELS) - 1 if cell == NOT_A_NUMBER else sum(error > most for most in REACH)


def _says(found: MapEntry, row: int, column: int) -> str:
    places = [
        f"{name} {sum(sizes[:i])}–{sum(sizes[: i + 1]) - 1}" if sizes[i] > 1 else f"{name[:-1]} {sum(sizes[:i])}"
        for name, i, sizes in (("rows", row, found["heights"]), ("columns", column, found["widths"]))
    ]
    where = ", ".join(places if found["shape"][0] > 1 else places[1:])
    sign, error = found["signs"][row][column], found["over"][row][column]
    if sign == NOT_A_NUMBER:
        return f"{where}: NaN"
    part = {".": "right", "+": "partly wrong", "#": "all wrong"}[sign]
    return f"{where}: {part}, the largest error is {error:.3g} times its bound"


def chart(scores: Sequence[float], most: float) -> tuple[str, float, float]:
    """Return the points of a line through the scores, and the width and height of its picture."""
    most = max(most, *scores, 1.0)
    points = ((CHART_STEP * (i + 0.5), CHART_HEIGHT * (1 - one / most)) for i, one in enumerate(scores))
    return " ".join(f"{x:g},{y:.1f}" for x, y in points), CHART_STEP * len(scores), CHART_HEIGHT
