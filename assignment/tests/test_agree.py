"""What a wrong result comes from: the checks of a function agree on it, and whoever tells of it says the same."""

import ast
import dataclasses
import io
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from assignment.bank.corpus import VARIANT, Entry
from assignment.bank.run import judging
from assignment.classroom import grading_process
from assignment.commands import explain, modes, next_check, run
from assignment.commands.settings import Settings
from assignment.submission import Submission
from assignment.tests.test_seams import trees
from assignment.verdict import causes, checks, reporting, score
from assignment.verdict.case import PROPERTY, Case, CheckCases
from assignment.verdict.checks import Check
from assignment.verdict.finding import WRONG_VALUES, Explanation, Finding

CHECK = Check("test_rmsnorm.py::test_eps", "rmsnorm", "adds eps under the root", 3.0)
PLAIN = dataclasses.replace(CHECK, name="test_rmsnorm.py::test_plain")
THIS, THAT = Explanation("this", "It is this."), Explanation("that", "Or that.")
THIRD = Explanation("third", "Or a third.", is_rare=True)


def case(name, *hints, **of):
    return Case(name, "FAIL", hints=hints, **of)


def told(*checks):
    """The hints of checks' reports, of each check and its cases."""
    gathered = [CheckCases(check, cases, len(cases)) for check, cases in checks]
    return [reporting.check_entry(result, "")["hint"] for result in score.results(gathered)]


def test_a_hint_says_in_which_case_it_was_seen():
    small = Case("small", "FAIL", "out of bounds", size=1, finding=Finding("out of bounds"))
    large = case("large", THIS, size=9)
    assert told((CHECK, (small, large))) == ["In case [large]: It is this."]
    assert told((CHECK, (case("small", THIS, THAT, size=1), large))) == ["It is this."]
    assert told((CHECK, (small,))) == [""]


def test_a_hint_that_explains_few_of_the_cases_is_chance():
    """Of those that somebody has looked into"""
    seen, not_seen, unknown = case("a", THIS), case("b"), Case("c", "FAIL")
    assert told((CHECK, (seen, not_seen))) == told((CHECK, (seen, unknown, unknown))) == ["It is this."]
    assert told((CHECK, (seen, not_seen, not_seen))) == told((CHECK, (unknown,))) == [""]


def test_two_hints_that_explain_all_cases_alike_are_both_told():
    """Where one of them explains another case too, it alone is"""
    both = case("a", THIS, THAT, THIRD)
    assert told((CHECK, (both,))) == ["It is this. Or: Or that."]
    assert told((CHECK, (both, case("b", THAT)))) == ["Or that."]


def test_what_is_rare_is_told_only_where_it_explains_more():
    assert told((CHECK, (case("a", THIRD, THAT),))) == ["Or that."]
    assert told((CHECK, (case("a", THIRD, THAT), case("b", THIRD)))) == ["Or a third."]


@pytest.mark.parametrize(
    ("first", "second", "hint"),
    [
        ((), (THIS,), ""),  # what explains the plain values not at all is not what is wrong elsewhere
        ((THAT,), (THIS,), ""),
        ((THIS,), (THIS, THAT), "It is this."),
        (None, (THIS,), "It is this."),  # right there, or nobody has looked
    ],
)
def test_a_hint_does_not_contradict_the_first_check_of_its_function(first, second, hint):
    plain = (Case("a", "FAIL", hints=first),)
    assert told((PLAIN, plain), (CHECK, (case("a", *second),)))[1] == hint
    elsewhere = dataclasses.replace(PLAIN, function="rmsnorm_backward")
    assert told((elsewhere, plain), (CHECK, (case("a", *second),)))[1] == reporting.OR.join(map(str, second))


def test_a_hint_that_explains_more_of_its_function_goes_before():
    """In the check of its own two explain the same; of these the one that is seen elsewhere too is likelier"""
    both = (CHECK, (case("a", THAT, THIS),))
    other = dataclasses.replace(CHECK, name="test_rmsnorm.py::test_other")
    assert told(both) == ["Or that. Or: It is this."]
    hints = told((PLAIN, (Case("a", "ok"),)), both, (other, (case("b", THIS),)))
    assert hints == ["", "It is this.", "It is this."]


# Whoever tells of it.

PROBLEMS = ("weighted_sum", "rmsnorm")
SELECTED = [check for check in checks.without_a_gpu(checks.declared()) if check.problem in PROBLEMS]
EXPLANATIONS = [Explanation(name, f"It is {name}.") for name in ("this", "that", "another", "a fourth")]
Cases = dict[str, list[Case]]


def drawn(seed) -> Cases:
    """Cases of each check, some of which are wrong for one reason and some for another."""
    draw = random.Random(seed)
    return {check.name: [drawn_case(draw, str(i)) for i in range(draw.randint(1, 3))] for check in SELECTED}


def drawn_case(draw, name) -> Case:
    if draw.random() < 0.3:
        return Case(name, score.OK)
    hints = tuple(draw.sample(EXPLANATIONS, draw.randint(0, 3))) if draw.random() < 0.8 else None
    return Case(name, score.FAIL, "wrong", 2.0, hints=hints, finding=Finding(WRONG_VALUES, f"wrong {draw.random()}"))


def item(check, of: Case) -> Any:
    file, _, test = check.name.partition("::")
    config = SimpleNamespace(stash=pytest.Stash())
    return SimpleNamespace(path=Path(file), name=test, originalname=test, case=of, user_properties=[], config=config)


