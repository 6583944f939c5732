"""300 classes drawn at random, in every layout: each student has one row with their own grade, and nobody else has."""

import csv
import datetime
import io
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from assignment.classroom import layouts, names, results, tables
from assignment.course import course
from assignment.tests.test_classroom import DUE, report
from assignment.tests.test_classroom_layouts import FORMS, NAMES, git, zipped

TIMES = 300
LAYOUTS = ("gradescope", "canvas", "folders", "zips", "clones", "mixed")
CLONES_EVERY = 10  # a clone costs three commands of git
PLACES = [path.removesuffix("rmsnorm.py") for path in FORMS.values()]
WORDS = [re.sub(r"\W", "", name) for name in NAMES if name.isprintable()]


@dataclass
class Drawn:
    """A class: what each student's submissions are worth, in order, by the key that their row is known by."""

    layout: str
    folder: Path
    rng: random.Random
    worth: dict[str, list[int]] = field(default_factory=dict)

    def points(self, key: str) -> int:
        """Return what a further submission of a student is worth: a number that no other has."""
        number = 1 + sum(map(len, self.worth.values()))
        self.worth.setdefault(key, []).append(number)
        return number

    def package(self, folder: Path, points: int) -> None:
        """Write a submission as a folder, in one of the forms that are taken."""
        place = folder / self.rng.choice(PLACES)
        place.mkdir(parents=True)
        (place / "rmsnorm.py").write_text(f"points = {points}\n")


def drawn(layout: str, folder: Path, rng: random.Random) -> Drawn:
    """Write a class of up to six students, some with several submissions."""
    folder.mkdir()
    made = Drawn(layout, folder, rng)
    {"gradescope": export, "canvas": download}.get(layout, by_name)(made)
    return made


def export(made: Drawn) -> None:
    metadata = {}
    people = [f"{i}.{made.rng.choice(WORDS)}@{made.rng.choice(('a', 'b'))}.example" for i in range(6)]
    for number in range(made.rng.randint(1, 9)):
        (email,) = made.rng.sample(people, 1)
        when = DUE + datetime.timedelta(hours=number)
        submitters = [{":name": made.rng.choice(NAMES[:20]), ":sid": "", ":email": email}]
        metadata[f"submission_{1000 + number}"] = {":submitters": submitters, ":created_at": when}
        made.package(made.folder / f"submission_{1000 + number}", made.points(email))
    (made.folder / layouts.METADATA).write_text(yaml.safe_dump(metadata))


def download(made: Drawn) -> None:
    number = 100
    for user in made.rng.sample(range(1, 50), made.rng.randint(1, 6)):
        name = made.rng.choice(WORDS) or "x"
        for attempt in range(made.rng.randint(1, 3)):
            number += 1
            start, points = f"{name}_{user}_{number}_", made.points(str(user))
            if made.rng.random() < 0.5:
                zipped(made.folder / f"{start}work.zip", {"cs336_kernels/rmsnorm.py": f"points = {points}\n"})
            else:
                again = f"-{attempt}" if attempt else ""
                (made.folder / f"{start}rmsnorm{again}.py").write_text(f"points = {points}\n")
                (made.folder / f"{name}_{user}_{number + 1}_more{again}.py").write_text("x = 1\n")
                number += 1


def by_name(made: Drawn) -> None:
    usable = [name for name in NAMES if len(name.encode("utf-8", "surrogateescape")) < 200 and name.strip(".")]
    for name in made.rng.sample(usable, made.rng.randint(1, 6)):
        kind = made.rng.choice(("folders", "zips", "clones", "both")) if made.layout == "mixed" else made.layout
        if kind in ("folders", "clones", "both"):
            made.package(made.folder / name, made.points(name))
        if kind == "clones":
            for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
                git(made.folder / name, *command)
        if kind in ("zips", "both"):
            place = made.rng.choice(PLACES)
            zipped(made.folder / f"{name}.zip", {f"{place}rmsnorm.py": f"points = {made.points(name)}\n"})


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))


def key_of(layout: str, one: layouts.Handed) -> str:
    return {"gradescope": one.people[0].email, "canvas": one.people[0].canvas}[layout] if one.people else one.key


@pytest.mark.parametrize("part", [*range(3), *(pytest.param(part, marks=pytest.mark.slow) for part in range(3, 10))])
def test_classes_in_every_layout_have_no_false_row_and_miss_none(tmp_path, part):
    for number in range(part, TIMES, 10):
        rng = random.Random(number)
        layout = "clones" if number % CLONES_EVERY == part and number < 100 else rng.choice(LAYOUTS[:4])
        layout = "mixed" if number % 50 == part else layout
        made = drawn(layout, tmp_path / f"class{number}", rng)
        checked(made, tmp_path / f"results{number}", rng.choice(("best", "last")))


def checked(made: Drawn, to: Path, pick: str) -> None:
    """Grade with what each submission says, and read every table back."""
    handed = layouts.found(made.folder)
    kept = results.Results(to, results.opened(to, "cpu", "auto", ()))
    for one in handed:
        said = re.search(r"points = (\d+)", one.read().sources["cs336_kernels/rmsnorm.py"])
        assert said, one
        kept.keep(one, "key", report(float(said[1])), "")
    wrote = tables.write(to, tables.Form(tuple(handed), pick))
    assert not wrote.waiting
    wanted = {key: max(worth) if pick == "best" else worth[-1] for key, worth in made.worth.items()}
    students = {
        one.name.rpartition(".")[0] if one.attempt > 1 else one.name: key_of(made.layout, one) for one in handed
    }
    table = rows_of(to / "grades.csv")
    assert {students[row["student"].removeprefix("'")]: float(row["score"]) for row in table} == wanted
    assert len(table) == len(wanted)
    assert {row["source"].removeprefix("'") for row in table} <= {
        names.shown(path.name) for path in made.folder.iterdir()
    }
    if made.layout == "gradescope":
        assert {row["Email"]: float(row["Score"]) for row in rows_of(to / "gradescope.csv")} == wanted
    if made.layout == "canvas":
        assert {row["ID"]: float(row[course().title]) for row in rows_of(to / "canvas.csv")} == wanted
    if made.layout not in ("gradescope", "canvas"):
        assert not rows_of(to / "gradescope.csv")
        assert not rows_of(to / "canvas.csv")
