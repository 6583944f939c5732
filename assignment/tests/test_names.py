"""Nothing but an operator's own folders names it."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from inspect import signature
from pathlib import Path

from tests import operators

OURS = Path(__file__).resolve().parents[1]
STAFFS = {"figures", "operators", "reference", "tests"}
EXEMPT = (
    "bank/operators/",  # are theirs
    "bank/cheats/",  # are about the grader, by the functions that are there
    "bank/run/grade.py",  # in the help, for an example
    "bank/run/signals.py",  # grades one of them, meanwhile
    "bank/run/whole_runs.py",  # a file's name, as bait
    "simulator/autocast.py",  # functions of PyTorch
)
OPERATIONS = {"matmul", "custom_op"}  # of PyTorch and NumPy, too, which the machinery names
NAMES = {
    *operators.functions(),
    *operators.problems(),
    *(operator.name for operator in operators.operators()),
} - OPERATIONS
TENSORS = {name for function in operators.functions().values() for name in (*function.inputs, *function.outputs)}
ORACLES = {operators.oracle(function.oracle) for function in operators.functions().values()}
OPTIONS = {name for oracle in ORACLES for name in signature(oracle).parameters}
OTHERS = {"player/derivations.py: weight"}  # an argument of aten::lerp
OF_OTHERS = {
    "mean",
    "seed",
    "block",
    "values",
    "rows",
    "call",
    "rank",
    "ranks",
    "others",
    "signals",
}  # words for other things too: an operation of PyTorch, what is drawn from


def words(node: ast.AST) -> Iterator[str]:
    """The identifiers of a node, and the words of its strings."""
    for field in ("id", "attr", "name", "value"):
        if isinstance(text := getattr(node, field, None), str):
            yield from re.findall(r"\w+", text)


def docstrings(nodes: list[ast.AST]) -> set[int]:
    bodies = [node.body for node in nodes if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


@cache
def machinery() -> list[tuple[str, list[ast.AST]]]:
    """The files of no operator, each with what is in it but docstrings: these may name one, for an example."""
    found, shared = [], [*(OURS / "operators").glob("*.py"), operators.HERE / "operators.py"]
    for path in [*sorted(OURS.rglob("*.py")), *shared]:
        name = path.relative_to(OURS.parent).as_posix().removeprefix("assignment/")
        is_ours = path in shared or name.split("/")[0] not in STAFFS
        if is_ours and not name.startswith(EXEMPT):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            said = docstrings(nodes)
            found.append((name, [node for node in nodes if id(node) not in said]))
    return found


def test_the_machinery_names_no_operator():
    found = [
        f"{name}:{getattr(node, 'lineno', 0)} {word}"
        for name, nodes in machinery()
        for node in nodes
        for word in words(node)
        if word in NAMES
    ]
    assert not found


def test_the_machinery_names_no_input_result_or_option():
    """As a string, or where it is one letter, which stands for other things too, in a subscript"""
    found = {f"{name}: {word}" for name, nodes in machinery() for node in nodes for word in named_tensors(node)}
    assert found - OTHERS == set()


def named_tensors(node: ast.AST) -> list[str]:
    value = node.slice if isinstance(node, ast.Subscript) else node
    word = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
    known = word in (TENSORS | OPTIONS) - OF_OTHERS and (len(word) > 1 or isinstance(node, ast.Subscript))
    return [word] * known
