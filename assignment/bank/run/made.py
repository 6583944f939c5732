"""Make a class to try all this on, drawn by a seed, of which it is known what each has handed in.

    python -m assignment.bank made --to FOLDER [--students 300] [--seed N]

submissions/NAME or NAME.zip  what `grade` reads
truth.csv                     a row a student: its kind, the entries of the corpora that it is made of, whose copy it is

The corpora are those that test the tests: correct variants, planted bugs and cheats. Two students whose `parts` have a
variant in common, or of whom one is a copy of the other, share work; nobody else does, but for the frozen base that
all of them stand on, which is beside them in base/ for `similar --given`.
"""

import argparse
import csv
import functools
import io
import itertools
import random
import secrets
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assignment.bank import bugs, cheats, corpus
from assignment.bank.corpus import Entry
from assignment.bank.run.disguise import disguised
from assignment.bank.run.whole_runs import filled_in
from assignment.submission import PACKAGE, Submission, pack
from tests import operators

VARIANT, BUG, CHEAT, MIXTURE, COPY, STUB, BROKEN = "variant", "bug", "cheat", "mixture", "copy", "stub", "broken"
OF_300 = {VARIANT: 67, BUG: 80, CHEAT: 45, MIXTURE: 64, COPY: 25, STUB: 5, BROKEN: 14}
ALWAYS = ("cheats/denial/full_disk", "cheats/denial/a_million_files")  # among the cheats
HOSTILE_NAMES = (
    "=cmd()|' calc'!A0", "-rf", "..hidden", "a\nb", "a\tb", "Zoë Müller", "名前", "\u202egnp.exe", "x" * 200,
    "<img src=x onerror=alert(1)>", "$(touch pwned)", "%s%n", "'; drop table grades; --", "S001", "con", "a  b",
)  # fmt: skip
MANY = 10_001  # entries of a zip
BOMB = 64 << 20  # bytes


@dataclass(frozen=True)
class Student:
    """What one has handed in.

    Attributes:
        parts: names of the corpora's entries.
        copied: whose work it is.
        expected: of the parts, what comes of them.
        archive: the bytes of a zip, where it is no ordinary one.
    """

    kind: str
    files: dict[str, bytes] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    copied: str = ""
    expected: str = ""
    archive: bytes = b""
    name: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument("--students", type=int, default=300, help="default: 300")
    parser.add_argument("--seed", type=int, help="which class (default: a fresh one)")


def main(to: Path, students: int, seed: int | None) -> int:
    """Make a class; returns the exit status."""
    if to.exists() and any(to.iterdir()):
        print(f"{to}: not empty; expected a new folder", file=sys.stderr)
        return 2
    seed = secrets.randbits(32) if seed is None else seed
    everybody = drawn(students, random.Random(seed))
    write(everybody, to, random.Random(seed + 1))
    kinds = {kind: sum(one.kind == kind for one in everybody) for kind in OF_300}
    print(f"{len(everybody)} students, seed {seed}: {', '.join(f'{n} {kind}' for kind, n in kinds.items())}")
    print(f"{to / 'truth.csv'} says what each is; grade {to / 'submissions'}")
    return 0


def drawn(count: int, rng: random.Random) -> list[Student]:
    """Return a class, in the shares of OF_300."""
    entries = [entry for entry in corpus.entries() if not _is_apart(entry)]
    bank = {kind: [entry for entry in entries if entry.kind == kind] for kind in (VARIANT, BUG, CHEAT)}
    bank[CHEAT] = [entry for entry in bank[CHEAT] if entry.cheat and not (entry.cheat.slow or entry.cheat.archive)]
    counts = _shares(count)
    students = [_whole(entry) for entry in _some(bank[VARIANT], counts[VARIANT], rng)]
    students += [_whole(entry) for entry in _some(bank[BUG], counts[BUG], rng)]
    always = [entry for entry in entries if entry.name in ALWAYS]
    cheats = [*always, *_some(bank[CHEAT], max(0, counts[CHEAT] - len(always)), rng)]
    students += [_whole(entry) for entry in cheats[: counts[CHEAT]]]
    students += [_mixture(bank, rng) for _ in range(counts[MIXTURE])]
    students += [Student(STUB, _stubs(), expected="nothing is written yet") for _ in range(counts[STUB])]
    students = [replace(one, name=f"s{number:03}") for number, one in enumerate(students, start=1)]
    models = [one for one in students if any(part.startswith("variants/") for part in one.parts)]
    copies = [_copy(model, rng) for model in _some(models, counts[COPY], rng)]
    kinds = list(itertools.islice(_broken(rng), counts[BROKEN]))
    broken = [Student(BROKEN, expected=why, archive=made) for why, made in _cycled(kinds, counts[BROKEN])]
    later = [replace(one, name=f"s{n:03}") for n, one in enumerate([*copies, *broken], start=len(students) + 1)]
    return _renamed([*students, *later], rng)


@functools.cache
def _base() -> dict[str, bytes]:
    return bugs.base()


