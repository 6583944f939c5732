"""What `grade.py` can be asked for beside a grade, and how it says that it cannot."""

import os
import signal
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from assignment.confined import supervisor
from assignment.course import course
from assignment.sandbox import rungs
from assignment.tests.graded import ROOT, append, grade, heed_interrupts


@pytest.mark.slow
def test_in_this_process(submission):
    got = grade(submission, "--inline", "--only", "weighted_sum")
    assert got.report
    assert got.report["score"] == got.report["gradable"] == 10


@pytest.mark.slow
def test_wrappers_that_insist_on_a_gpu_run_in_this_process(submission):
    """As they do where they are recorded: in the forward pass, and in PyTorch's call of the backward pass"""
    code = "_right = weighted_sum_forward, weighted_sum_backward\n"
    for number, (name, arguments) in enumerate((("forward", "x, weight"), ("backward", "grad_y, x, weight"))):
        code += f"\ndef weighted_sum_{name}({arguments}):\n"
        code += '    assert x.is_cuda and torch.empty(1, device="cuda").is_cuda\n'
        code += f"    return _right[{number}]({arguments})\n"
    append(submission, "weighted_sum.py", code)
    got = grade(submission, "--inline", "--only", "weighted_sum")
    assert got.report
    assert got.report["score"] == 10


@pytest.mark.slow
def test_junit_and_the_lowest_score(submission):
    append(submission, "rmsnorm.py", "def rmsnorm(*a, **k):\n    return None")
    got = grade(submission, "--only", "test_value", "--fail-under", "1", "--junit", str(submission / "junit.xml"))
    assert got.status == 1
    cases = ElementTree.parse(submission / "junit.xml").getroot().findall(".//testcase")
    assert [case.find("failure") is not None for case in cases] == [False, True]


@pytest.mark.slow
def test_packing(submission, tmp_path):
    command = [sys.executable, str(ROOT / "grade.py"), "--pack"]
    subprocess.run(command, cwd=submission, check=True, capture_output=True)
    got = grade(submission / "submission.zip", "--only", "test_value", cwd=tmp_path)
    assert got.report
    assert got.report["score"] == 0.75


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["nowhere"], "nowhere: no such folder or zip", id="no such folder"),
        pytest.param(["."], "holds no cs336_kernels", id="nothing to grade"),
        pytest.param(["broken.zip"], "this zip cannot be read", id="a broken zip"),
        pytest.param(["--only", "rmsnrom"], "rmsnrom: no such problem or check; did you mean rmsnorm", id="a slip"),
        pytest.param(["--only", "qwertz"], "qwertz: no such problem or check; see --list", id="a name of nothing"),
        pytest.param(["--seed", "-1"], "expected a natural number", id="a negative seed"),
        pytest.param(["--device", "tpu"], "invalid choice", id="an unknown device"),
        pytest.param(["--json", "no/such/folder.json"], "cannot be written", id="nowhere to write"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(tmp_path, arguments, words):
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    command = [sys.executable, str(ROOT / "grade.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_packages_that_submissions_would_not_find_are_named(submission):
    """Their processes have no PYTHONPATH; without `site` all packages are there alone"""
    env = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}
    command = [sys.executable, "-S", str(ROOT / "grade.py"), str(submission), "--only", "weighted_sum"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 2
    assert "greenlet" in done.stderr
    assert "only in a folder of PYTHONPATH" in done.stderr
    assert "Traceback" not in done.stderr
    with_site = [sys.executable, *command[2:4], "--only", "test_value"]  # which finds them in the same folder
    assert subprocess.run(with_site, capture_output=True, env=env).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "test_weighted_sum.py::test_forward_speed",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("speed", "test_flash_forward.py::test_triton_speed")),
    ],
)
def test_speed_alone_is_not_graded_here(submission, name):
    got = grade(submission, "--only", name)
    assert got.status == 0, got.err
    assert got.report
    assert (got.report["score"], got.report["gradable"], got.report["max_score"]) == (0, 0, 20)


@pytest.mark.parametrize(
    ("rung", "after_s"),
    [
        ("landlock", 1.5),
        ("bubblewrap", 6.0),
        *(pytest.param(rung, 6.0, marks=pytest.mark.slow) for rung in ("landlock", "rlimits")),
        *(pytest.param("landlock", after_s, marks=pytest.mark.slow) for after_s in (0.0, 1.0, 2.0, 2.5)),
    ],
)
def test_an_interrupted_run_ends_at_once(submission, tmp_path, rung, after_s):
    """While PyTorch loads, and during a hanging call: no score, no traceback, no process left, no folder"""
    if reason := rungs.problem(rung, "cpu"):
        pytest.skip(reason)
    append(submission, "weighted_sum.py", "def weighted_sum_forward(*args):\n    while True:\n        pass")
    command = [sys.executable, str(ROOT / "grade.py"), str(submission), "--only", "weighted_sum", "--sandbox", rung]
    env = mine(tmp_path) | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, preexec_fn=heed_interrupts
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(f"{course().heading}: grading ")
        time.sleep(after_s)
        started = {pid: began(pid) for pid in supervisor.descendants(process.pid)}
        process.send_signal(signal.SIGTERM if rung == rungs.LANDLOCK else signal.SIGINT)
        _, error = process.communicate(timeout=20)
    finally:
        process.kill()
    assert error == "grade.py: interrupted, no score; give the same command again\n"
    assert process.returncode == (143 if rung == rungs.LANDLOCK else 130)
    assert not list(tmp_path.glob("grade-*"))
    assert started
    assert not [pid for pid, then in started.items() if began(pid) == then != ""]


def began(pid: int) -> str:
    """Return when a process began, which tells it from a later one of the same number; "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""


def mine(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary folders are told apart from everybody else's."""
    return os.environ | {"TMPDIR": str(tmp_path)}


def test_the_list_needs_no_submission(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "grade.py"), "--list"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    assert "flash_backward_triton: FlashAttention-2 backward, Triton, 15 points" in done.stdout
    assert "speed" in done.stdout
