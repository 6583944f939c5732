"""The checks that make up the grade, as tests/ declares them.

They are read from the source without importing it: what is to be scored is known before anything runs, and a check
that is not collected still counts.
"""

import ast
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from assignment import course
from tests import common, operators

TESTS = Path(operators.__file__).parent
SPEED = course.SPEED
COMPILES = "compiles"  # how the names of checks end that have kernels compiled
SPEED_PROBLEM = operators.Problem(SPEED, "Speed on a GPU", "handout/grading.md#speed")


@dataclass(frozen=True)
class Problem:
    """A part of the course: what it is called, its section of the handout, and what it is worth.

    `is_practice`: its points are in no sum.
    """

    name: str
    title: str
    section: str
    points: float
    is_practice: bool


@dataclass(frozen=True)
class Check:
    """One test function: its name such as test_rmsnorm.py::test_eps, its problem, its claim and its points.

    What tests/ declares is its weight: of its problem's points it has that share among the problem's checks.
    """

    name: str
    problem: str
    claim: str
    points: float
    folder: str = ""  # of its file, below tests/
    line: int = 0  # where it stands in the file
    is_timed: bool = False  # on a GPU
    is_compiled: bool = False  # for GPUs that need not be there, by Triton's compiler
    function: str = ""  # that it is about

    @property
    def path(self) -> str:
        """Its name with the file's place below tests/."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


def problems() -> dict[str, Problem]:
    """Return all problems of the course by name: those with points, in its order, and practice; raises CourseError."""
    return _of_course()[0]


def declared() -> list[Check]:
    """Return all checks of the course, in the order of the problems and then of the source; raises CourseError."""
    return [*_of_course()[1]]


def worth() -> str:
    """Return what grades depend on of the course: checks with their problems and points, no names and no dates."""
    return repr([(check.name, check.problem, check.points) for check in declared()])


def is_practice(problem: str) -> bool:
    """Return whether it is in no sum."""
    return problem in problems() and problems()[problem].is_practice


@functools.cache
def _of_course() -> tuple[dict[str, Problem], list[Check]]:
    return in_course(course.course(), in_tests())


def in_tests() -> list[Check]:
    """Return all checks that tests/ declares, of problems of any course; their points are weights."""
    files = sorted(TESTS.rglob("test_*.py"), key=lambda file: file.name)
    return [check for file in files for check in _in_file(file)]


def in_course(of: course.Course, found: list[Check]) -> tuple[dict[str, Problem], list[Check]]:
    """Return a course's problems and checks, of those that tests/ declares; raises CourseError."""
    for check in found:
        if not 0 < check.points < math.inf:
            raise course.CourseError(f"tests/{check.path}: expected a weight above 0, got {check.points:g}")
    worth = _worth(of)
    graded = [name for name, said in worth.items() if said not in course.WORDS]
    if not {*graded} - {SPEED}:
        raise course.CourseError(f"{course.FILE}: [points]: expected points for a problem beside speed, got none")
    own: dict[str, list[Check]] = {name: [] for name, said in worth.items() if said != course.OFF}
    for check in found:
        name = SPEED if check.is_timed and check.problem in graded else check.problem
        if name in own:
            own[name].append(replace(check, problem=name))
    made, shared = {}, []
    for name, checks in own.items():
        if name in graded and not checks:
            raise course.CourseError(f"{course.FILE}: {name}: expected checks of a graded problem, got none in tests/")
        said, weights = worth[name], [check.points for check in checks]
        points = said if isinstance(said, float) else sum(weights)
        called = operators.problems().get(name, SPEED_PROBLEM)
        made[name] = Problem(name, called.title, called.section, points, name not in graded)
        for check, share in zip(checks, shared_by(points, weights), strict=True):
            shared.append(replace(check, points=share))
    return made, shared


def _worth(of: course.Course) -> dict[str, float | str | None]:
    """Return what a course says of each problem, in its order, speed and practice last; None: what its weights are."""
    usual = [one for operator in operators.operators() if operator.follows is None for one in operator.problems]
    said = {**of.points, **{one.name: None for one in usual if one.name not in of.points}}
    speed = said.pop(SPEED, None)
    practice = {n: course.PRACTICE for n in operators.problems() if said.get(n, course.PRACTICE) == course.PRACTICE}
    graded = {name: worth for name, worth in said.items() if name not in practice}
    return {**graded, SPEED: course.OFF if speed == 0 else speed, **practice}


def shared_by(points: float, weights: Sequence[float]) -> list[float]:
    """Return shares of points in whole hundredths: by largest remainder, the first of equal ones."""
    whole, total = round(100 * points), sum(map(Fraction, weights))
    exact = [Fraction(weight) * whole / total for weight in weights]
    shares = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: whole - sum(shares)]:
        shares[i] += 1
    return [share / 100 for share in shares]


def place(name: str) -> tuple[str, bool]:
    """Return the function that a check is about, and whether it is the first of that function's.

    Of a test that is no check: its own name.
    """
    return _places().get(name, (name, False))


def problem_of(name: str) -> str:
    """Return the problem of a check; "" where the course has none of this name."""
    return _problems().get(name, "")


@functools.cache
def _problems() -> dict[str, str]:
    return {check.name: check.problem for check in declared()}


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
            own = function.problem if is_timed or not problem else problem
            at = folder, node.lineno, is_timed, name.endswith(COMPILES), function.name
            yield Check(f"{file.name}::{name}", own, claim, float(points), *at)


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
    """Return those whose points are in the sum."""
    return [check for check in checks if not is_practice(check.problem)]


def without_a_gpu(checks: list[Check]) -> list[Check]:
    """Return those that can be run anywhere."""
    return [check for check in checks if not check.is_timed]


def without_a_compiler(checks: list[Check]) -> list[Check]:
    """Return those that can be run where Triton's compiler is not installed."""
    return [check for check in checks if not check.is_compiled]


def needed(linux: float, gpu: float) -> str:
    """Return what points need that cannot be graded here: "1.75 need Linux, 20 a GPU"."""
    told = [f"{points:g} need {what}" for points, what in ((linux, "Linux"), (gpu, "a GPU")) if points]
    return ", ".join(told[:1] + [one.replace(" need", "") for one in told[1:]])


def select(checks: list[Check], names: Iterable[str]) -> list[Check]:
    """Return the checks of the named problems, functions, files or checks; raises ValueError where a name fits none.

    A function may be named by its first words: flash_forward is flash_forward_pytorch and flash_forward_triton. What
    names checks whose points are in the sum does not name those of practice, too.
    """
    chosen: set[str] = set()
    for name in names:
        fitting = [check for check in checks if _fits(check, name)]
        if not fitting and name not in problems():
            raise ValueError(name)
        chosen |= {check.name for check in without_practice(fitting) or fitting}
    return [check for check in checks if check.name in chosen]


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
