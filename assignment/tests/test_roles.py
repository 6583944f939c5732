"""Each process has a folder of its own: what a role may import is there, and nothing of another's."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from assignment.sandbox import stage

SHARED = {"whose", "pytorch_private", "protocol", "calling", "host", "simulator", "compiling"}
STAFFS = {"bank", "figures", "new", "reference", "release", "retire", "tests"}  # build on all the rest


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def imported(path: Path) -> list[tuple[str, bool]]:
    """Return the modules of ours that a file imports, dotted and without "assignment.", and whether as it is loaded."""
    return list(_imported(path))


def _imported(path: Path) -> Iterator[tuple[str, bool]]:
    tree = ast.parse(path.read_text())
    package = path.relative_to(stage.OURS).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name.partition(".")[2], node in tree.body) for a in node.names if of_ours(a.name))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            if node.level or of_ours(node.module or ""):
                own = (node.module or "").split(".")[0 if node.level else 1 :]
                for alias in node.names:
                    dotted = [*base, *filter(None, own), alias.name]
                    yield ".".join(dotted if is_module(dotted) else dotted[:-1]), node in tree.body


def of_ours(name: str) -> bool:
    return name.partition(".")[0] == stage.OURS.name


def is_module(parts: list[str]) -> bool:
    path = stage.OURS.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("role", ["recorder", "player"])
def test_recorder_and_player_know_nothing_of_each_other(role):
    for path in modules(stage.OURS / role):
        for name, _ in imported(path):
            assert name.partition(".")[0] in {role, *SHARED}, f"{path.name} imports {name}"


@pytest.mark.parametrize("role", stage.RUNTIME)
def test_what_a_role_loads_is_in_its_folder(role):
    """Of what a function imports when it runs, all but what serves other roles"""
    listed = [stage.OURS / name for name in (*stage.COMMON, *stage.RUNTIME[role])]
    files = {file for path in listed for file in (modules(path) if path.is_dir() else [path])}
    for path in files:
        for name, at_once in imported(path):
            file = stage.OURS.joinpath(*name.split("."))
            held = file.with_suffix(".py") in files or file / "__init__.py" in files
            assert held or not at_once, f"{role}: {path} imports {name}"


def test_no_role_that_holds_graded_values_holds_the_submission():
    for role in ("play", "compile", "gpu"):
        assert not {"host", "recorder"} & {*stage.RUNTIME[role]}
    assert "player" not in stage.RUNTIME["record"]
