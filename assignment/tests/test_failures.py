"""What fails in the grader itself: it says so, ends with exit status 3, and what it knows is in the report."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from assignment import failure
from assignment.commands import cli, files
from assignment.tests.forked import python
from assignment.tests.graded import QUICK, ROOT, Grade
from assignment.verdict import reporting

VALUES, RAGGED = "test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_forward_ragged"
FAIL = "def fail(*args, **kwargs):\n    raise IndexError('planted')\n"
WRONG = "\nright = weighted_sum_forward\ndef weighted_sum_forward(x, weight):\n    return right(x * 2, weight)\n"


def grade(submission: Path, broken: str, *arguments: str) -> Grade:
    """grade.py with a fault planted in it first; it may leave nothing in the temporary folder."""
    temporary, file = submission.parent / "temporary", submission.parent / "report.json"
    temporary.mkdir(exist_ok=True)
    program = f"import sys\n{FAIL}{broken}\nfrom assignment.commands import cli\nsys.exit(cli.main(sys.argv[1:]))"
    command = "-c", program, str(submission), "--only", VALUES, RAGGED, *QUICK, *arguments
    env = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    done = python(*command, timeout=120, env=env, cwd=submission.parent)
    assert not [*temporary.glob("grade-*")]
    return Grade(done.returncode, done.stdout, done.stderr, json.loads(file.read_text()) if file.exists() else None)


FILES = ("--json", "report.json", "--junit", "report.xml")


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("from assignment.verdict import search\nsearch.Search.causes = fail", id="a misconception"),
        pytest.param(
            "from assignment.plugin import outcome\n"
            "outcome.packed = outcome.map_of = outcome.with_origin_of_nan = fail",
            id="hint, map and the origin of a NaN",
        ),
    ],
)
def test_diagnosis_never_costs_a_grade(submission, broken):
    file = submission / "cs336_kernels/weighted_sum.py"
    file.write_text(file.read_text() + WRONG)
    got = grade(submission, broken, *FILES)
    assert (got.status, set(got.statuses().values())) == (0, {"FAIL"}), got.err
    assert got.report
    assert "elements wrong" in got.report["problems"][0]["checks"][0]["message"]
    assert got.report["notes_to_staff"]
    assert all("IndexError: planted" in note for note in got.report["notes_to_staff"])
    assert "note to staff: " in got.out


LYING = """
from assignment.judge import pair
play = pair.RecorderAndPlayer._play
def played_on_gpu(self, *asked):
    reply, self.simulated = play(self, *asked)
    return reply, [2 * result for result in self.simulated]
