"""What a changed grader does to grades, and a verdict once more from its report."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom import compare, cpu, reproduce, results, tables
from assignment.classroom.handed_in import Handed
from assignment.commands import run as grading
from assignment.submission import REFERENCE, Submission, UnusableSubmission, pack

STUB = {"cs336_kernels/__init__.py": b"", "cs336_kernels/rmsnorm.py": b"x = 1\n"}


def check(name="test_a.py::test_b", status="ok", score=3.0, **more):
    usual = {"claim": "?", "max_score": 3.0, "cases": 2, "passed": 2, "message": "", "hint": "", "margin": 0.5}
    return {"name": name, "status": status, "score": score, **usual, "notes": [], **more}


def report(*entries, seed=7, sha256="", **more):
    return {
        "seed": seed,
        "device": "cpu-simulated",
        "sandbox": "landlock",
        "jobs": 1,
        "score": sum(entry["score"] for entry in entries),
        "versions": grading.versions(),
        "submission_sha256": sha256 or Submission(STUB).sha256,
        "problems": [{"name": "a", "score": 0, "checks": list(entries)}],
        "practice": [],
        "classroom": {"grader": "abc", "key": "k"},
        **more,
    }


@pytest.fixture
def folders(tmp_path):
    def write(folder, **reports):
        (tmp_path / folder / "reports").mkdir(parents=True)
        for name, data in reports.items():
            (tmp_path / folder / "reports" / f"{name}.json").write_text(json.dumps(data))
        return tmp_path / folder

    return write


# compare


def told(capsys, *folders):
    status = classroom.main(["compare", *map(str, folders)])
    return status, capsys.readouterr().out


def test_what_a_change_does_is_told_by_student_and_by_check(folders, capsys):
    fails = check(status="FAIL", score=0.0)
    old = folders("old", ada=report(check()), bo=report(check()), cy=report(fails), di=report(check()))
    new = folders("new", ada=report(check()), bo=report(fails), cy=report(check()), ed=report(check()))
    status, out = told(capsys, new, old)
    assert status == compare.CHANGED
    assert "bo: 3 → 0\n    test_a.py::test_b: ok → FAIL, -3" in out
    assert "cy: 0 → 3" in out
    assert "ada" not in out
    assert "only before: di" in out
    assert "only now: ed" in out
    assert "3 in both: 1 the same, 1 gain points, 1 lose points, 0 keep them" in out
    assert "1 × test_a.py::test_b: ok → FAIL, -3" in out


def test_a_verdict_that_changes_no_points_is_a_change(folders, capsys):
    old = folders("old", ada=report(check()))
    new = folders("new", ada=report(check(status="needs review")))
    status, out = told(capsys, new, old)
    assert status == compare.CHANGED
    assert "1 keep them with another verdict" in out


def test_the_same_results(folders, capsys):
    status, out = told(capsys, folders("new", ada=report(check())), folders("old", ada=report(check())))
    assert status == compare.ALIKE
    assert "1 in both: 1 the same" in out


def test_another_seed_and_another_submission_are_not_the_graders_doing(folders, capsys):
    old = folders("old", ada=report(check()))
    new = folders("new", ada=report(check(status="FAIL", score=0.0), seed=8, sha256="f" * 64))
    status, out = told(capsys, new, old)
    assert status == compare.ALIKE
    assert "the seeds differ" in out
    assert "another submission" in out


def test_a_submission_without_a_grade(folders, capsys):
    failed: dict[str, Any] = {"score": None, "failed": "the grader ended\nmore", "classroom": {}}
    status, out = told(capsys, folders("new", ada=failed), folders("old", ada=report(check())))
    assert status == compare.CHANGED
    assert "ada: 3 → 0" in out
    assert "not graded: absent → not graded" in out
    lost: dict[str, Any] = {**failed, "failed": "/another/place: no report within 1800 s"}
    status, out = told(capsys, folders("newer", ada=lost), folders("older", ada=failed))
    assert status == compare.ALIKE  # no verdict has changed


def test_only_a_changed_verdict_is_a_change(folders, capsys):
    """Not somebody who has handed in since, nor a report that an earlier run has left"""
    old = folders("old", ada=report(check()), gone=report(check()))
    new = folders("new", ada=report(check()), late=report(check()))
    (new / results.SETTINGS).write_text(results.ClassSettings(7).text())
    tables.write(new, tables.Form((Handed("ada", Path("ada")),)))
    status, out = told(capsys, new, old)
    assert status == compare.ALIKE
    assert "only before: gone" in out
    assert "late" not in out


@pytest.mark.parametrize("command", [["compare", "nowhere", "nowhere"], ["reproduce", "nowhere.json"]])
def test_what_is_not_there_is_said(tmp_path, capsys, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert classroom.main(command) == classroom.UNUSABLE
    assert "nowhere" in capsys.readouterr().err


# reproduce


def test_a_command_says_all_that_decides(tmp_path):
    entries = [check("test_a.py::test_b"), check("flash", max_score=5.0), check("test_c.py::test_d")]
    command = reproduce._command(report(*entries), Submission(STUB), tmp_path, tmp_path)
    assert command[3:] == [
        "--seed", "7", "--device", "cpu", "--sandbox", "landlock", "--jobs", "1",
        "--only", "test_a.py::test_b", "test_c.py::test_d",
    ]  # fmt: skip


@pytest.mark.parametrize("key", ["status", "score", "passed", "message", "hint", "margin", "notes"])
def test_any_difference_is_told(key):
    now = report(check(**{key: 99}))
    assert reproduce.differences(report(check()), report(check())) == []
    (said,) = reproduce.differences(report(check()), now)
    assert f": {key} was " in said
    assert reproduce.differences(report(check()), report()) == ["test_a.py::test_b: not graded"]


def test_other_versions_are_told_with_the_command_for_them():
    then = report(check())
    assert reproduce.differing_versions(then) == []
    then["versions"] |= {"triton": "3.0.0", "python": "3.11.1"}
    said = "\n".join(reproduce.differing_versions(then))
    assert "triton was 3.0.0" in said
    assert "--python 3.11.1 --with triton==3.0.0" in said


def test_the_submission_must_be_the_one_that_was_graded(folders):
    path = folders("results", ada=report(check())) / "reports" / "ada.json"
    data = reproduce._read(path)
    with pytest.raises(UnusableSubmission, match="--submission"):
        reproduce._submission_of(data, path, None)
    kept = path.parents[1] / "sources" / "ada.zip"
    kept.parent.mkdir()
    kept.write_bytes(pack(Submission({**STUB, "cs336_kernels/rmsnorm.py": b"x = 2\n"})))
    with pytest.raises(UnusableSubmission, match="is not in"):
        reproduce._submission_of(data, path, None)
    kept.write_bytes(pack(Submission(STUB)))
    assert reproduce._submission_of(data, path, None) == Submission(STUB)
    assert reproduce._submission_of(data, path, kept) == Submission(STUB)


def test_another_graders_commit_is_checked_out_for_as_long_as_it_takes(monkeypatch):
    """And of one that is not known it is said"""
    asked = []
    monkeypatch.setattr(reproduce, "_git", lambda *command: asked.append(command[:2]))
    then = report(check())
    notes: list[str] = []
    with reproduce._grader_of(then, notes) as root:
        assert (root, asked, notes) == (reproduce.ROOT, [], [])
    then["versions"]["grader"] = "another"
    with reproduce._grader_of(then, notes) as root:
        assert root.name == "abc"
    assert asked == [("worktree", "prune"), ("worktree", "add"), ("worktree", "remove")]
    then["classroom"]["grader"] = "abc+"
    with reproduce._grader_of(then, notes) as root:
        assert root == reproduce.ROOT
    assert "of no commit that is known" in notes[-1]


@pytest.mark.slow
def test_a_report_is_reproduced(tmp_path, capsys):
    """From what `grade.py --json` wrote, and a forged one is found out"""
    path = tmp_path / "report.json"
    command = [sys.executable, "grade.py", str(REFERENCE), "--only", "test_weighted_sum.py::test_forward_values"]
    command += ["--jobs", "1", "--device", "cpu", "--json", str(path)]
    subprocess.run(command, cwd=reproduce.ROOT, check=True)
    again = ["reproduce", str(path), "--submission", str(REFERENCE), "--check", "weighted_sum"]
    assert classroom.main(again[:-2]) == reproduce.SAME
    assert "the same in 1 checks" in capsys.readouterr().out
    data = json.loads(path.read_text())
    data["problems"][0]["checks"][0]["margin"] += 0.1
    path.write_text(json.dumps(data))
    assert classroom.main([*again[:-1], "test_weighted_sum.py::test_forward_values"]) == reproduce.DIFFERENT
    assert "margin was" in capsys.readouterr().out
    assert "4 of 4 cases right" in (tmp_path / "report.evidence.txt").read_text()


# processor time


SPINS = """
import os, subprocess, sys, time
until = lambda s: [0 for _ in iter(lambda: time.process_time() < s, False)]
if os.fork() == 0:
    until(0.6)
    os._exit(0)  # which nobody waits for
time.sleep(float(sys.argv[1]))
"""


def test_the_time_of_a_child_that_nobody_waits_for_counts():
    process = subprocess.Popen([sys.executable, "-c", SPINS, "30"])
    try:
        until = time.monotonic() + 25
        while cpu.tree_s(process.pid) < 0.5:  # the system counts in whole hundredths, rounded down
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()


def test_a_tree_of_nobody_took_nothing():
    assert cpu.tree_s(2**22 + 1) == 0.0
    assert Path("/proc/1").exists()
