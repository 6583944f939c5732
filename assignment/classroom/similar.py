"""`similar RESULTS`: pairs of submissions that are more alike than the class explains, passages side by side.

What all have been given (stubs, the handout's code) does not count; alike.py says how the rest does. The page says
where to look, and nothing of how it came about.
"""

import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from assignment.classroom import alike, batch, names, pages, tables
from assignment.classroom.prints import MOST_READ, prints_of
from assignment.submission import PACKAGE, Submission, UnusableSubmission, read
from assignment.system import here

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 60  # of a passage
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(console: Console, results: Path, given: list[Path], limit: float, to: Path | None) -> int:
    """Compare a class's submissions and write the page; returns the exit status."""
    with _limited(limit):
        return _compare(console, results, given, to or results / "similar.html")


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Have this process end what is done inside with UnusableSubmission where it takes more than a grade may."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise UnusableSubmission(f"not compared within {seconds:g} s; give more with --limit")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with here.memory_limited(batch.MEMORY_OF_A_JOB):
            yield
    except MemoryError:
        raise UnusableSubmission(f"not compared within {batch.MEMORY_OF_A_JOB >> 30} GiB of memory") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _compare(console: Console, results: Path, given: list[Path], to: Path) -> int:
    works = submissions_of(results)
    if len(works) < 2:
        wanted = "expected two, in sources/, where `grade --to` keeps them"
        raise UnusableSubmission(f"{results}: {len(works)} submissions to compare; {wanted}")
    texts = texts_of([ROOT / PACKAGE, ROOT / "handout", ROOT / "handout.md", *given])
    known = set(prints_of(texts, sys.maxsize).places)
    found, same = alike.compared(works, known), alike.identical(works, set(texts.values()))
    pages.write(to, "similar.html", **shown(found, same, {work.name: work for work in works}))
    console.print(f"{found.n_students} students, {found.n_compared} pairs with something in common")
    console.print(
        f"{len(found.pairs)} are alike by {found.threshold:.0%} or more; the next is at {found.highest_below:.0%}, "
        f"the median at {found.median:.0%}"
    )
    if found.not_whole:
        said = f"read up to {MOST_READ >> 10} KiB, shortest files first, and no further"
        console.print(Text(f"  {names.some(found.not_whole)}: {said}; look at the rest yourself", "yellow"))
    for cluster in alike.clusters(found.pairs)[:20]:
        console.print(f"  {cluster.alike:4.0%}  {', '.join(cluster.names)}: {cluster.pairs[0].where}", markup=False)
    for one in same[:20]:
        console.print(f"  same  {', '.join(one.names[:5])}: {', '.join(one.files)}", markup=False)
    console.print(f"{to} has the passages side by side: places to look at, no verdict")
    return 0


def submissions_of(results: Path) -> list[alike.SubmittedWork]:
    """Return the submissions of a folder of results, those without a grade too; raises UnusableSubmission."""
    works = []
    for path in tables.report_paths(results):
        report = json.loads(path.read_text(encoding="utf-8"))
        about, kept = report.get("classroom", {}), results / "sources" / f"{path.stem}.zip"
        if kept.is_file():
            people = [person.get("email") or person.get("sid") for person in about.get("people", ())]
            owners = frozenset([str(about.get("student", path.stem)), *filter(None, people)])
            works.append(alike.SubmittedWork(path.stem, owners, read(kept).sources))
    return works


def texts_of(paths: Iterable[Path]) -> dict[str, str]:
    """Return the code that everybody has: of Python files, and of Python in Markdown."""
    texts: dict[str, str] = {}
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in inside:
            if file.suffix == ".py":
                texts[str(file)] = Submission({str(file): file.read_bytes()}).sources[str(file)]
            elif file.suffix == ".md":
                blocks = PYTHON_BLOCK.findall(file.read_text(encoding="utf-8"))
                texts |= {f"{file}:{i}": block for i, block in enumerate(blocks)}
    return texts


def shown(found: alike.AlikePairs, same: list[alike.Same], works: Mapping[str, alike.SubmittedWork]) -> dict[str, Any]:
    """Return what the page shows: clusters with passages side by side, and files that are the same."""
    groups = alike.clusters(found.pairs[: alike.MOST_PAIRS])
    return {
        "title": "Similar submissions",
        "found": found,
        "same": same,
        "clusters": [(one, [_side_by_side(pair, works) for pair in one.pairs]) for one in groups],
        "n_more": max(0, len(found.pairs) - alike.MOST_PAIRS),
    }


@dataclass(frozen=True)
class Half:
    """One side of a passage: lines with their numbers, without the last ones of many."""

    name: str
    file: str
    lines: list[tuple[int, str]]
    left_out: int


@dataclass(frozen=True)
class SideBySide:
    """A pair with its passages, each of two halves."""

    pair: alike.AlikePair
    passages: list[tuple[Half, Half]]


def _side_by_side(pair: alike.AlikePair, works: Mapping[str, alike.SubmittedWork]) -> SideBySide:
    left, right = works[pair.left], works[pair.right]
    return SideBySide(pair, [(_excerpt(left, each.left), _excerpt(right, each.right)) for each in pair.passages])


def _excerpt(work: alike.SubmittedWork, place: tuple[str, int, int]) -> Half:
    file, first, last = place
    lines = work.sources[file].splitlines()[first - 1 : last]
    left_out = max(0, len(lines) - MOST_LINES)
    numbered = [*enumerate((line[:300] for line in lines[:MOST_LINES]), start=first)]
    return Half(work.name, file, numbered, left_out)
