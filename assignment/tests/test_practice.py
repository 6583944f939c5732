"""Practice is graded once it has been begun, and is in no sum."""

from types import SimpleNamespace

import pytest

from assignment.judge import checks, practice, score
from assignment.release import ROOT
from assignment.submission import Submission, read

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
def test_it_is_graded_once_it_has_been_begun(text, begun):
    """Whatever stands in the file: it is not parsed here"""
    submission = Submission({**read(ROOT).files, FILE: text})
    chosen = practice.chosen(checks.declared(), submission, wanted=None)
    assert any(check.problem == "vector_add" for check in chosen) == begun
    assert practice.chosen(checks.declared(), submission, wanted=True) == checks.declared()
    assert practice.chosen(checks.declared(), submission, wanted=False) == checks.without_practice(checks.declared())


def test_it_is_in_no_sum():
    own = [check for check in checks.declared() if check.problem in ("vector_add", "weighted_sum")]
    results = [score.CheckResult(check, (score.Case("", score.OK),), 1) for check in own]
    report = score.report(SESSION, results)  # type: ignore[arg-type]
    assert [problem["score"] for problem in report["practice"]] == [10.0]
    assert (report["score"], report["max_score"]) == (10.0, 100.0)
