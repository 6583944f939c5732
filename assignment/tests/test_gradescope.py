"""Gradescope: what is packed, what is found in an upload, and what results.json says."""

import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from assignment import release
from assignment.classroom import gradescope
from assignment.classroom.autograder import harness, results
from assignment.classroom.autograder.harness import HarnessSettings
from assignment.submission import Submission, UnusableSubmission, uploaded
from assignment.system import here
from assignment.tests.test_report import FORGED, TEXTS, report_of

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "x = 1\n"
GB = 10**9


# what is packed


@pytest.fixture(scope="module")
def tree():
    """The files of the working tree, as a commit would have them."""
    listed = release.git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")[:-1]
    return {
        path: release.File(os.fsencode((ROOT / path).readlink()), release.LINK)
        if (ROOT / path).is_symlink()
        else release.File((ROOT / path).read_bytes())
        for path in listed
        if os.path.lexists(ROOT / path)
    }


def test_it_holds_the_grader_and_nothing_of_the_solution(tree):
    files = gradescope.packed(tree, HarnessSettings("abc", seed=2**63 + 1, minutes=9.0))
    paths = set(files)
    assert {"setup.sh", "run_autograder", "settings.json", "grader/grade.py", "grader/pyproject.toml"} < paths
    assert {"grader/assignment/classroom/__init__.py", "grader/assignment/classroom/autograder/harness.py"} < paths
    assert not any("/bank/" in path or "/reference/" in path for path in paths)
    ours = {path for path in paths if "classroom/" in path}
    assert ours == {"grader/assignment/classroom/__init__.py"} | {
        f"grader/{gradescope.OURS}{name}.py" for name in ("__init__", "harness", "results")
    }
    stub = files["grader/cs336_kernels/rmsnorm.py"].data
    assert b"raise NotImplementedError" in stub
    assert HarnessSettings(**json.loads(files["settings.json"].data)) == HarnessSettings(
        "abc", seed=2**63 + 1, minutes=9.0
    )


def test_its_scripts_can_be_executed_and_the_same_commit_gives_the_same_bytes(tree):
    packed = gradescope.zipped(gradescope.packed(tree, HarnessSettings("abc")))
    assert packed == gradescope.zipped(gradescope.packed(tree, HarnessSettings("abc")))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for script in gradescope.SCRIPTS:
            assert archive.getinfo(script).external_attr >> 16 & 0o111
            assert archive.read(script).startswith(b"#!/usr/bin/env bash\n")


# what was uploaded


def test_an_upload_is_found_in_every_form(tmp_path):
    forms = {
        "package": "cs336_kernels/rmsnorm.py",
        "one folder around it": "my-work/cs336_kernels/rmsnorm.py",
        "the file alone": "rmsnorm.py",
    }
    for name, path in forms.items():
        file = tmp_path / name / path
        file.parent.mkdir(parents=True)
        file.write_text(KERNEL)
        found = uploaded(tmp_path / name)
        assert found.sources["cs336_kernels/rmsnorm.py"] == KERNEL
    assert "import" in found.sources["cs336_kernels/__init__.py"]  # of the stubs


def test_an_upload_that_is_none_is_told_so(tmp_path):
    secret = tmp_path / "secret"
    (secret / "cs336_kernels").mkdir(parents=True)
    (secret / "cs336_kernels" / "rmsnorm.py").write_text("seed = 1\n")
    for name in ("empty", "report", "link", "inner link", "linked file"):
        (tmp_path / name).mkdir()
    (tmp_path / "report" / "essay.pdf").write_bytes(b"%PDF")
    (tmp_path / "link" / "cs336_kernels").symlink_to(secret / "cs336_kernels")
    (tmp_path / "inner link" / "work").symlink_to(secret)
    (tmp_path / "linked file" / "rmsnorm.py").symlink_to(secret / "cs336_kernels" / "rmsnorm.py")
    for name in ("empty", "report", "link", "inner link", "linked file"):
        with pytest.raises(UnusableSubmission):
            uploaded(tmp_path / name)
    (tmp_path / "empty" / "huge.py").write_bytes(b"#" * (2 << 20))
    with pytest.raises(UnusableSubmission, match="1 MiB"):
        uploaded(tmp_path / "empty")


