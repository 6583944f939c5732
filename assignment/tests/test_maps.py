"""Maps of the tree name what is there, and all of it; modules have names of their own."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from assignment.handout import notebook

OURS = Path(__file__).resolve().parents[1]
APART = ("operators", "bank/operators", "bank/cheats", "reference", "tests")  # of one form each
REPEATED = 0.15  # share of modules whose name another has


def machinery(name: str) -> list[Path]:
    """The files of this form, but for those of operators, submissions and tests."""
    paths = {path.relative_to(OURS).as_posix(): path for path in sorted(OURS.rglob(name))}
    return [path for name, path in paths.items() if not name.startswith(APART)]


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def entries(said: str) -> set[str]:
    """The words that begin a line of a map: with two spaces or more before what is said of each."""
    return set(re.findall(r"^ *(\w+)(?:\.py|/)? {2,}\S", said, re.MULTILINE))


MAPS = [path for path in machinery("__init__.py") if len(entries(docstring(path))) > 1]


@pytest.mark.parametrize("path", MAPS, ids=lambda path: path.parent.relative_to(OURS).as_posix())
def test_a_map_names_all_modules_of_its_package(path):
    said, folder = docstring(path), path.parent
    there = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__init__.py")}
    assert not {name for name in there - {"__init__", "__main__"} if not re.search(rf"\b{name}\b", said)}
    assert entries(said) <= there, "named, and not there"


def test_the_trees_of_the_readmes_name_what_is_there():
    root = OURS.parent
    for page in (root / "README.md", OURS / "README.md"):
        for tree in re.findall(r"```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            above = ""
            for spaces, name in re.findall(r"^( *)([\w./]+/|[\w.]+\.\w+)(?= |$)", tree, re.MULTILINE):
                above = above if spaces else name
                if name == notebook.NOTEBOOK:  # which the student release has
                    continue
                assert (root / (above if spaces else "") / name).exists(), f"{page.name}: {name}"
    for place in re.findall(r"`((?:[\w]+/)+\w+\.py)`", (root / "README.md").read_text(encoding="utf-8")):
        assert (OURS / place).exists() or (root / place).exists() or "NAME" in place, place


def test_modules_have_names_of_their_own():
    names = Counter(path.name for path in machinery("[!_]*.py"))
    repeated = {name: count for name, count in names.items() if count > 1}
    assert sum(repeated.values()) / names.total() <= REPEATED, repeated