def heard(of) -> Any:
    """What pytest reports of an item."""
    name = f"tests/{of.path}::{of.originalname}[{of.case.name}]"
    return SimpleNamespace(nodeid=name, user_properties=[(PROPERTY, json.loads(json.dumps(of.case.as_json())))])


def asked(selected, cases: Cases, monkeypatch) -> run.GraderRun:
    """A run of these checks, whose cases come out as they are drawn."""

    def run_pytest(selected, judge, pool):
        items = [item(check, of) for check in selected for of in cases[check.name]]
        judge.pytest_collection_finish(SimpleNamespace(items=items))
        for one in items:
            judge.pytest_runtest_logreport(heard(one))
        judge.pytest_unconfigure()
        return pytest.ExitCode.OK

    monkeypatch.setattr(run, "run_pytest", run_pytest)
    pool: Any = SimpleNamespace(
        device="cpu", seed=1, rung="landlock", jobs=1, shared=SimpleNamespace(until=math.inf),
        submission=Submission({}), close=lambda: None, replace=lambda submission, seed: None,
    )  # fmt: skip
    return run.GraderRun(selected, pool, Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=200))


def printed(mode: run.Mode, settings: Settings, asked: run.GraderRun) -> str:
    assert mode(settings, asked) == run.GRADED
    assert isinstance(asked.console.file, io.StringIO)
    return asked.console.file.getvalue()


def shown(out: str) -> list[str]:
    return re.findall(r"likely cause: (.*)", out)


def graded(folder: Path, asked: run.GraderRun) -> tuple[dict[str, Any], str, str]:
    """The entries of checks in the report as JSON, its page, and what is printed."""
    settings = Settings(json=folder / "report.json", html=folder / "page.html")
    out = printed(run.grade, settings, asked)
    report = json.loads((folder / "report.json").read_text())
    return {check["name"]: check for check in reporting.entries_of(report)}, (folder / "page.html").read_text(), out


@pytest.mark.parametrize("seed", range(10))
def test_all_who_tell_of_the_same_cases_say_the_same(seed, tmp_path, monkeypatch):
    """`grade.py` on the screen, as JSON and as a page, a class, the bank, and --next"""
    cases = drawn(seed)
    entries, page, out = graded(tmp_path, asked(SELECTED, cases, monkeypatch))
    hints = {name: check["hint"] for name, check in entries.items() if check["hint"]}
    first = {group[0]["hint"] for group in causes.grouped(entries.values())} - {""}
    assert {*shown(out)} == first
    assert all(hint in page for hint in first)

    selected = asked(SELECTED, cases, monkeypatch)
    items = [item(check, of) for check in SELECTED for of in cases[check.name]]
    monkeypatch.setattr(grading_process, "runtestprotocol", lambda item, **of: [heard(item)])
    serve = grading_process.Serve(Settings(), SELECTED, selected.pool, io.StringIO())
    answer: Any = serve._graded(tmp_path, Submission({}), items)
    assert {check["name"]: check["hint"] for check in reporting.entries_of(answer["report"]) if check["hint"]} == hints

    monkeypatch.setattr(judging, "run_case", lambda item: item.case)
    of_checks = {check.name: [item(check, of) for of in cases[check.name]] for check in SELECTED}
    nobody: Any = None
    job = judging.GradingJob(Entry("variants/x", VARIANT, Submission({}), PROBLEMS), 1)
    verdicts = judging.GradingLoop(selected.pool, [], nobody, nobody, "")._run(job, of_checks).verdicts
    in_bank = {name: reporting.OR.join(map(str, verdict.hints or ())) for name, verdict in verdicts.items()}
    assert {name: hint for name, hint in in_bank.items() if hint} == {
        name: hint.rpartition("]: ")[2] for name, hint in hints.items()
    }

    out = printed(next_check.Following(), Settings(), selected)
    (name,) = re.findall(r"^(\S+): FAIL", out, re.MULTILINE)
    assert shown(out) == [hint for check, hint in hints.items() if check == name]


@pytest.mark.parametrize("seed", range(10))
def test_explain_says_what_a_report_on_the_check_says(seed, tmp_path, monkeypatch):
    cases = drawn(seed)
    for check in SELECTED[:8]:
        entries, *_ = graded(tmp_path, asked([check], cases, monkeypatch))
        out = printed(explain.explain, Settings(), asked([check], cases, monkeypatch))
        assert shown(out) == [entries[check.name]["hint"]] * bool(entries[check.name]["hint"])


def test_what_is_drawn_is_contradictory():
    """Checks say another thing together than each by itself"""
    gathered = [CheckCases(c, (*cases,), len(cases)) for c, cases in zip(SELECTED, drawn(0).values(), strict=True)]
    alone = [result.hints for one in gathered for result in score.results([one])]
    assert sum(result.hints != hints for result, hints in zip(score.results(gathered), alone, strict=True)) > 5


@pytest.mark.parametrize("name", ["CheckResult", "agreed_hints", "_likely", "_consistent"])
def test_there_is_one_way_from_cases_to_a_verdict(name):
    calls = [
        path
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]
    assert calls == ["verdict/agree.py" if name.startswith("_") else "verdict/score.py"]


@pytest.mark.parametrize("settings", [Settings(), Settings(next=True), Settings(explain="test_eps")])
def test_what_is_run_again_on_every_save_is_the_same(settings):
    once, again = (modes.choose(dataclasses.replace(settings, watch=watch), SELECTED)[0] for watch in (False, True))
    assert (type(once), getattr(once, "__name__", "")) == (type(again), getattr(again, "__name__", ""))