# where it runs


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [(4, 6 * GB, 4), (2, 3 * GB, 2), (0.5, 6 * GB, 1), (1.5, 6 * GB, 2), (4, 1.5 * GB, 1), (0.5, 768 * 2**20, 0)],
)
def test_as_many_judge_as_the_container_has_room_for(cores, memory, expected):
    assert harness.jobs(cores, int(memory)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, 8.0),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 8.0),
        ({}, 8.0),
    ],
)
def test_processors_are_those_of_the_container(monkeypatch, files, expected):
    """Not of the machine, whose eight cores Python sees"""
    monkeypatch.setattr(harness.text, "of", lambda path: files.get(path, ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert harness.processors() == expected


# what is told


def told(report, **more):
    return results.of(report, "abc", "visible") | more


def test_each_check_is_a_test_with_its_points():
    report = report_of("y: wrong")
    data = json.loads(results.as_json(told(report)))
    tests = data["tests"]
    assert [test["score"] for test in tests] == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert sum(test["score"] for test in tests) == data["score"] == report["score"]
    assert [test["status"] for test in tests] == ["passed", "failed", "failed", "failed", "passed", "failed"]
    assert len({test["number"] for test in tests}) == 6
    assert data["extra_data"]["seed"] == str(report["seed"])
    assert data["stdout_visibility"] == "hidden"
    assert not any("visibility" in test for test in tests)  # a hidden one hides the total


@pytest.mark.parametrize("said", [*TEXTS.values(), f"```\n<script>{FORGED}</script>\n# {FORGED}\n![]({FORGED})"])
def test_a_text_is_nothing_but_code(said):
    data = told(report_of(said) | {"notes_to_staff": [said]})
    for output in (data["output"], *(test["output"] for test in data["tests"]), results.unusable(said)["output"]):
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(output)
        parts = [part for token in tokens for part in (token, *(token.children or ()))]
        assert not any(part.type.startswith(("html", "link", "image", "heading")) for part in parts)
        assert "80/80" not in "".join(part.content for part in parts if part.type == "text")
    json.loads(results.as_json(data), parse_constant=pytest.fail)


def test_staff_are_told_where_only_they_look():
    """In the harness's own output: seed, commit, what needs review, a missing sandbox"""
    report = report_of("computed at line 3")
    said = results.for_staff(report | {"sandbox": "landlock"}, "abc", "4 processors")
    for words in (f"seed: {report['seed']}", "grader: abc", "machine: 4 processors", "needs review: ", "line 3"):
        assert words in said
    assert "No sandbox" not in said
    warned = results.for_staff(report | {"sandbox": "rlimits"}, "abc", "4 processors")
    assert "No sandbox works in this container" in warned
    assert "No sandbox" not in json.dumps(told(report | {"sandbox": "rlimits"}))


@pytest.mark.parametrize("said", TEXTS.values())
def test_what_a_submission_says_is_quoted_to_staff(said):
    report = report_of(said) | {"notes_to_staff": [said]}
    for line in results.for_staff(report, "abc", "4 processors").split("\n"):
        assert line.isprintable()
        assert not line.startswith(FORGED)


def test_the_leaderboard_is_for_those_whose_values_are_right():
    def check(name, status, *ratios):
        timings = [{"case": f"{i}", "ratio": ratio} for i, ratio in enumerate(ratios)]
        return {"name": f"test_rmsnorm.py::{name}", "status": status, "timings": timings}

    values = check("test_forward_values", "ok")
    fast = check("test_forward_speed", "FAIL", 0.95, 1.1)
    entry = {"name": "forward speed", "value": 0.95, "order": "desc"}
    assert results.leaderboard({"problems": [{"checks": [values, fast]}], "practice": []}) == [entry]
    wrong = values | {"status": "FAIL"}
    assert results.leaderboard({"problems": [{"checks": [wrong, fast]}], "practice": []}) == []
    assert results.leaderboard({"problems": [{"checks": [values]}], "practice": []}) == []


# a run


@pytest.fixture
def autograder(tmp_path, monkeypatch):
    """A folder like Gradescope's, in which a kernel was uploaded."""
    folder = tmp_path / "autograder"
    for name in ("source", "submission/cs336_kernels", "results"):
        (folder / name).mkdir(parents=True)
    (folder / "source" / "settings.json").write_text(json.dumps({"commit": "abc", "seed": 7}))
    (folder / "submission" / "cs336_kernels" / "rmsnorm.py").write_text(KERNEL)
    monkeypatch.setattr(here, "free_memory", lambda: 6 * GB)
    return folder


def results_of(folder):
    return json.loads((folder / "results" / "results.json").read_text())


def test_no_grade_has_no_score(autograder, monkeypatch, capsys):
    """And is told apart from 0 points: by Gradescope, by staff, by students; whatever was in its place"""

    def failing(*arguments):
        raise harness.HarnessFailed("grade.py ended with exit status 3")

    monkeypatch.setattr(harness, "grade", failing)
    (autograder / "results" / "results.json").write_text('{"score": 80}')
    assert harness.run(autograder) == 1
    assert not {"score", "tests"} & set(results_of(autograder))
    assert "not your code" in results_of(autograder)["output"]
    assert "exit status 3" in capsys.readouterr().err


def test_too_little_memory_is_told_with_the_remedy(autograder, monkeypatch, capsys):
    monkeypatch.setattr(here, "free_memory", lambda: 768 << 20)
    assert harness.run(autograder) == 1
    assert (
        "0.8 GB of memory are free, a grade takes 1.25, and Gradescope's default is too little: choose 4 CPU"
        in capsys.readouterr().err
    )
    assert "score" not in results_of(autograder)


def test_an_unusable_upload_gets_no_points_and_a_sentence(autograder):
    (autograder / "submission" / "cs336_kernels" / "rmsnorm.py").unlink()
    assert harness.run(autograder) == 0
    assert results_of(autograder)["score"] == 0.0
    assert "holds no cs336_kernels/*.py" in results_of(autograder)["output"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("raise SystemExit(3)", "exit status 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "exit status -9"),
        ("", "cannot be read"),
        ("import time\ntime.sleep(60)", "no grade within"),
    ],
)
def test_a_grader_that_fails_is_no_grade(tmp_path, monkeypatch, script, words):
    (tmp_path / "grade.py").write_text(script)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(harness, "ROOT", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    settings = HarnessSettings("abc", minutes=0.05 if "sleep" in script else 1.0)
    with pytest.raises(harness.HarnessFailed, match=words):
        harness.grade(Submission({"cs336_kernels/a.py": b""}), settings, 1, tmp_path / "scratch")


@pytest.mark.slow
def test_a_submission_is_graded(autograder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(harness, "processors", lambda: 2.0)
    assert harness.run(autograder) == 0
    data = results_of(autograder)
    assert data["score"] == 0.0
    assert data["extra_data"]["seed"] == "7"
    assert len(data["tests"]) > 90
    assert data["leaderboard"] == []
