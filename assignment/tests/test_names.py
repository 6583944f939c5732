"""Nothing but an operator's own folders names it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import operators

OURS = Path(__file__).resolve().parents[1]
STAFFS = {"figures", "operators", "reference", "tests"}
EXEMPT = (
    "attacks/cheats/",  # are about the grader, by the functions that are there
    "attacks/__main__.py",  # in the help, for an example
    "attacks/faults.py",  # grades one of them, meanwhile
    "attacks/whole_runs.py",  # a file's name, as bait
)
NAMES = {
    *operators.functions(),
    *operators.problems(),
    *(operator.name for operator in operators.operators()),
}


def words(node: ast.AST) -> Iterator[str]:
    """The identifiers of a node, and the words of its strings."""
    for field in ("id", "attr", "name", "value"):
        if isinstance(text := getattr(node, field, None), str):
            yield from re.findall(r"\w+", text)


def docstrings(tree: ast.Module) -> set[int]:
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def test_the_machinery_names_no_operator():
    """Docstrings may, for an example"""
    found = []
    for path in sorted(OURS.rglob("*.py")):
        name = path.relative_to(OURS).as_posix()
        if name.split("/")[0] in STAFFS or name.startswith(EXEMPT):
            continue
        tree = ast.parse(path.read_text())
        said = docstrings(tree)
        nodes = (node for node in ast.walk(tree) if id(node) not in said)
        found += [
            f"{name}:{getattr(node, 'lineno', 0)} {word}" for node in nodes for word in words(node) if word in NAMES
        ]
    assert not found
