"""What kept a package from being imported is told, once and first; its files are graded all the same."""

import json
import shutil

import pytest
from rich.console import Console

from assignment.commands import collector
from assignment.judge.pair import RecorderAndPlayer
from assignment.judge.replies import Raised
from assignment.protocol.requests import Call
from assignment.sandbox import worker_client
from assignment.sandbox.stage import Stage
from assignment.submission import Submission
from assignment.tests.forked import python
from assignment.tests.graded import QUICK, REFERENCE, ROOT, RUNG
from assignment.verdict import checks
from tests.operators import called

NAME = "test_weighted_sum.py::test_forward_values"
SYNTAX = "x = 1\ndef weighted_sum(:\n"
SAID = "SyntaxError: invalid syntax\n  at cs336_kernels/__init__.py:2: def weighted_sum(:"


@pytest.fixture
def submission(submission):
    """The reference with an __init__.py that has a syntax error."""
    (submission / "cs336_kernels/__init__.py").write_text(SYNTAX)
    return submission


def grade(submission, *arguments):
    rung = () if "--inline" in arguments else QUICK
    done = python(ROOT / "grade.py", submission, "--only", NAME, *rung, *arguments, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", [["--jobs", "2"], pytest.param(["--inline"], marks=pytest.mark.slow)])
def test_it_is_told_at_the_top_and_the_files_are_graded(submission, tmp_path, how):
    out = grade(submission, "--json", str(tmp_path / "report.json"), *how)
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["import_error"] == SAID
    assert [check["status"] for problem in data["problems"] for check in problem["checks"]] == ["ok"]
    assert out.count("cs336_kernels cannot be imported") == out.count("def weighted_sum(:") == 1
    assert out.index("def weighted_sum(:") < out.index("  ok ")


@pytest.mark.slow
def test_without_files_beside_it(submission, tmp_path):
    for file in (submission / "cs336_kernels").iterdir():
        if file.is_file() and file.name != "__init__.py":
            file.unlink()
    out = grade(submission, "--json", str(tmp_path / "report.json"))
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["import_error"] == SAID
    assert "weighted_sum.py is missing" in data["problems"][0]["checks"][0]["message"]
    assert out.count("def weighted_sum(:") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["--next"]], ids=["all", "next"])
def test_a_syntax_error_is_told_once(tmp_path, how):
    """In a file of one problem, whose checks all fail for it"""
    shutil.copytree(REFERENCE / "cs336_kernels", tmp_path / "cs336_kernels")
    file = tmp_path / "cs336_kernels" / "weighted_sum.py"
    file.write_text(file.read_text().replace("def weighted_sum_forward(", "def weighted_sum_forward(:"))
    out = grade(tmp_path, "--only", "weighted_sum_backward", *how)
    assert out.count("SyntaxError") == out.count("def weighted_sum_forward(:") == 1
    assert "cs336_kernels/weighted_sum.py cannot be imported: see above" in out


@pytest.mark.parametrize("how", [["--next"], pytest.param(["--explain", NAME], marks=pytest.mark.slow)])
def test_what_shows_one_check_tells_it_too(submission, how):
    out = grade(submission, *how)
    assert out.count("cs336_kernels cannot be imported") == out.count("def weighted_sum(:") == 1


@pytest.mark.parametrize(
    ("init", "said"),
    [
        pytest.param("", "", id="nothing is wrong", marks=pytest.mark.slow),
        pytest.param(None, "", id="a package needs none", marks=pytest.mark.slow),
        pytest.param(
            "import nobody_has_this",
            "ModuleNotFoundError: No module named 'nobody_has_this'\n  at cs336_kernels/__init__.py:1 in <module>: "
            "import nobody_has_this",
            id="a missing module",
            marks=pytest.mark.slow,
        ),
        pytest.param("from . import rmsnorm", "at cs336_kernels/rmsnorm.py:1: def (", id="a file that it imports"),
        pytest.param("import os\nos._exit(3)", "exit status 3", id="the end of the process", marks=pytest.mark.slow),
        pytest.param(
            "import ctypes\nctypes.string_at(0)",
            "SIGSEGV (segmentation fault: an address outside of every tensor?)\n  at cs336_kernels/__init__.py:2 in",
            id="a crash",
        ),
        pytest.param(
            "class Odd(Exception):\n    def __str__(self):\n        raise SystemExit\nraise Odd",
            "an exception that raises another one when it is read",
            id="an exception without words",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_it_was(init, said):
    files = {"weighted_sum.py": b"def weighted_sum(x, weight):\n    return x * 2\n", "rmsnorm.py": b"def (\n"}
    files |= {} if init is None else {"__init__.py": init.encode()}
    staged = Stage(Submission({f"cs336_kernels/{name}": content for name, content in files.items()}))
    asked = RecorderAndPlayer(staged, RUNG)
    try:
        reply, _ = asked.ask(Call(**called("weighted_sum"), options={}, order=1), [])
        assert isinstance(reply, Raised)
        assert "missing 2 required positional arguments" in reply.message  # the files are there
        assert said in asked.import_error
        assert bool(said) == bool(asked.import_error)
        asked.recorder.end_child()
        asked.ask(Call(**called("weighted_sum"), options={}, order=1), [])
        assert said in asked.import_error  # a new child of the same submission
        asked.restart()
        assert not asked.import_error
    finally:
        asked.close()
        staged.close()


@pytest.mark.parametrize("said", [7, None, ["a"], "\x1b[2J" * 9_000])
def test_a_forged_message_is_no_message(said):
    assert worker_client.import_error_in({"import_error": said}).strip("�[2J …") == ""


def test_it_is_told_once(capsys):
    told = collector.Judge([checks.Check("test_a.py::test_b", "rmsnorm", "rmsnorm does", 1)], Console(), "")
    for _ in range(2):
        told.hear_import_error("SyntaxError: planted")
    assert capsys.readouterr().out.count("planted") == 1