pair.RecorderAndPlayer._play = played_on_gpu
"""


@pytest.mark.parametrize("is_wrong", [False, True])
def test_staff_hear_what_is_wrong_on_a_gpu_alone(submission, is_wrong):
    """Not of what the simulator finds wrong too"""
    if is_wrong:
        file = submission / "cs336_kernels/weighted_sum.py"
        file.write_text(file.read_text() + WRONG.replace("x * 2", "x * 3"))
    got = grade(submission, LYING, *FILES)
    assert set(got.statuses().values()) == {"FAIL"}, got.err
    assert got.report
    assert bool(got.report["notes_to_staff"]) != is_wrong
    assert all(": on the GPU " in note for note in got.report["notes_to_staff"])


@pytest.mark.parametrize(
    ("jobs", "name", "other"),
    [
        pytest.param("1", RAGGED, VALUES, id="pytest ends there, and keeps what came before", marks=pytest.mark.slow),
        pytest.param("2", VALUES, RAGGED, id="a judging process goes on"),
    ],
)
def test_a_failure_at_one_check_leaves_the_other(submission, jobs, name, other):
    broken = (
        "from assignment import plugin\nfrom assignment.plugin import outcome\nright = outcome.case_of\n"
        f"def case_of(item, *of):\n    return fail() if plugin.check_name(item) == {name!r} else right(item, *of)\n"
        "outcome.case_of = case_of\n"
    )
    got = grade(submission, broken, "--jobs", jobs, *FILES)
    assert (got.status, got.statuses()) == (3, {name: "grader error", other: "ok"}), got.err
    assert got.report
    assert "IndexError: planted" in got.report["grader_failures"][0]
    assert f"grade.py: {failure.SAID}" in got.err
    assert "IndexError: planted" in got.err
    assert "Score: " in got.out
    assert ElementTree.parse(submission.parent / "report.xml").findall(".//failure")


@pytest.mark.parametrize(
    ("broken", "statuses"),
    [
        pytest.param("from assignment.judge import pair\npair.Worker = fail", {"grader error"}, id="no worker"),
        pytest.param(
            "from assignment.commands import run\nrun.introduce = fail",
            {"grader error"},
            id="no beginning",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "from assignment.commands import run\nrun.run_pytest = fail",
            {"grader error"},
            id="no pytest",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "from assignment.commands import report\nfrom assignment.verdict import score\n"
            "score.agreed_hints = report.print_summary = fail",
            {"ok"},
            id="neither hints nor a summary",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_report_is_written_as_far_as_it_goes(submission, broken, statuses):
    got = grade(submission, broken, *FILES)
    assert got.status == 3
    assert set(got.statuses().values()) == statuses
    assert got.err.startswith(f"grade.py: {failure.SAID}\n")
    assert "IndexError: planted" in got.err
    assert ElementTree.parse(submission.parent / "report.xml").getroot().tag == "testsuites"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--next"], ["--explain", VALUES]])
def test_what_only_shows_says_that_the_grader_failed(submission, arguments):
    got = grade(submission, "from assignment.plugin import outcome\noutcome.case_of = fail", *arguments)
    assert got.status == 3
    assert failure.SAID in got.err


def test_a_grader_that_cannot_start_is_not_graded(monkeypatch, capsys):
    def broken(options):
        raise SyntaxError("planted")

    monkeypatch.setattr(cli, "answer", broken)
    assert cli.main(["--fail-under", "1"]) == 3
    assert "SyntaxError: planted" in capsys.readouterr().err


def test_a_grader_of_which_a_file_is_missing(tmp_path):
    shutil.copy(ROOT / "grade.py", tmp_path)
    done = subprocess.run([sys.executable, "grade.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("grade.py: the grader is not whole: ModuleNotFoundError: ")


@pytest.mark.slow
def test_who_stops_reading_loses_the_screen_alone(submission):
    """head is through after the first line; a file is written, and exit status 1 would mean below --fail-under"""
    command = f"{sys.executable} {ROOT}/grade.py {submission} --only {VALUES} --json report.json | head -n 1"
    command += '; exit "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", command], cwd=submission.parent, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((submission.parent / "report.json").read_text())["score"] > 0


def test_of_a_long_traceback_the_end_is_told(capsys):
    assert failure.tell(["\n".join(["Traceback", *["  a frame"] * 5_000, "IndexError: planted"])]) == failure.BROKEN
    error = capsys.readouterr().err
    assert error.startswith(f"grade.py: {failure.SAID}\n")
    assert error.endswith("IndexError: planted\n")


def test_many_failures_are_not_all_told(capsys):
    failure.tell(["one", "two", "three", "four", "five"])
    assert capsys.readouterr().err == f"grade.py: {failure.SAID}\none\ntwo\nthree\n… and 2 more failures\n"


def test_a_file_whose_making_fails_does_not_cost_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "as_json", lambda data: 1 / 0)

    paths = {"json": tmp_path / "report.json", "junit": tmp_path / "report.xml", "markdown": None, "html": None}
    options = type("Options", (), paths)()
    session = reporting.Circumstances("", 1, "cpu-simulated", "rlimits", "")
    assert len(files.write(options, reporting.report(session, [], []))) == 1
    assert (tmp_path / "report.xml").exists()
