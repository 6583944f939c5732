"""The points and claims that tests/ declares."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assignment import course, failure, release
from assignment.classroom import __main__ as classroom
from assignment.classroom import results
from assignment.commands import cli
from assignment.digest import grader_digest
from assignment.plugin import parallel
from assignment.submission import Submission
from assignment.tests.forked import python
from assignment.verdict import checks
from assignment.verdict.checks import SPEED, TESTS, declared, is_practice, problems, select

COLLECT = """
import json, pathlib, sys, pytest
from assignment import plugin
class Collector:
    def pytest_collection_finish(self, session):
        checks = {}
        for item in session.items:
            assert "\\\\" not in item.name, f"pytest escapes {item.name}: a case is named in ASCII"
            points = item.get_closest_marker("points").args[0]
            checks[plugin.check_name(item)] = [points, item.function.__doc__.splitlines()[0]]
        pathlib.Path(sys.argv[1]).write_text(json.dumps(checks))
pytest.main(["-p", "no:terminal", "-o", "addopts=", "--collect-only", sys.argv[2]], plugins=[plugin, Collector()])
"""

WITHOUT_RESULTS = """
import sys
from collections import Counter
import pytest, torch
from tests import compare

class NoResult(Exception):
    pass

def no_result(*tensors, **options):
    raise NoResult

class Run:
    memory_bytes, has_exact_margins = 1 << 40, False
    __call__ = raises = rounds = again = gradients = kept_bytes = costs = largest = compiled = no_result
    ranks = links = traced = inferred = advise = no_result

    def on_smallest_gpu(self):
        pass

class Plugin:
    ended = Counter()

    @pytest.fixture
    def run(self):
        return Run()

    @pytest.fixture
    def rng(self):
        return torch.Generator().manual_seed(1)

    def pytest_collection_modifyitems(self, items):
        first = {item.function: item for item in reversed(items) if "speed" not in item.fixturenames}
        items[:] = first.values()

    def pytest_runtest_makereport(self, item, call):
        if call.when == "call":
            self.ended[call.excinfo.type.__name__] += 1

def modelled(*arguments, **named):
    raise RuntimeError("a model was computed")

compare.Expected.__init__ = modelled
pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", "-c", "/dev/null", sys.argv[1]], plugins=[Plugin()])
print(dict(Plugin.ended))
"""


@pytest.fixture
def of_course(monkeypatch):
    """Have course.toml be read anew, or with a mistake"""

    def become(read) -> None:
        monkeypatch.setattr(course, "course", read)
        checks._of_course.cache_clear()

    yield become
    monkeypatch.undo()
    checks._of_course.cache_clear()


def test_nothing_is_graded_by_a_course_with_a_mistake(of_course, tmp_path, capsys):
    """And no release is cut"""
    said = "course.toml, line 7: rmsnrm: unknown: did you mean rmsnorm?"

    def refused() -> course.Course:
        raise course.CourseError(said)

    of_course(refused)
    for arguments in ([], ["--list"], ["--only", "rmsnorm"], ["--next"]):
        assert cli.main([*arguments, str(tmp_path)]) == failure.BROKEN
        assert said in capsys.readouterr().err
    assert release.main(["student", "--to", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert classroom.main(["grade", str(tmp_path), "--to", str(tmp_path / "r")]) == classroom.UNUSABLE
    assert said in capsys.readouterr().err


def test_points_are_shared(of_course):
    """By weight in whole hundredths, whatever a problem is worth; today's course is what its weights add up to"""
    today = {check.name: check.points for check in declared()}
    assert today == {check.name: check.points for check in checks.in_tests()}
    assert sum(problem.points for problem in problems().values() if not problem.is_practice) == 100
    of_course(lambda: course.Course())
    assert {check.name: check.points for check in declared()} == today
    assert [problem for problem in problems().values() if not problem.is_practice][:2] == [*problems().values()][:2]
    worth: dict[str, float | str] = {
        "softmax": 7.77,
        "weighted_sum": 6.01,
        "rmsnorm": course.PRACTICE,
        "flash_backward_pytorch": course.OFF,
    }
    of_course(lambda: course.Course(points={**worth, SPEED: 0.0}))
    assert [name for name in problems() if not is_practice(name)] == [
        "softmax", "weighted_sum", "flash_forward_pytorch", "flash_forward_triton", "flash_backward_triton"
    ]  # fmt: skip
    for name, problem in problems().items():
        own = [check.points for check in declared() if check.problem == name]
        assert sum(round(100 * points) for points in own) == round(100 * problem.points), name
    assert problems()["softmax"].points == 7.77
    assert {check.problem for check in declared() if check.is_timed} >= {"rmsnorm", "matmul"}
    assert not {check.name for check in declared()} & {"test_softmax.py::test_forward_speed"}
    assert {"flash_backward_pytorch", SPEED}.isdisjoint({check.problem for check in declared()} | {*problems()})


def test_kept_results_are_of_points_and_of_no_date(of_course):
    """A class is graded anew where they change; what was compiled is not compiled anew"""
    of, settings, when = Submission({}), results.ClassSettings(1), datetime(2026, 11, 30, tzinfo=UTC)
    keys, compiled = [], []
    for other in ({}, {"title": "x", "due": when}, {"points": {"rmsnorm": 19.0}}, {"points": {"softmax": 1.0}}):
        of_course(lambda other=other: course.Course(**other))
        keys.append(results.key(of, settings))
        compiled.append(grader_digest())
    assert keys[0] == keys[1]
    assert len({*keys}) == 3
    assert len({*compiled}) == 1


