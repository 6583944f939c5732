"""How alike the submissions of a class are, beyond what the class explains.

The more of a class share a passage, the less it counts: a fingerprint weighs ln((students + OUTSIDERS) / those who have
it). How alike two are is the largest part, by weight, of one's whole code or of one of its files that the other has
too. A pair is found from half of it on, or from where the class's own distribution has its outer fence (Tukey's third
quartile + 3 interquartile ranges) if that is more.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assignment.classroom.prints import GRAM, Prints, prints_of

OUTSIDERS = 8  # as if so many more had handed in, and shared nothing: in a small class too what all have weighs little
LEAST_WEIGHT = 150.0  # of what is compared: of some 30 fingerprints, 100 tokens and more of one's own
FLOOR, CEILING = 0.5, 0.9  # of the threshold
FENCE = 3.0  # interquartile ranges
GAP = GRAM  # tokens between places that are one passage
MOST_PAIRS, MOST_PASSAGES = 200, 12  # on the page; passages of a pair
MOST_COUNTED = 10_000_000  # times that two share a fingerprint; of what the most share, which weighs least, the rest

PlacedPrint = tuple[tuple[int, int], int]  # the first and last token, and the fingerprint


@dataclass(frozen=True)
class SubmittedWork:
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
class AlikePair:
    """Two submissions, and how alike they are: 1 where all that one has is in the other."""

    alike: float
    left: str
    right: str
    where: str  # the file that is, or "all files"
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class AlikePairs:
    """The pairs above the threshold, the most alike first, and what the class is like."""

    pairs: tuple[AlikePair, ...]
    threshold: float
    median: float
    highest_below: float
    n_compared: int
    n_students: int
    not_whole: tuple[str, ...] = ()  # names of those that are too long to be read to their end


@dataclass(frozen=True)
class Cluster:
    """Submissions that are alike, each with another: their names, and the strongest pairs that join all of them."""

    names: tuple[str, ...]
    pairs: tuple[AlikePair, ...]

    @property
    def alike(self) -> float:
        """How alike the strongest pair is."""
        return self.pairs[0].alike


@dataclass(frozen=True)
class Same:
    """A file that several students have, byte for byte: its names, whose it is, and its lines."""

    files: tuple[str, ...]
    names: tuple[str, ...]
    lines: int


def clusters(pairs: Iterable[AlikePair]) -> list[Cluster]:
    """Return what pairs have in common: of n submissions n - 1 pairs, the most alike ones; larger clusters later."""
    of: dict[str, int] = {}
    made: dict[int, list[AlikePair]] = {}
    for number, pair in enumerate(sorted(pairs, key=lambda pair: -pair.alike)):
        left, right = of.get(pair.left), of.get(pair.right)
        if left is not None and left == right:
            continue
        joined = [pair]
        for old in {left, right} - {None}:
            joined += made.pop(old)  # type: ignore[arg-type]  # None is taken out
        made[number] = sorted(joined, key=lambda one: -one.alike)
        of |= {name: number for one in joined for name in (one.left, one.right)}
    found = [Cluster(tuple(sorted({n for p in own for n in (p.left, p.right)})), tuple(own)) for own in made.values()]
    return sorted(found, key=lambda one: (-one.alike, one.names))


def identical(works: Iterable[SubmittedWork], known: set[str]) -> list[Same]:
    """Return the files that students of different owners share, but those whose text all have been given."""
    holders: defaultdict[str, list[tuple[SubmittedWork, str]]] = defaultdict(list)
    for work in works:
        for file, text in work.sources.items():
            if text.strip() and text not in known:
                holders[text].append((work, file))
    found = []
    for text, own in holders.items():
        if any(not one.owners & other.owners for (one, _), (other, _) in itertools.combinations(own, 2)):
            files, names = ({file for _, file in own}, {work.name for work, _ in own})
            found.append(Same(tuple(sorted(files)), tuple(sorted(names)), len(text.splitlines())))
    return sorted(found, key=lambda one: (-one.lines, one.files, one.names))


def compared(works: list[SubmittedWork], known: set[int]) -> AlikePairs:
    """Return the pairs of works that are more alike than the class explains."""
    prints = {work.name: prints_of(work.sources) for work in works}
    own = {name: {key for key in found.places if key not in known} for name, found in prints.items()}
    weights = _weights(works, own)
    files = {name: _by_file(prints[name], own[name]) for name in own}
    total = {name: {file: sum(map(weights.__getitem__, keys)) for file, keys in files[name].items()} for name in files}
    owners = {work.name: work.owners for work in works}
    scored = []
    for left, right in _pairs_in_common(own):
        if owners[left] & owners[right]:
            continue
        shared = own[left] & own[right]
        sides = [(name, file) for name in (left, right) for file in files[name] if total[name][file] >= LEAST_WEIGHT]
        parts = [
            (sum(weights[key] for key in files[name][file] & shared) / total[name][file], file) for name, file in sides
        ]
        if parts:
            alike, file = max(parts)
            scored.append(AlikePair(alike, left, right, file))
    scored.sort(key=lambda pair: (-pair.alike, pair.left, pair.right))
    threshold = threshold_of([pair.alike for pair in scored])
    above = [pair for pair in scored if pair.alike >= threshold]
    shown = [_with_passages(pair, prints, own, weights) for pair in above[:MOST_PAIRS]]
    return AlikePairs(
        (*shown, *above[MOST_PAIRS:]),
        threshold,
        statistics.median(pair.alike for pair in scored) if scored else 0.0,
        max((pair.alike for pair in scored if pair.alike < threshold), default=0.0),
        len(scored),
        len({min(work.owners) for work in works}),
        tuple(name for name, found in prints.items() if not found.is_whole),
    )


def _weights(works: list[SubmittedWork], own: Mapping[str, set[int]]) -> dict[int, float]:
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
            files[prints.file(start)].add(key)
    return {"all files": own, **files}


def _pairs_in_common(own: Mapping[str, set[int]]) -> Iterable[tuple[str, str]]:
    """Return the pairs of names that share something."""
    holders: defaultdict[int, list[str]] = defaultdict(list)
    for name in sorted(own):
        for key in own[name]:
            holders[key].append(name)
    pairs = (itertools.combinations(names, 2) for names in sorted(holders.values(), key=len))
    return sorted(set(itertools.islice(itertools.chain.from_iterable(pairs), MOST_COUNTED)))


def threshold_of(alike: list[float]) -> float:
    """Return from where on a pair is more alike than the class explains."""
    if len(alike) < 2:
        return FLOOR
    first, _, third = statistics.quantiles(alike, n=4)
    return min(CEILING, max(FLOOR, third + FENCE * (third - first)))


def _with_passages(
    pair: AlikePair, prints: Mapping[str, Prints], own: Mapping[str, set[int]], weights: Mapping[int, float]
) -> AlikePair:
    left, right = prints[pair.left], prints[pair.right]
    shared = own[pair.left] & own[pair.right]
    passages = [
        Passage(
            sum(weights[key] for key in {key for _, key in run}),
            _lines(left, run),
            # what stands at two places is shown at one
            _lines(right, max(_runs(right, {key for _, key in run}), key=len)),
        )
        for run in _runs(left, shared)
    ]
    passages.sort(key=lambda passage: -passage.weight)
    return AlikePair(pair.alike, pair.left, pair.right, pair.where, tuple(passages[:MOST_PASSAGES]))


def _runs(prints: Prints, keys: Iterable[int]) -> list[list[PlacedPrint]]:
    """Return the places of these fingerprints, neighbours together."""
    runs: list[list[PlacedPrint]] = []
    for place, key in sorted((place, one) for one in keys for place in prints.places[one]):
        before = runs[-1][-1][0] if runs else None
        if before and place[0] <= before[1] + GAP and prints.file(before[0]) == prints.file(place[0]):
            runs[-1].append((place, key))
        else:
            runs.append([(place, key)])
    return runs


def _lines(prints: Prints, run: list[PlacedPrint]) -> tuple[str, int, int]:
    first, last = min(place[0] for place, _ in run), max(place[1] for place, _ in run)
    return prints.file(first), prints.lines[first], prints.lines[last]
