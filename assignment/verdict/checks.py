"""The checks that make up the grade, as tests/ declares them.

They are read from the source without importing it: what is to be scored is known before anything runs, and a check
that is not collected still counts.
"""

import ast
import difflib
import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import common, operators
from tests.operators import Problem

MAX_NEAR = 3
TESTS = Path(operators.__file__).parent

SPEED = "speed"  # the problem that needs a GPU


@dataclass(frozen=True)
class Check:
    """One test function: its name such as test_rmsnorm.py::test_eps, its problem, its claim and its points."""

    name: str
    problem: str
    claim: str
    points: float
    folder: str = ""  # of its file, below tests/
    line: int = 0  # where it stands in the file
    is_timed: bool = False  # on a GPU
    function: str = ""  # that it is about

    @property
    def path(self) -> str:
        """Its name with the file's place below tests/."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


@functools.cache
def problems() -> dict[str, Problem]:
    """Return all problems by name: those of the operators, speed, and practice."""
    found = operators.problems()
    graded = {name: problem for name, problem in found.items() if not is_practice(name)}
    return {**graded, SPEED: Problem(SPEED, "Speed on a GPU", 20.0, "handout/grading.md#speed"), **found}


def is_practice(problem: str) -> bool:
    """Return whether it is beside the 100 points."""
    return problem in operators.problems() and operators.operator_of(problem).is_practice


class PointsDiffer(Exception):
    """A problem's points are not those of its checks; the message has both."""


def declared() -> list[Check]:
    """Return all checks, in the order of the problems and then of the source; raises PointsDiffer."""
    files = sorted(TESTS.rglob("test_*.py"), key=lambda file: file.name)
    checks = [check for file in files for check in _in_file(file)]
    for name, problem in problems().items():
        own = sum(check.points for check in checks if check.problem == name)
        if not math.isclose(own, problem.points):
            raise PointsDiffer(f"{name}: {problem.points:g} points, but its checks have {own:g}; make both the same")
    order = list(problems())
    return sorted(checks, key=lambda check: order.index(check.problem))


def place(name: str) -> tuple[str, bool]:
    """Return the function that a check is about, and whether it is the first of that function's.

    Of a test that is no check: its own name.
    """
    return _places().get(name, (name, False))


@functools.cache
def _places() -> dict[str, tuple[str, bool]]:
    checks = declared()
    first = {check.function: check.name for check in reversed(checks)}
    return {check.name: (check.function, first[check.function] == check.name) for check in checks}


Declared = tuple[str, float, str, str]  # name, points, claim, and problem, "" for its function's


def _in_file(file: Path) -> Iterator[Check]:
    """Yield the checks that a file declares."""
    folder = file.parent.relative_to(TESTS).as_posix().removeprefix(".")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        for name, points, claim, problem in _declared_by(node):
            function, is_timed = operators.named_by(claim), problem == SPEED
            own = _own(problem, function), claim, float(points)
            yield Check(f"{file.name}::{name}", *own, folder, node.lineno, is_timed, function.name)


def _declared_by(node: ast.stmt) -> list[Declared]:
    """Return the checks that a statement declares."""
    if isinstance(node, ast.FunctionDef):
        found = _marked(node)
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        found = _applied(node.targets[0], node.value)
    elif isinstance(node, ast.Expr):
        return [check for call in ast.walk(node) if isinstance(call, ast.Call) for check in _together(call)]
    else:
        return []
    return [found] if found else []


def _together(call: ast.Call) -> list[Declared]:
    """Return those of `rows.checks(operator, …, but={…})`: see tests/common.py."""
    if ast.unparse(call.func) != "rows.checks":
        return []
    name = ast.literal_eval(call.args[0])
    (operator,) = (one for one in operators.operators() if one.name == name)
    but = [ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg == "but"]
    said = common.listed(operator, *but)
    return [(name, *of_check, SPEED if name.endswith(SPEED) else "") for name, of_check in said.items()]


def _own(problem: str, function: operators.Function) -> str:
    """Return the problem that has the points: its function's where none is said, and for the speed of practice."""
    if problem not in ("", SPEED):
        return problem
    return function.problem if not problem or is_practice(function.problem) else problem


def _marked(test: ast.FunctionDef) -> Declared | None:
    """Return what a test marked with points declares."""
    calls = [decorator for decorator in test.decorator_list if isinstance(decorator, ast.Call)]
    marks = {ast.unparse(call.func).removeprefix("pytest.mark."): call for call in calls}
    if "points" not in marks:
        return None
    problem = ast.literal_eval(marks["problem"].args[0]) if "problem" in marks else ""
    claim = (ast.get_docstring(test) or "").splitlines()[0]
    return test.name, ast.literal_eval(marks["points"].args[0]), claim, problem


def _applied(target: ast.expr, call: ast.Call) -> Declared | None:
    """Return the same of `test_name = family(points, claim, …)`: see tests/families.py."""
    if not isinstance(target, ast.Name) or not target.id.startswith("test_"):
        return None
    points, claim = map(ast.literal_eval, call.args[:2])
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    usual = SPEED if ast.unparse(call.func) == SPEED else ""
    return target.id, points, claim, ast.literal_eval(given["problem"]) if "problem" in given else usual


def without_practice(checks: list[Check]) -> list[Check]:
    """Return those that make the 100 points."""
    return [check for check in checks if not is_practice(check.problem)]


def without_a_gpu(checks: list[Check]) -> list[Check]:
    """Return those that can be run anywhere."""
    return [check for check in checks if not check.is_timed]


def select(checks: list[Check], names: Iterable[str]) -> list[Check]:
    """Return the checks of the named problems, functions, files or checks; raises ValueError where a name fits none.

    A function may be named by its first words: flash_forward is flash_forward_pytorch and flash_forward_triton. What
    names checks of the 100 points does not name those of practice, too.
    """
    chosen: set[str] = set()
    for name in names:
        fitting = [check for check in checks if _fits(check, name)]
        if not fitting and name not in problems():
            raise ValueError(name)
        chosen |= {check.name for check in without_practice(fitting) or fitting}
    return [check for check in checks if check.name in chosen]


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that somebody who wrote this one may have meant."""
    return difflib.get_close_matches(name, dict.fromkeys(names), MAX_NEAR, cutoff=0.7)


def names_of(checks: list[Check]) -> list[str]:
    """Return all names by which checks can be selected: problems, functions, files and tests."""
    parts = [(check.problem, check.function, check.name, *check.name.split("::")) for check in checks]
    return [name for of_check in parts for name in of_check]


def _fits(check: Check, name: str) -> bool:
    file, _, test = check.name.partition("::")
    is_of_function = name not in problems() and f"{check.function}_".startswith(f"{name}_")
    names = (check.problem, check.name, check.path, file, file.removesuffix(".py"), test)
    name = name.removeprefix("tests/")
    return is_of_function or name in names or name == f"{check.folder}/{file}"
