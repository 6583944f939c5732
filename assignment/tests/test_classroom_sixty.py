"""A class of 60, with clones, late ones, hangers and hostile files, interrupted and resumed: no row is false."""

import datetime
import json
import random
import signal
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from assignment.tests.graded import ROOT
from assignment.tests.test_classroom import DUE, package
from assignment.tests.test_classroom_layouts import git
from assignment.tests.test_classroom_tables import rows

CHECK = "test_weighted_sum.py::test_forward_values"
LIMIT_S = 12
RIGHT = (ROOT / "assignment/reference/cs336_kernels/weighted_sum.py").read_text()
STUB = (ROOT / "cs336_kernels/weighted_sum.py").read_text()


def instead(*lines: str) -> str:
    """Return a right solution whose forward pass does something else first."""
    at = RIGHT.index('"""', RIGHT.index('"""', RIGHT.index("def weighted_sum_forward(")) + 3) + 3
    return RIGHT[:at] + "\n" + textwrap.indent("\n".join(lines), "    ") + RIGHT[at:]


FORGED = """\
import pathlib, sys
root = pathlib.Path(sys.modules["assignment.recorder.tape"].__file__).parents[1]
exec(compile("[][1] or 'give full points'", str(root / "zz.py"), "exec"))"""
# by name: the source, points of the check, and what stands under `state`
KINDS = {
    "right": (RIGHT, "2.0", ""),
    "stub": (STUB, "0.0", ""),
    "hangs": (instead("n = 0", "while True:", "    n += 1"), "0.0", "graded in part"),
    "blames": (instead(*FORGED.splitlines()), "0.0", ""),
    "exits": (instead("import os", "os._exit(0)"), "0.0", ""),
    "prints": (instead("print('Score: 80/80')", "return x.sum(-1) * 0"), "0.0", ""),
    "no Python": ("def (:\n", "0.0", ""),
    "repeats": (STUB + "y = x + x - x * x\n" * 40_000, "0.0", ""),
}
OF_60 = {"right": 6, "stub": 34, "hangs": 2, "blames": 4, "exits": 4, "prints": 4, "no Python": 3, "repeats": 3}
NAMES = ["=cmd()|' calc'!A0", "x;=HYPERLINK(1)", "＝1+1", "-rf", "Zoë", "李雷", "a;b", "ada.2", "O'Brien", "+1"]


@dataclass(frozen=True)
class Student:
    """What a student hands in, and what their row must say."""

    key: str
    kind: str
    form: str  # folder, zip, on time or late, of a clone
    days: str  # late


def students() -> list[Student]:
    rng = random.Random(60)
    kinds = [kind for kind, count in OF_60.items() for _ in range(count)]
    rng.shuffle(kinds)
    names = [*NAMES, *(f"student{i}" for i in range(len(NAMES), 60))]
    forms = [("folder", ""), ("zip", ""), ("clone", "0"), ("clone", "3")]
    return [Student(name, kind, *forms[i % 4]) for i, (name, kind) in enumerate(zip(names, kinds, strict=True))]


def write(folder: Path, one: Student) -> None:
    source = KINDS[one.kind][0] + f"# {one.key}\n"
    if one.form == "zip":
        with zipfile.ZipFile(folder / f"{one.key}.zip", "w") as archive:
            archive.writestr("cs336_kernels/weighted_sum.py", source)
        return
    package(folder / one.key, source)
    if one.form == "clone":
        when = DUE + datetime.timedelta(days=int(one.days), hours=-1)
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            git(folder / one.key, *command, when=when.isoformat())


def command(folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "assignment.classroom", "grade", str(folder / "class"), "--to", str(folder / "results"),
        "--only", CHECK, "--device", "cpu", "--limit", str(LIMIT_S), "--due", DUE.isoformat(),
    ]  # fmt: skip


def interrupted(folder: Path, after: int) -> int:
    """Run the command until so many are graded, and interrupt it; return its exit status."""
    with subprocess.Popen(command(folder), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        n_told = 0
        while n_told < after and (line := process.stdout.readline()):
            n_told += " of 2 in " in line
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        return process.wait(120)


@pytest.mark.slow
def test_a_class_of_sixty_has_no_false_row(tmp_path):
    (tmp_path / "class").mkdir()
    wanted = {one.key: one for one in students()}
    for one in wanted.values():
        write(tmp_path / "class", one)
    (tmp_path / "class" / "broken.zip").write_bytes(b"PK and no more")
    (tmp_path / "class" / "link").symlink_to("/etc")
    for after in (3, 12):
        assert interrupted(tmp_path, after) == 130
        assert (tmp_path / "results" / "grades.incomplete.csv").exists()
    done = subprocess.run(command(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 1, done.stderr  # who hangs, and what cannot be read, has no whole grade
    assert "27 more: no time known, taken as in time" in done.stdout
    reports = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results/reports").glob("*.json")}
    keys = {name: Path(report["classroom"]["source"]).name for name, report in reports.items()}
    table = {}
    for row in rows(tmp_path / "results" / "grades.csv"):
        name = row["student"].removeprefix("'")
        assert name not in table
        table[name] = row
    assert len(table) == len(wanted) + 2
    for name, row in table.items():
        key = keys[name].removesuffix(".zip")
        if key in ("broken", "link"):
            assert (row["score"], row["state"], row["late"]) == ("", "not graded", "unknown")
            continue
        one = wanted.pop(key)
        _, score, state = KINDS[one.kind]
        assert (row["score"], row["state"], row["late"]) == (score, state, one.days or "unknown"), (one, row)
    assert not wanted
    for report in reports.values():
        notes = report.get("notes_to_staff", [])
        assert all("says that it failed itself" in note for note in notes)
    assert sum(bool(report.get("notes_to_staff")) for report in reports.values()) == OF_60["blames"]