@pytest.mark.parametrize(
    ("points", "weights", "shares"),
    [
        (10, [1, 1, 1], [3.34, 3.33, 3.33]),
        (0.05, [1, 2, 1], [0.01, 0.03, 0.01]),
        (1, [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
        (0, [1, 2], [0.0, 0.0]),
        (20, [1.5] * 7, [2.86, 2.86, 2.86, 2.86, 2.86, 2.85, 2.85]),
    ],
)
def test_what_is_left_goes_to_the_largest_remainders(points, weights, shares):
    assert checks.shared_by(points, weights) == shares


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_above_nothing(weight):
    one = replace(declared()[0], points=weight)
    with pytest.raises(course.CourseError, match=r"test_\w+\.py::test_\w+: expected a weight above 0"):
        checks.in_course(course.Course(), [one])


def test_a_course_grades_something():
    with pytest.raises(course.CourseError, match="expected points for a problem beside speed, got none"):
        checks.in_course(
            course.Course(points=dict.fromkeys(problems(), course.PRACTICE) | {SPEED: 20.0}), checks.in_tests()
        )


def test_a_graded_problem_has_checks():
    found = [check for check in declared() if check.problem == "rmsnorm"]
    with pytest.raises(course.CourseError, match="weighted_sum: expected checks of a graded problem"):
        checks.in_course(course.Course(), found)


def test_plain_float32_values_carry_two_fifths():
    for name in problems():
        plain = ("values", "_causal")
        own = [check for check in declared() if check.problem == name]
        values = sum(check.points for check in own if check.name.endswith(plain))
        assert name == SPEED or values >= 0.4 * sum(check.points for check in own), name


def test_gradient_of_flash_attention_is_at_most_three_points():
    (check,) = select(declared(), ["test_attention_gradients"])
    assert check.problem == "flash_backward_triton"
    assert check.points <= 3


def test_claims_are_unique():
    claims = [check.claim for check in declared()]
    assert len(set(claims)) == len(claims)


@pytest.mark.slow
def test_source_and_pytest_agree(tmp_path):
    """What is read from the source is what pytest collects: names, weights and claims"""
    file = tmp_path / "checks.json"
    python("-c", COLLECT, file, TESTS, cwd=TESTS.parent).check_returncode()
    collected = {name: tuple(check) for name, check in json.loads(file.read_text()).items()}
    assert collected == {check.name: (check.points, check.claim) for check in checks.in_tests()}


@pytest.mark.slow
def test_what_has_no_result_costs_no_model():
    """Of every check the first case: a model is computed for a result to compare"""
    done = python("-c", WITHOUT_RESULTS, TESTS, cwd=TESTS.parent)
    assert done.stdout == f"{ {'NoResult': len([check for check in declared() if not check.is_timed])} }\n", done.stderr


@pytest.mark.parametrize(
    "name",
    ["rmsnorm", "test_rmsnorm.py::test_eps", "tests/rmsnorm/test_rmsnorm.py::test_eps", "test_eps"],
)
def test_names_that_select(name):
    assert {check.problem for check in select(declared(), [name])} == {"rmsnorm"}


@pytest.mark.parametrize("name", ["test_rmsnorm.py", "tests/rmsnorm/test_rmsnorm.py", "test_rmsnorm"])
def test_a_file_is_selected_with_its_speed(name):
    assert {check.problem for check in select(declared(), [name])} == {"rmsnorm", SPEED}


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("rmsnorm_forward", {"rmsnorm_forward"}),
        ("flash_forward", {"flash_forward_pytorch", "flash_forward_triton"}),
        ("flash_attention", {"flash_attention"}),
    ],
)
def test_a_function_selects_its_checks(name, functions):
    """The last ones of attention stand in two problems; a problem's name is the problem's alone"""
    assert {check.function for check in select(declared(), [name])} == functions
    assert {check.problem for check in select(declared(), ["weighted_sum"])} == {"weighted_sum"}


@pytest.mark.parametrize("name", ["flash_for", "weigh", "rmsnorm_"])
def test_half_a_word_selects_nothing(name):
    with pytest.raises(ValueError, match=name):
        select(declared(), [name])


def test_a_name_that_fits_nothing():
    with pytest.raises(ValueError, match="rmsnrom"):
        select(declared(), ["rmsnrom"])


def test_a_single_judge_computes_with_one_thread(monkeypatch):
    """Two for each of many grades side by side would make all of them several times slower"""
    pool = SimpleNamespace(jobs=1)
    monkeypatch.setattr(parallel, "pool_of", lambda config: pool)
    monkeypatch.setattr(parallel, "prepare_for_speed", lambda session: None)
    item, option = SimpleNamespace(fixturenames=["run"]), SimpleNamespace(collectonly=0)
    session: Any = SimpleNamespace(testsfailed=0, items=[item], config=SimpleNamespace(option=option))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert parallel.pytest_runtestloop(session) is None
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_name_of_graded_checks_asks_for_no_practice():
    """Which its own file, problem and functions do"""
    both = {check.problem for check in declared() if check.name.endswith("::test_forward_values")}
    assert {"rmsnorm", "softmax"} <= both
    assert {check.problem for check in select(declared(), ["test_forward_values"])} == {"weighted_sum", "rmsnorm"}
    assert {check.problem for check in select(declared(), ["softmax_forward"])} == {"softmax"}
    (check,) = select(declared(), ["test_softmax.py::test_forward_values"])
    assert check.problem == "softmax"
