"""Practice is graded where somebody asks for it, and is in no sum."""

from types import SimpleNamespace

import pytest

from assignment.commands import progress, run
from assignment.commands.settings import Settings
from assignment.release import ROOT
from assignment.submission import REFERENCE, Submission, read
from assignment.verdict import checks, practice, reporting, score

FILE = "cs336_kernels/practice/vector_add.py"
STUB = (ROOT / FILE).read_bytes()
SESSION = SimpleNamespace(
    command="", debug="", only=(), seconds=0.0, device="cpu-simulated", seed=1, versions={}, sandbox="", jobs=1,
    submission_sha256="", import_error="",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        (STUB, False),
        (STUB.replace(b"raise NotImplementedError", b"return x + y  # NotImplementedError", 1), True),
        (b"def vector_add(x, y): return x", True),
        (b"def vector_add(", True),
        (b"(" * 200_000, True),
        (b"\0", True),
    ],
    ids=["the stub", "a comment", "written", "no Python", "deep", "a zero byte"],
)
def test_who_has_begun_is_told_how_it_is_graded(text, begun):
    """Whatever stands in the file: it is not parsed here"""
    submission = Submission({**read(ROOT).files, FILE: text})
    chosen = practice.checks_to_grade(checks.declared(), submission, [], wanted=True)
    practised = {check.problem for check in chosen if checks.is_practice(check.problem)}
    assert practised == ({"vector_add"} if begun else set())
    assert practice.told(submission, wanted=True) == []
    told = practice.told(submission, wanted=False)
    assert told == ["Practice is graded by its name: uv run grade.py --only vector_add"] * begun


def test_a_grade_that_did_not_ask_spends_nothing_on_it():
    """Nor does one that names something else; who names it need not have begun"""
    declared, submission = checks.declared(), read(REFERENCE)
    assert practice.checks_to_grade(declared, submission, [], wanted=False) == checks.without_practice(declared)
    assert practice.begun(submission) == [name for name in checks.problems() if checks.is_practice(name)]
    for name in ("rmsnorm", "vector_add"):
        named = checks.select(declared, [name])
        assert practice.checks_to_grade(named, read(ROOT), [name], wanted=False) == named


@pytest.mark.parametrize(("practised", "first"), [(False, "Welcome!"), (True, "Practice is graded by its name")])
def test_it_is_told_beside_the_points(practised, first, monkeypatch):
    """In place of the greeting: who has written a first kernel has begun"""
    monkeypatch.setattr(progress, "lines", lambda path, data: [])
    submission = read(REFERENCE if practised else ROOT)
    own = checks.select(checks.declared(), ["rmsnorm"])
    todo = [score.CheckResult(check, (score.Case("", score.TO_DO),), 1) for check in own]
    lines, _ = run.remarks(Settings(), reporting.report(SESSION, todo, []), submission)  # type: ignore[arg-type]
    assert lines[0].startswith(first)


def test_it_is_in_no_sum():
    own = [check for check in checks.declared() if check.problem in ("vector_add", "weighted_sum")]
    results = [score.CheckResult(check, (score.Case("", score.OK),), 1) for check in own]
    report = reporting.report(SESSION, results, [])  # type: ignore[arg-type]
    assert [problem["score"] for problem in report["practice"]] == [10.0]
    assert (report["score"], report["max_score"]) == (10.0, 100.0)
