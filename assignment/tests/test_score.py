"""From cases to points: pure functions of data."""

import dataclasses
from typing import Any

import pytest

from assignment.verdict import reporting, score
from assignment.verdict.checks import Check
from assignment.verdict.finding import Explanation, Finding
from assignment.verdict.reporting import Circumstances
from assignment.verdict.score import Case, CheckResult

CHECK = Check("test_rmsnorm.py::test_eps", "rmsnorm", "adds eps under the root", 3.0)
COMMAND = "uv run grade.py --seed 5"
SESSION = Circumstances(COMMAND, seed=5, device="cpu-simulated", sandbox="none", submission_sha256="00")


def result(*statuses, expected=None):
    cases = tuple(Case(str(i), status, f"message {i}") for i, status in enumerate(statuses))
    return CheckResult(CHECK, cases, len(cases) if expected is None else expected)


@pytest.mark.parametrize(
    ("statuses", "status", "points"),
    [
        (["ok", "ok"], "ok", 3),
        (["ok", "needs review"], "needs review", 3),
        (["ok", "FAIL"], "FAIL", 0),
        (["todo", "FAIL", "ok"], "FAIL", 0),
        (["todo", "ok"], "todo", 0),
        (["FAIL", "timeout", "crashed"], "crashed", 0),
        (["FAIL", "grader error"], "grader error", 0),
    ],
)
def test_a_check_is_as_good_as_its_worst_case(statuses, status, points):
    assert result(*statuses).status == status
    assert result(*statuses).score == points


def test_a_check_that_was_not_wholly_run_earns_nothing():
    assert result("ok", expected=2).score == 0
    assert result("ok", expected=2).status == "grader error"
    assert result(expected=0).score == 0


def test_the_message_is_that_of_the_first_case_with_the_checks_status():
    entry = reporting.check_entry(result("ok", "todo", "FAIL", "FAIL"), COMMAND)
    assert entry["message"] == "[2] message 2"
    assert (entry["passed"], entry["cases"]) == (1, 4)
    assert entry["rerun"] == "uv run grade.py --seed 5 --only test_rmsnorm.py::test_eps"


def test_points_that_no_check_carries_are_listed_as_not_graded():
    report = reporting.report(SESSION, [result("ok")], [])
    by_name = {problem["name"]: problem for problem in report["problems"]}
    assert by_name["speed"]["checks"][0]["status"] == "not graded"
    assert by_name["rmsnorm"]["gradable"] == 3
    assert (report["score"], report["max_score"], report["gradable"]) == (3, 100, 3)


def test_a_selection_shows_only_what_was_selected():
    report = reporting.report(dataclasses.replace(SESSION, only=("test_eps",)), [result("FAIL")], [])
    assert [problem["name"] for problem in report["problems"]] == ["rmsnorm"]
    assert (report["score"], report["max_score"], report["gradable"]) == (0, 3, 3)


def cheated(problem, function, status="FAIL"):
    check = dataclasses.replace(CHECK, name="test_rmsnorm.py::test_values", problem=problem)
    return CheckResult(check, (Case("first", status, "computed by aten::sum", cheated=(function,)),), 1)


def test_evidence_takes_the_points_of_its_problem_and_of_no_other():
    """The checks that pass say where it was seen; those that fail keep their own message"""
    other = dataclasses.replace(result("ok"), check=dataclasses.replace(CHECK, problem="weighted_sum"))
    wrong = result("timeout")
    judged = score.results([result("ok"), cheated("rmsnorm", "rmsnorm_forward"), wrong, other])
    assert [r.status for r in judged] == ["FAIL", "FAIL", "timeout", "ok"]
    assert [r.score for r in judged] == [0, 0, 0, 3]
    message = judged[0].cases[0].message
    assert message == "the problem earns no points: test_rmsnorm.py::test_values[first]: computed by aten::sum"


def test_flash_attention_costs_its_own_checks_alone():
    """It uses the functions of two problems"""
    own = cheated("flash_backward_triton", "flash_attention")
    rest = dataclasses.replace(result("ok"), check=dataclasses.replace(CHECK, problem="flash_backward_triton"))
    assert [r.status for r in score.results([own, rest])] == ["FAIL", "ok"]
    own = cheated("flash_backward_triton", "flash_backward_triton")
    assert [r.status for r in score.results([own, rest])] == ["FAIL", "FAIL"]


def timed(*cases: tuple[str, float | None]):
    """A check of 5 points with cases of these statuses and shares."""
    check = Check("test_flash_forward.py::test_triton_speed", "speed", "claim", 5.0)
    timing: Any = {"ratio": 0.5}
    made = [
        score.Case(str(i), status, "message", measured="fast", timing=timing, share=share)
        for i, (status, share) in enumerate(cases)
    ]
    return score.CheckResult(check, tuple(made), len(made))


@pytest.mark.parametrize(
    ("cases", "points"),
    [
        ([("ok", None), ("ok", None)], 5),
        ([("ok", None), ("FAIL", 0.5)], 3.75),
        ([("FAIL", 0.2), ("FAIL", 0.4)], 1.5),
        ([("FAIL", 0.9), ("FAIL", None)], 0),  # wrong, in one case
        ([("FAIL", 0.9), ("crashed", None)], 0),
        ([("FAIL", 0.9), ("needs review", None)], 4.75),
    ],
)
def test_who_is_right_but_slow_gets_a_share(cases, points):
    assert timed(*cases).score == points


def test_what_was_measured_is_told():
    entry = reporting.check_entry(timed(("ok", None), ("FAIL", 0.5)), COMMAND)
    assert entry["measured"] == ["0: fast", "1: fast"]
    assert entry["timings"] == [{"case": "0", "ratio": 0.5}, {"case": "1", "ratio": 0.5}]
    assert (entry["status"], entry["passed"]) == ("FAIL", 1)


THIS = Explanation("this", "It is this.")


def test_the_case_that_is_shown_is_the_most_telling_one():
    """A fault with its line, then one with a likely cause, then one of many elements, then the smallest"""
    small, other = Case("small", "FAIL", size=1), Case("other", "FAIL", size=2)
    hinted, fault = (
        Case("hinted", "FAIL", size=8, hints=(THIS,)),
        Case("fault", "FAIL", size=9, finding=Finding("race")),
    )
    numbers = {"wrong": 1, "nan": 0, "elements": 1}
    single = Case("no dimension", "FAIL", finding=Finding("wrong values", numbers=numbers))
    cases = [single, other, small, hinted, fault]
    for expected in (fault, hinted, small, other, single):
        assert CheckResult(CHECK, tuple(cases), len(cases), hints=(THIS,)).worst is expected
        cases.remove(expected)