def _shares(count: int) -> dict[str, int]:
    """Return how many there are of each kind; rounding goes to the mixtures."""
    counts = {kind: of_300 * count // 300 for kind, of_300 in OF_300.items()}
    counts[MIXTURE] += count - sum(counts.values())
    return counts


def _is_apart(entry: Entry) -> bool:
    return any(operators.operator_of(problem).is_apart for problem in entry.problems)


def _cycled(items: list, count: int) -> list:
    return [items[i % len(items)] for i in range(count if items else 0)]


def _some(items: list, count: int, rng: random.Random) -> list:
    """Return so many, none twice as long as there are enough."""
    return _cycled(rng.sample(items, len(items)), count)


def _whole(entry: Entry) -> Student:
    return Student(entry.kind, entry.submission.files, (entry.name,), expected=f"{entry.name}: {entry.expectation}")


def _mixture(bank: dict[str, list[Entry]], rng: random.Random) -> Student:
    """Return a planted bug with a variant or a cheat of another operator."""
    bug = rng.choice(bank[BUG])
    others = [entry for entry in bank[rng.choice((VARIANT, VARIANT, CHEAT))] if _fits(entry, bug)]
    other = rng.choice(others)
    edited = {path: content for path, content in bug.submission.files.items() if content != _base().get(path)}
    expected = "; ".join(f"{entry.name}: {entry.expectation}" for entry in (bug, other))
    return Student(MIXTURE, other.submission.files | edited, (bug.name, other.name), expected=expected)


def _fits(entry: Entry, bug: Entry) -> bool:
    """Return whether an entry leaves alone what a bug is in, and stands on the same base."""
    own = {operators.operator_of(problem).name for problem in entry.problems}
    files = entry.submission.files
    changed = {path for path, content in _base().items() if files.get(path) != content} - {f"{PACKAGE}/__init__.py"}
    return operators.operator_of(bug.problem).name not in own and not changed


def _stubs() -> dict[str, bytes]:
    root = Path(__file__).resolve().parents[3]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / PACKAGE).rglob("*.py"))}


def _copy(model: Student, rng: random.Random) -> Student:
    return replace(
        model,
        kind=COPY,
        files=disguised(model.files, rng),
        copied=model.name,
        expected=f"as {model.name}: {model.expected}",
    )


def _renamed(students: list[Student], rng: random.Random) -> list[Student]:
    """Give some of those whom nobody has copied a name that is hard on file systems, spreadsheets and pages."""
    copied = {one.copied for one in students}
    plain = [i for i, one in enumerate(students) if one.name not in copied]
    chosen = rng.sample(plain, min(len(HOSTILE_NAMES), len(plain) // 4))
    for i, name in zip(chosen, HOSTILE_NAMES, strict=False):
        students[i] = replace(students[i], name=name)
    return students


def _broken(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield zips that cannot be graded, with the reason."""
    files = _base()
    whole = pack(Submission(files))
    first = next(iter(files))
    yield "no zip", b"this is not a zip\n" * 100
    yield "empty", b""
    yield "cut off", whole[: len(whole) // 2]
    yield "bytes changed", bytes(255 - byte if rng.random() < 0.01 else byte for byte in whole)
    yield "no package", _zipped(lambda add: add("notes/kernel.py", b"x = 1\n"))
    yield "two packages", _zipped(lambda add: [add(f"{top}/{first}", files[first]) for top in ("old", "new")])
    yield "10,001 entries", _zipped(lambda add: [add(f"{PACKAGE}/f{i}.py", b"") for i in range(MANY)])
    yield "9,999 files in the package", _zipped(lambda add: [add(f"{PACKAGE}/f{i}.py", b"") for i in range(MANY - 2)])
    yield "a bomb", _zipped(lambda add: add(first, b"#" * BOMB))
    yield "paths that lead out", _zipped(lambda add: add(f"../../{first}", files[first]))
    yield "not text", _zipped(lambda add: add(first, bytes(range(256))))
    yield "a link", _zipped(lambda add: add(_link(first), b"/etc/passwd"))
    yield "a name twice", _zipped(lambda add: [add(first, files[first]) for _ in range(2)])
    yield "a folder named as a file", _zipped(lambda add: [add(first, b""), add(f"{first}/inner.py", b"")])


def _link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


def _zipped(fill: Callable[[Callable[..., Any]], Any]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.NameToInfo = _Forgetful()  # no warning of a name that comes twice
        fill(archive.writestr)
    return out.getvalue()


class _Forgetful(dict):
    """Holds nothing."""

    def __setitem__(self, key: object, value: object) -> None:
        pass


def write(students: list[Student], folder: Path, rng: random.Random) -> None:
    """Write a class: half of it as zips, half as folders."""
    place = folder / "submissions"
    place.mkdir(parents=True)
    for one in students:
        known = {"@TOKEN@": f"{rng.getrandbits(64):016x}", "@PORT@": "9", "@HOME@": "/nonexistent"}
        files = {filled_in(path, known): filled_in(content, known) for path, content in one.files.items()}
        if one.archive or (one.kind != BROKEN and rng.random() < 0.5):
            (place / f"{one.name}.zip").write_bytes(one.archive or pack(Submission(files)))
        elif one.kind == BROKEN:
            (place / f"{one.name}.zip").write_bytes(b"")
        else:
            Submission(files).stage(place / one.name)
    plain = (Path(cheats.__file__).parent / "plain.py").read_bytes()  # what cheats stand on beside it
    Submission({**bugs.base(), f"{PACKAGE}/plain.py": plain}).stage(folder / "base")
    with (folder / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["student", "kind", "parts", "copied", "expected"])
        table.writerows([one.name, one.kind, " + ".join(one.parts), one.copied, one.expected] for one in students)
