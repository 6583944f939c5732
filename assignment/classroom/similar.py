"""`similar RESULTS`: pairs of submissions that are more alike than the class explains, passages side by side.

What all have been given (stubs, the handout's code) does not count; alike.py says how the rest does. The page says
where to look, and nothing of how it came about.
"""

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from assignment.classroom.alike import MOST_PAIRS, Findings, Pair, Work, compared
from assignment.classroom.prints import prints_of
from assignment.commands.files import replace
from assignment.submission import PACKAGE, Submission, UnusableSubmission, read

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 60  # of a passage
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this command to the command line."""
    similar = commands.add_parser("similar", help="show passages that two submissions share, and the class does not")
    similar.set_defaults(run=run)
    similar.add_argument("results", type=Path, help="what `grade --to` wrote")
    similar.add_argument("--given", type=Path, nargs="+", default=[], metavar="PATH",
                         help="more code that all have been given: folders, Python or Markdown files")  # fmt: skip
    similar.add_argument("--to", type=Path, metavar="FILE.html", help="the page (default: RESULTS/similar.html)")


def run(options: argparse.Namespace, console: Console) -> int:
    """Compare a class's submissions and write the page; returns the exit status."""
    works = submissions_of(options.results)
    if len(works) < 2:
        wanted = "expected two, in sources/, where `grade --to` keeps them"
        raise UnusableSubmission(f"{options.results}: {len(works)} submissions to compare; {wanted}")
    found = compared(works, given([ROOT / PACKAGE, ROOT / "handout", ROOT / "handout.md", *options.given]))
    to = options.to or options.results / "similar.html"
    replace(to, page(found, {work.name: work for work in works}).encode())
    console.print(f"{found.n_students} students, {found.n_compared} pairs with something in common")
    console.print(
        f"{len(found.pairs)} are alike by {found.threshold:.0%} or more; the next is at {found.highest_below:.0%}, "
        f"the median at {found.median:.0%}"
    )
    for pair in found.pairs[:20]:
        console.print(f"  {pair.alike:4.0%}  {pair.left} and {pair.right}: {pair.where}", markup=False)
    console.print(f"{to} has the passages side by side: places to look at, no verdict")
    return 0


def submissions_of(results: Path) -> list[Work]:
    """Return the submissions of a folder of results, those without a grade too; raises UnusableSubmission."""
    works = []
    for path in sorted((results / "reports").glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        about, kept = report.get("classroom", {}), results / "sources" / f"{path.stem}.zip"
        if kept.is_file():
            people = [person.get("email") or person.get("sid") for person in about.get("people", ())]
            owners = frozenset([str(about.get("student", path.stem)), *filter(None, people)])
            works.append(Work(path.stem, owners, read(kept).sources))
    return works


def given(paths: Iterable[Path]) -> set[int]:
    """Return the fingerprints of code that everybody has: of Python files, and of Python in Markdown."""
    texts: dict[str, str] = {}
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in inside:
            if file.suffix == ".py":
                texts[str(file)] = Submission({str(file): file.read_bytes()}).sources[str(file)]
            elif file.suffix == ".md":
                blocks = PYTHON_BLOCK.findall(file.read_text(encoding="utf-8"))
                texts |= {f"{file}:{i}": block for i, block in enumerate(blocks)}
    return set(prints_of(texts).places)


def page(found: Findings, works: Mapping[str, Work]) -> str:
    """Return the page: nothing in it runs, nothing is fetched, and all that students wrote is text."""
    import jinja2

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined
    )
    pairs = [_shown(pair, works) for pair in found.pairs[:MOST_PAIRS]]
    return environment.get_template("similar.html").render(
        found=found, pairs=pairs, n_more=len(found.pairs) - len(pairs)
    )


def _shown(pair: Pair, works: Mapping[str, Work]) -> dict[str, Any]:
    sides = [
        {"left": _excerpt(works[pair.left], passage.left), "right": _excerpt(works[pair.right], passage.right)}
        for passage in pair.passages
    ]
    return {"pair": pair, "passages": sides}


def _excerpt(work: Work, place: tuple[str, int, int]) -> dict[str, Any]:
    file, first, last = place
    lines = work.sources[file].splitlines()[first - 1 : last]
    left_out = max(0, len(lines) - MOST_LINES)
    numbered = [*enumerate((line[:300] for line in lines[:MOST_LINES]), start=first)]
    return {"name": work.name, "file": file, "lines": numbered, "left_out": left_out}
