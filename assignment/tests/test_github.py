"""What GitHub runs for a student's push: the workflow's own steps, in a shell, and the forms of its classrooms."""

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from assignment import release
from assignment.classroom import __main__ as classroom
from assignment.commands import github
from assignment.tests.test_report import TEXTS, report_of

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GRADER = f"acme/kernels-2026@{COMMIT}"
MAX_VARIABLE = 128 << 10  # bytes of one variable of an environment on Linux


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load(release.pinned((ROOT / release.ITS_SOURCE).read_bytes(), GRADER))


@pytest.fixture
def job(workflow):
    return workflow["jobs"]["run-autograding-tests"]


def test_what_grades_is_the_courses_copy_at_a_commit(workflow, job):
    own, grader = (step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout"))
    assert "repository" not in own
    assert (grader["repository"], grader["ref"]) == ("acme/kernels-2026", COMMIT)
    assert job["defaults"]["run"]["working-directory"] == grader["path"] != own["path"]
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("working-directory" in step for step in job["steps"])
    assert not any("${{" in step.get("run", "") for step in job["steps"])  # no text of an event is part of a script
    assert "secrets" not in json.dumps(job)


def test_github_classroom_knows_it(workflow, job):
    """By the names of the workflow and of its only job; the reporter's variable is named after the step"""
    assert workflow["name"] == "Autograding Tests"
    assert list(workflow["jobs"]) == ["run-autograding-tests"]
    reporter = job["steps"][-1]
    assert reporter["with"]["runners"] == "grade"
    assert reporter["env"] == {"GRADE_RESULTS": "${{ steps.grade.outputs.result }}"}
    assert [step["name"] for step in job["steps"] if step.get("id") == "grade"] == ["Grade"]


def graded_by(job, workspace: Path) -> subprocess.CompletedProcess[str]:
    """Run the step that grades, as GitHub does, with what the others leave behind."""
    (workspace / "grader").mkdir(parents=True)
    for path in ROOT.iterdir():
        if not path.name.startswith("."):
            (workspace / "grader" / path.name).symlink_to(path)
    (workspace / "grader" / ".venv").symlink_to(sys.prefix)
    (script,) = (step["run"] for step in job["steps"] if step.get("id") == "grade")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(workspace),
        "REPORT": str(workspace / "report"),
        "GITHUB_OUTPUT": str(workspace / "output"),
        "GITHUB_STEP_SUMMARY": str(workspace / "summary"),
        "GITHUB_REPOSITORY": "acme/ada",
        "GITHUB_SHA": "ab" * 20,
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    cwd = workspace / job["defaults"]["run"]["working-directory"]
    return subprocess.run(shell, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_steps_grade_a_submission(job, tmp_path):
    """And what it prints, says or has for a grader of its own reaches no log of GitHub's and no verdict"""
    package = tmp_path / "submission" / "cs336_kernels"
    package.mkdir(parents=True)
    said = "::error::PWNED\\n##[error]PWNED\\n::add-mask::8"
    (package / "__init__.py").write_text(f"print('{said}')\nraise RuntimeError('{said}')\n")
    (package / "rmsnorm.py").write_text("x = 1\n")
    (package.parent / "grade.py").write_text("print('Score: 80/80')\n")
    done = graded_by(job, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        "report.json", "report.xml", "report.md", "report.txt", "result.json"
    }  # fmt: skip
    assert (tmp_path / "summary").read_text().startswith("# Score: 0/80 gradable here, 20 need a GPU\n")
    assert re.search(r"^uv run grade.py --seed \d+ --only test_rmsnorm", (tmp_path / "summary").read_text(), re.M)
    name, _, value = (tmp_path / "output").read_text().strip().partition("=")
    told = json.loads(base64.b64decode(value))
    assert (name, told["status"], told["max_score"]) == ("result", "fail", 80.0)
    assert sum(test["score"] for test in told["tests"]) == 0
    kept = json.loads((tmp_path / "report" / "result.json").read_text())
    assert (kept["score"], kept["max-score"]) == (0, 8000)
    assert kept["commit"] == f"https://github.com/acme/ada/commit/{'ab' * 20}"


def test_the_steps_say_that_there_is_no_submission(job, tmp_path):
    (tmp_path / "submission").mkdir()
    done = graded_by(job, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    page = (tmp_path / "summary").read_text()
    assert page.startswith("# There is no grade: what was handed in cannot be used\n")
    assert "holds no cs336_kernels/*.py" in page
    assert (tmp_path / "output").read_text() == ""


def some_report(**points):
    problems = [
        {"name": name, "score": earned, "max_score": 20.0, "gradable": of, "checks": [{"status": "ok"}]}
        for name, (earned, of) in points.items()
    ]
    whole = sum(problem["gradable"] for problem in problems)
    return {"device": "cpu-simulated", "problems": problems, "practice": [], "grader_failures": [], "gradable": whole}


def test_points_are_exact_in_whole_numbers():
    data = some_report(rmsnorm=(13.75, 20.0), flash_forward_triton=(0.1 + 0.2, 20.0), speed=(0.0, 0.0))
    result: Any = github.for_classroom50(data, {"CLASSROOM": "c", "ASSIGNMENT": "a", "SUBMISSION_TAG": "submit/1"})
    assert (result["score"], result["max-score"]) == (1405, 4000)
    assert [(test["test-name"], test["score"]) for test in result["tests"]] == [
        ("rmsnorm", 1375),
        ("flash_forward_triton", 30),
    ]
    assert (result["schema"], result["submission"]) == ("classroom50/result/v1", "submit/1")
    assert all(isinstance(value, str) for value in list(result.values())[:8])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (some_report(rmsnorm=(20.0, 20.0), speed=(0.0, 0.0)), "pass"),
        (some_report(rmsnorm=(19.0, 20.0)), "fail"),
        (some_report(rmsnorm=(20.0, 20.0)) | {"grader_failures": ["?"]}, "error"),
    ],
)
def test_the_status_for_the_reporter(data, status):
    assert github.for_reporter(data)["status"] == status


@pytest.mark.parametrize("said", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_passed_on_is_ours_and_short(said):
    data = report_of(said) | {"import_error": said}
    calm = report_of("calm")
    assert github.for_reporter(data) == github.for_reporter(calm)
    assert github.for_classroom50(data, {})["tests"] == github.for_classroom50(calm, {})["tests"]
    assert len(base64.b64encode(json.dumps(github.for_reporter(data)).encode())) < MAX_VARIABLE // 8


@pytest.mark.parametrize("grader", ["acme/kernels", f"acme/kernels@{COMMIT[:12]}", f"acme@{COMMIT}", f"a/b/c@{COMMIT}"])
def test_a_grader_is_a_repository_and_a_commit(grader, tmp_path, capsys):
    assert classroom.main(["classroom50", "--grader", grader, "--to", str(tmp_path / "a.py")]) == classroom.UNUSABLE
    assert "expected OWNER/NAME@COMMIT" in capsys.readouterr().err


def test_classroom_50_runs_the_courses_copy(tmp_path):
    assert classroom.main(["classroom50", "--grader", GRADER, "--to", str(tmp_path / "autograder.py")]) == 0
    text = (tmp_path / "autograder.py").read_text()
    compile(text, "autograder.py", "exec")
    assert f'"https://github.com/acme/kernels-2026", "{COMMIT}"' in text
    assert "GRADER_" not in text
