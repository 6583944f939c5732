"""The checks that make up the grade, as tests/ declares them.

They are read from the source without importing it: what is to be scored is known before anything runs, and a check
that is not collected still counts.
"""

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from tests import operators
from tests.operators import Problem

TESTS = Path(operators.__file__).parent

SPEED, SPEED_SECTION = (
    "speed",
    "handout/grading.md#speed",
)  # the problem that needs a GPU, and the handout's section on it
LAST = ("test_cost.py", "test_compile.py")  # of a problem's checks: what right results cost, and need


@dataclass(frozen=True)
class Check:
    """One test function: its name such as test_rmsnorm.py::test_eps, its problem, its claim and its points."""

    name: str
    problem: str
    claim: str
    points: float
    folder: str = ""  # of its file, below tests/

    @property
    def path(self) -> str:
        """Its name with the file's place below tests/."""
        return f"{self.folder}/{self.name}" if self.folder else self.name

    @property
    def function(self) -> str:
        """That it is about: a claim begins with its name."""
        match = re.match(r"\w+", self.claim)
        return match[0] if match else ""


@functools.cache
def problems() -> dict[str, Problem]:
    """All problems by name: those of the operators, speed, and practice."""
    found = operators.problems()
    graded = {name: problem for name, problem in found.items() if not is_practice(name)}
    return {**graded, SPEED: Problem(SPEED, "Speed on a GPU", 20.0, "handout/grading.md#speed"), **found}


def is_practice(problem: str) -> bool:
    """Whether it is beside the 100 points."""
    return problem in operators.problems() and operators.operator_of(problem).is_practice


def declared(folder: Path = TESTS) -> list[Check]:
    """All checks, in the order of the problems and then of the source."""
    files = sorted(folder.rglob("test_*.py"), key=lambda file: (file.name in LAST, file.name))
    checks = [check for file in files for check in _in_file(file, file.parent.relative_to(folder).as_posix())]
    order = list(problems())
    return sorted(checks, key=lambda check: order.index(check.problem))


def place(name: str) -> tuple[str, bool]:
    """The function that a check is about, and whether it is the first of that function's; of a test that is no check
    its own name.
    """
    return _places().get(name, (name, False))


@functools.cache
def _places() -> dict[str, tuple[str, bool]]:
    checks = declared()
    first = {check.function: check.name for check in reversed(checks)}
    return {check.name: (check.function, first[check.function] == check.name) for check in checks}


def _in_file(file: Path, folder: str) -> list[Check]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    marks = _problem_marks(tree)
    checks = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            points = [_argument(d, "points") for d in node.decorator_list if _is_mark(d, "points")]
            named = [marks[d.id] for d in node.decorator_list if isinstance(d, ast.Name) and d.id in marks]
            if points:
                problem = (named or [marks["pytestmark"]])[0]
                claim = (ast.get_docstring(node) or "").splitlines()[0]
                folder = folder.removeprefix(".")
                checks.append(Check(f"{file.name}::{node.name}", problem, claim, float(points[0]), folder))
    return checks


def _problem_marks(tree: ast.Module) -> dict[str, str]:
    """Names bound in the module to pytest.mark.problem("…")."""
    return {
        target.id: _argument(node.value, "problem")
        for node in tree.body
        if isinstance(node, ast.Assign) and _is_mark(node.value, "problem")
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_mark(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _argument(node: ast.expr, name: str) -> str:
    assert isinstance(node, ast.Call), name
    return ast.literal_eval(node.args[0])


def without_practice(checks: list[Check]) -> list[Check]:
    """Return those that make the 100 points."""
    return [check for check in checks if not is_practice(check.problem)]


def without_a_gpu(checks: list[Check]) -> list[Check]:
    """Those that can be run anywhere."""
    return [check for check in checks if check.problem != SPEED]


def select(checks: list[Check], names: list[str]) -> list[Check]:
    """Return the checks of the named problems, functions, files or checks; raises ValueError where a name fits none.

    A function may be named by its first words: flash_forward is flash_forward_pytorch and flash_forward_triton.
    """
    chosen: set[str] = set()
    for name in names:
        fitting = {check.name for check in checks if _fits(check, name)}
        if not fitting and name not in problems():
            raise ValueError(name)
        chosen |= fitting
    return [check for check in checks if check.name in chosen]


def _fits(check: Check, name: str) -> bool:
    file, _, test = check.name.partition("::")
    is_of_function = name not in problems() and f"{check.function}_".startswith(f"{name}_")
    names = (check.problem, check.name, file, file.removesuffix(".py"), test)
    return is_of_function or name.removeprefix("tests/") in names
