"""`similar RESULTS`: pairs of submissions that are more alike than the class explains, passages side by side.

What all have been given (stubs, the handout's code) does not count, and the more of a class share a passage, the less
it does: a fingerprint weighs ln((students + OUTSIDERS) / those who have it). How alike two are is the largest part, by
weight, of one's whole code or of one of its files that the other has too. A pair is shown from half of it on, or from
where the class's own distribution has its outer fence (Tukey's third quartile + 3 interquartile ranges) if that is
more. It says where to look, and nothing of how it came about.
"""

import argparse
import itertools
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from assignment.classroom.prints import GRAM, Prints, prints_of
from assignment.commands.files import replace
from assignment.submission import PACKAGE, Submission, UnusableSubmission, read

ROOT = Path(__file__).resolve().parents[2]
OUTSIDERS = 8  # as if so many more had handed in, and shared nothing: in a small class too what all have weighs little
LEAST_WEIGHT = 150.0  # of what is compared: of some 30 fingerprints, 100 tokens and more of one's own
FLOOR, CEILING = 0.5, 0.9  # of the threshold
FENCE = 3.0  # interquartile ranges
GAP = GRAM  # tokens between places that are one passage
MOST_PAIRS, MOST_PASSAGES = 200, 12  # on the page; passages of a pair
MOST_LINES = 60  # of a passage
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Work:
    """One submission.

    Attributes:
        name: of its report.
        owners: whose it is; the submissions of one student are not compared with each other.
        sources: its files' text by path.
    """

    name: str
    owners: frozenset[str]
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Passage:
    """A place in one submission, and the same in another: file and lines, from 1, both ends included."""

    weight: float
    left: tuple[str, int, int]
    right: tuple[str, int, int]


@dataclass(frozen=True)
class Pair:
    """Two submissions, and how alike they are: 1 where all that one has is in the other."""

    alike: float
    left: str
    right: str
    where: str  # the file that is, or "all files"
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class Findings:
    """The pairs above the threshold, the most alike first, and what the class is like."""

    pairs: tuple[Pair, ...]
    threshold: float
    median: float
    highest_below: float
    n_compared: int
    n_students: int


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


def compared(works: list[Work], known: set[int]) -> Findings:
    """Return the pairs of works that are more alike than the class explains."""
    prints = {work.name: prints_of(work.sources) for work in works}
    own = {name: {key for key in found.places if key not in known} for name, found in prints.items()}
    weights = _weights(works, own)
    files = {name: _by_file(prints[name], own[name]) for name in own}
    total = {name: {file: sum(map(weights.__getitem__, keys)) for file, keys in files[name].items()} for name in files}
    owners = {work.name: work.owners for work in works}
    scored = []
    for left, right in _pairs_in_common(own, weights):
        if owners[left] & owners[right]:
            continue
        shared = own[left] & own[right]
        sides = [(name, file) for name in (left, right) for file in files[name] if total[name][file] >= LEAST_WEIGHT]
        parts = [
            (sum(weights[key] for key in files[name][file] & shared) / total[name][file], file) for name, file in sides
        ]
        if parts:
            scored.append(Pair(*_most(parts, left, right)))
    scored.sort(key=lambda pair: (-pair.alike, pair.left, pair.right))
    threshold = threshold_of([pair.alike for pair in scored])
    above = [pair for pair in scored if pair.alike >= threshold]
    shown = [_with_passages(pair, prints, own, weights) for pair in above[:MOST_PAIRS]]
    return Findings(
        (*shown, *above[MOST_PAIRS:]),
        threshold,
        statistics.median(pair.alike for pair in scored) if scored else 0.0,
        max((pair.alike for pair in scored if pair.alike < threshold), default=0.0),
        len(scored),
        len({min(work.owners) for work in works}),
    )


def _most(parts: list[tuple[float, str]], left: str, right: str) -> tuple[float, str, str, str]:
    alike, file = max(parts)
    return alike, left, right, file


def _weights(works: list[Work], own: Mapping[str, set[int]]) -> dict[int, float]:
    """Return what each fingerprint weighs; several submissions of one student are one."""
    holders: defaultdict[int, set[frozenset[str]]] = defaultdict(set)
    for work in works:
        for key in own[work.name]:
            holders[key].add(work.owners)
    n_students = len({work.owners for work in works})
    return {key: math.log((n_students + OUTSIDERS) / len(who)) for key, who in holders.items()}


def _by_file(prints: Prints, own: set[int]) -> dict[str, set[int]]:
    """Return the fingerprints of each file, and of all of them together."""
    files: defaultdict[str, set[int]] = defaultdict(set)
    for key in own:
        for start, _ in prints.places[key]:
            files[prints.tokens[start].file].add(key)
    return {"all files": own, **files}


def _pairs_in_common(own: Mapping[str, set[int]], weights: Mapping[int, float]) -> Iterable[tuple[str, str]]:
    """Return the pairs of names that share enough to be worth a look."""
    holders: defaultdict[int, list[str]] = defaultdict(list)
    for name in sorted(own):
        for key in own[name]:
            holders[key].append(name)
    shared: Counter[tuple[str, str]] = Counter()
    for key, names in holders.items():
        for pair in itertools.combinations(names, 2):
            shared[pair] += weights[key]  # type: ignore[assignment]  # a Counter of floats
    return sorted(shared)


def threshold_of(alike: list[float]) -> float:
    """Return from where on a pair is more alike than the class explains."""
    if len(alike) < 2:
        return FLOOR
    first, _, third = statistics.quantiles(alike, n=4)
    return min(CEILING, max(FLOOR, third + FENCE * (third - first)))


def _with_passages(
    pair: Pair, prints: Mapping[str, Prints], own: Mapping[str, set[int]], weights: Mapping[int, float]
) -> Pair:
    left, right = prints[pair.left], prints[pair.right]
    places = sorted((place, key) for key in own[pair.left] & own[pair.right] for place in left.places[key])
    runs: list[list[tuple[tuple[int, int], int]]] = []
    for place, key in places:
        if runs and _is_near(left, runs[-1][-1][0], place):
            runs[-1].append((place, key))
        else:
            runs.append([(place, key)])
    passages = [
        Passage(
            sum(weights[key] for key in {key for _, key in run}),
            _lines(left, [place for place, _ in run]),
            _lines(right, _densest(right, [place for _, key in run for place in right.places[key]])),
        )
        for run in runs
    ]
    passages.sort(key=lambda passage: -passage.weight)
    return Pair(pair.alike, pair.left, pair.right, pair.where, tuple(passages[:MOST_PASSAGES]))


def _is_near(prints: Prints, before: tuple[int, int], place: tuple[int, int]) -> bool:
    return place[0] <= before[1] + GAP and prints.tokens[before[0]].file == prints.tokens[place[0]].file


def _densest(prints: Prints, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of neighbours among places: what stands at two places is shown at one."""
    runs: list[list[tuple[int, int]]] = []
    for place in sorted(set(places)):
        if runs and _is_near(prints, runs[-1][-1], place):
            runs[-1].append(place)
        else:
            runs.append([place])
    return max(runs, key=len)


def _lines(prints: Prints, places: list[tuple[int, int]]) -> tuple[str, int, int]:
    first, last = min(place[0] for place in places), max(place[1] for place in places)
    return prints.tokens[first].file, prints.tokens[first].line, prints.tokens[last].line


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
