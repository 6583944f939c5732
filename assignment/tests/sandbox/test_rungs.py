"""Which sandbox is taken, what it shows of the machine, and whole grades in each that works here."""

import contextlib
import sys
import textwrap
from pathlib import Path

import pytest

from assignment.sandbox import rungs, stage, worker_client
from assignment.submission import Submission
from assignment.system.interface import Folders
from assignment.system.linux import bubblewrap
from assignment.tests.sandbox.boxes import ROOT, grade, rungs_that_work


@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS))
def test_a_hostile_submission_is_graded_to_its_end(rung, tmp_path, marked):
    """One function that attacks all it can, on the way to a right result of another"""
    work = tmp_path / "work" / "cs336_kernels"
    work.mkdir(parents=True)
    (work / "weighted_sum.py").write_text(
        (ROOT / "assignment/reference/cs336_kernels/weighted_sum.py").read_text()
        + textwrap.dedent(f"""
            import os, signal, subprocess, threading

            SUPERVISOR = os.getppid()

            def weighted_sum_backward(*arguments):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
                for _ in range(3):
                    try:
                        subprocess.Popen(["setsid", "sleep", "{marked}"], close_fds=False)
                        os.fork() or os.setsid() or os.execlp("sleep", "sleep", "{marked}")
                    except OSError:
                        pass
                os.mkdir("closed", 0o300)
                os.kill(SUPERVISOR, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGSTOP)
        """)
    )
    names = ["test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_backward_values"]
    done, report = grade(tmp_path, work.parent, "--sandbox", rung, "--only", *names)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert report["sandbox"] == rung
    assert rung in done.stdout
    assert ("NO SANDBOX" in done.stdout) == (rung == rungs.RLIMITS)
    statuses = {check["name"]: check["status"] for problem in report["problems"] for check in problem["checks"]}
    assert statuses[names[0]] == "ok"
    assert statuses[names[1]] in ("crashed", "FAIL")


@pytest.mark.slow
@pytest.mark.parametrize("rung", rungs_that_work(rungs.RUNGS))
def test_the_reference_loses_nothing(rung, tmp_path):
    """Gradients, asked for several times, and views over gigabytes"""
    checks = ["test_rmsnorm.py::test_gradients", "test_weighted_sum.py::test_forward_strides"]
    done, report = grade(tmp_path, ROOT / "assignment/reference", "--sandbox", rung, "--only", *checks)
    assert done.returncode == 0, done.stderr
    assert {c["status"] for problem in report["problems"] for c in problem["checks"]} <= {"ok", "not graded"}


def test_a_rung_that_does_not_work_here_is_said_to(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done, report = grade(tmp_path, ROOT / "assignment/reference", "--sandbox", "bubblewrap")
    assert done.returncode == 2
    assert done.stderr.startswith("grade.py: --sandbox bubblewrap: bwrap is not installed")
    assert "what works here: " in done.stderr
    assert not report


def test_the_best_rung_is_taken_and_a_worse_one_explained(monkeypatch):
    problems = {"bubblewrap": "no user name spaces", "landlock": "", "rlimits": ""}
    monkeypatch.setattr(rungs, "problem", lambda rung, device: problems[rung])
    assert rungs.choose("auto", "cpu") == "landlock"
    assert rungs.announcement("landlock", "cpu") == "Sandbox: landlock (bubblewrap: no user name spaces)\n"
    problems["landlock"] = "an old kernel"
    assert rungs.choose("auto", "cpu") == "rlimits"
    assert "NO SANDBOX" in rungs.announcement("rlimits", "cpu")
    assert "landlock: an old kernel" in rungs.announcement("rlimits", "cpu")
    problems["bubblewrap"] = problems["landlock"] = ""
    assert [rungs.choose("auto", device) for device in ("cpu", "cuda")] == ["bubblewrap", "landlock"]


def test_of_a_folder_around_the_repository_all_else_is_shown(tmp_path, monkeypatch):
    for name in ("opt/lib", "opt/course/.venv/bin", "opt/course/tests", "opt/share"):
        (tmp_path / name).mkdir(parents=True)
    repository = tmp_path / "opt/course"
    assert set(bubblewrap.without(repository, tmp_path / "opt")) == {tmp_path / "opt/lib", tmp_path / "opt/share"}
    assert list(bubblewrap.without(repository, repository / ".venv")) == [repository / ".venv"]
    assert list(bubblewrap.without(repository, repository)) == []
    monkeypatch.setattr(bubblewrap, "ROOT", repository)
    monkeypatch.setattr(sys, "prefix", str(repository / ".venv"))
    shown = bubblewrap.readable("cpu")
    assert str(repository / ".venv") in shown
    assert not any(Path(path) in (repository, *repository.parents) for path in shown)


@pytest.mark.parametrize(("file", "is_hidden"), [("/tmp/checkout/.venv", False), ("/usr", True)])
def test_a_checkout_in_the_temporary_folder_keeps_its_python(monkeypatch, file, is_hidden):
    """In bubblewrap /tmp is the scratch space, unless what the worker must read lies there"""
    monkeypatch.setattr(bubblewrap, "readable", lambda device: [file])
    words = bubblewrap.command(rungs.BUBBLEWRAP, "cpu", Folders("/a", "/b", "/c"), 3, {})
    assert ("/tmp" in words) == is_hidden


def test_bubblewrap_that_fails_after_its_trial_says_why(monkeypatch):
    """Where name spaces have run out, for example"""
    monkeypatch.setattr(bubblewrap, "keeper", lambda *_: ["/bin/sh", "-c", "echo 'no space left' >&2; exit 1"])
    monkeypatch.setattr(rungs, "problem", lambda rung, device: "")
    held = stage.Stage(Submission({"cs336_kernels/__init__.py": b""}))
    said = pytest.raises(worker_client.WorkerUnavailable, match="no space left; --sandbox landlock")
    with contextlib.closing(held), said:
        worker_client.Worker(held, "record", rungs.BUBBLEWRAP)
