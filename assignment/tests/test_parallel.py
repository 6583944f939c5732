"""Tests of several files are run by several processes, each file by one, as pytest alone would run them."""

import multiprocessing
import os
import re
import signal
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import pytest

from assignment.plugin import parallel
from assignment.tests.forked import python
from assignment.tests.graded import ROOT

FILE = """
import os, signal, subprocess, sys, warnings
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made.txt", "a") as file:
        print(__name__, os.getpid(), file=file)

def test_first(made):
    print("heard in", __name__)

@pytest.mark.filterwarnings("ignore:that is known")
def test_a_warning_is_ignored(made):
    warnings.warn("that is known")

def test_signals_end_what_is_started(made):
    assert subprocess.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 2)"]).returncode == -signal.SIGINT

@pytest.mark.skipif(sys.platform == "linux", reason="for others")
def test_skipped(made):
    pass
"""
WRONG = """
def test_wrong(made):
    print("said before")
    assert __name__.upper() == "other"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    for name in ("test_a.py", "test_b.py", "test_c.py"):
        (tmp_path / name).write_text(FILE)
    return tmp_path


def run(folder, *arguments):
    return python("-m", "pytest", "-p", "assignment.plugin", *arguments, cwd=folder, env={"PYTHONPATH": str(ROOT)})


def test_each_file_is_run_by_one_process(folder):
    """Which sets up its fixtures once, filters warnings, and leaves signals to what tests start"""
    done = run(folder)
    assert done.returncode == 0, done.stdout
    assert "9 passed, 3 skipped" in done.stdout
    made = [line.split() for line in (folder / "made.txt").read_text().splitlines()]
    assert sorted(name for name, _ in made) == ["test_a", "test_b", "test_c"]
    assert len({pid for _, pid in made}) > 1


def test_long_files_are_begun_first():
    """One that is begun last would leave the other cores idle"""
    items = [
        SimpleNamespace(
            path=path, fixturenames=(), get_closest_marker={"long_file": True}.get if path == "c" else {}.get
        )
        for path in "aabcc"
    ]
    assert parallel.files_of(SimpleNamespace(items=items)) == [(3, 4), (0, 1), (2,)]  # type: ignore[arg-type]


def test_a_failure_is_told_as_ever(folder):
    (folder / "test_b.py").write_text(FILE + WRONG)
    done = run(folder)
    assert done.returncode == 1
    assert "1 failed, 9 passed, 3 skipped" in done.stdout
    assert "assert 'TEST_B' == 'other'" in done.stdout
    assert re.search(r"Captured stdout call -+\nsaid before\n", done.stdout)
    assert "heard in" not in done.stdout


def test_the_first_failure_ends_it_where_that_is_asked_for(folder):
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(WRONG.replace("made", ""))
    done = run(folder, "-x")
    assert done.returncode == 1
    assert "stopping after 1 failures" in done.stdout


@pytest.mark.parametrize("arguments", [["--jobs", "1"], ["test_a.py"]], ids=" ".join)
def test_one_process_is_enough_for_one_file(folder, arguments):
    assert run(folder, *arguments).returncode == 0
    assert len({line.split()[1] for line in (folder / "made.txt").read_text().splitlines()}) == 1


def test_one_that_was_stopped_while_idle_is_set_going_to_end(monkeypatch):
    monkeypatch.setattr(parallel, "WAKE_EVERY_S", 0.1)
    executor = ProcessPoolExecutor(1, multiprocessing.get_context("fork"))
    os.kill(executor.submit(os.getpid).result(), signal.SIGSTOP)
    parallel.let_end(executor)
    assert not executor._processes
