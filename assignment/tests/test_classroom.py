"""A class's submissions: found in every form, graded once each, none lost."""

import csv
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom import batch, grade, grades, lateness, results, scratch
from assignment.classroom.handed_in import Handed, Person
from assignment.course import LateRule
from assignment.submission import Submission, UnusableSubmission

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "def weighted_sum_forward(x, weight):\n    raise NotImplementedError\n"
DUE = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)


def package(folder: Path, text: str = KERNEL) -> None:
    (folder / "cs336_kernels").mkdir(parents=True)
    (folder / "cs336_kernels" / "__init__.py").write_text("")
    (folder / "cs336_kernels" / "weighted_sum.py").write_text(text)


# grading

SETTINGS = results.ClassSettings(0)


class Scripted(batch.Grader):
    """Answers with a student's name; some are lost, at first or always, and one takes longer."""

    lost: ClassVar[dict[str, int]] = {}
    log: ClassVar[list[str]] = []
    running, most = 0, 0
    lock = threading.Lock()

    def grade(self, job, limit_s):
        with Scripted.lock:
            Scripted.running += 1
            Scripted.most = max(Scripted.most, Scripted.running)
        time.sleep(0.02)
        with Scripted.lock:
            Scripted.running -= 1
        name = job.handed.name
        self.log.append(name)
        if Scripted.lost.get(name, 0) > 0:
            Scripted.lost[name] -= 1
            raise batch.Lost("the grader ended")
        return {"report": {"score": 1.0}, "log": name}

    def close(self):
        pass


def jobs(*names):
    return [batch.Job(Handed(name, Path(name)), Submission({}), name) for name in names]


def test_every_job_has_one_answer_whatever_becomes_of_the_others():
    Scripted.lost, Scripted.log[:] = {"once": 1, "never": 9}, []
    names = ["a", "once", "b", "never", "c", "d"]
    answers = {job.key: answer for job, answer in batch.grade_all(jobs(*names), SETTINGS, 3, new=Scripted)}
    assert sorted(answers) == sorted(names)
    assert [name for name, answer in answers.items() if isinstance(answer, Exception)] == ["never"]
    assert Scripted.log.count("once") == Scripted.log.count("never") == 2
    assert set(Scripted.log[-2:]) == {"once", "never"}  # alone, when the others are through
    assert Scripted.most > 1


def test_a_grader_that_ends_or_hangs_is_lost(monkeypatch, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text("import sys, time\nsys.stdin.readline()\nprint('{}', flush=True)\nline = sys.stdin.readline()\n"
                      "print('last words', file=sys.stderr)\ntime.sleep(60 if 'slow' in line else 0)\n")  # fmt: skip
    start = subprocess.Popen

    def started(command, **more):
        is_grader = "assignment.classroom.grading_process" in command  # not what removes folders
        return start([sys.executable, script] if is_grader else command, **more)

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(batch, "GRACE_S", 1.0)
    grader = batch.Grader(SETTINGS)
    with pytest.raises(batch.Lost, match=r"(?s)the grader ended, with exit status 0.*last words"):
        grader.grade(jobs("quick")[0], 20)
    with pytest.raises(batch.Lost, match="no report within 1 s"):
        grader.grade(jobs("slow")[0], 1)


def test_a_grader_that_was_killed_leaves_no_folder(monkeypatch, tmp_path):
    script = tmp_path / "worker.py"
    script.write_text("import os, sys, tempfile\nsys.stdin.readline()\nopen(tempfile.mkdtemp() + '/x', 'w')\n"
                      "print('{}', flush=True)\nsys.stdin.readline()\nos.kill(os.getpid(), 9)\n")  # fmt: skip
    start, folders = subprocess.Popen, list[Path]()

    def started(command, **more):
        if "assignment.classroom.grading_process" not in command:  # what removes folders
            return start(command, **more)
        folders.append(Path(more["env"]["TMPDIR"]))
        return start([sys.executable, script], **more)

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(batch.Lost, match="exit status -9"):
        batch.Grader(SETTINGS).grade(jobs("quick")[0], 20)
    assert folders
    assert not folders[0].exists()


def test_folders_of_runs_that_were_killed_go_with_the_next(tmp_path, monkeypatch):
    """Those of runs that live do not, nor what is not ours"""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os\nfrom assignment.classroom import scratch\n"
    code += f"(scratch.new({batch.FOLDER!r}).path / 'x').mkdir()\nos.kill(os.getpid(), 9)"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=60)
    (dead,) = tmp_path.iterdir()
    (tmp_path / "thesis").mkdir()
    alive = scratch.new(batch.FOLDER)
    assert not dead.exists()
    with scratch.folder(batch.FOLDER) as other:
        assert sorted(tmp_path.iterdir()) == sorted([alive.path, other, tmp_path / "thesis"])
    assert alive.path.exists()
    alive.release()
    scratch.sweep(batch.FOLDER)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


# results


def report(score, **statuses):
    checks = [{"name": name, "status": status} for name, status in statuses.items()]
    return {
        "score": score,
        "gradable": 80.0,
        "seconds": 1,
        "problems": [{"name": "rmsnorm", "score": score, "checks": checks}],
    }


def test_a_report_is_of_a_submission_a_grader_and_settings(tmp_path, monkeypatch):
    settings = results.opened(tmp_path / "r", "cpu", "auto", ())
    assert results.opened(tmp_path / "r", "cpu", "auto", ()) == settings
    with pytest.raises(UnusableSubmission, match="give the same options"):
        results.opened(tmp_path / "r", "cpu", "auto", ("rmsnorm",))
    one, other = Submission({"a.py": b"1"}), Submission({"a.py": b"2"})
    keys = [results.key(one, settings), results.key(other, settings)]
    monkeypatch.setattr(results, "grader_digest", lambda: "another")
    keys.append(results.key(one, settings))
    assert len(set(keys)) == 3
    kept, ada = results.Results(tmp_path / "r", settings), Handed("ada", Path("ada"))
    kept.keep(ada, keys[0], report(3.0), "log")
    assert kept.is_done(ada, keys[0])
    assert not kept.is_done(ada, keys[1])
    (tmp_path / "r" / "reports" / "ada.json").write_text('{"score": ')  # half of a file, which no run of ours writes
    assert not kept.is_done(ada, keys[0])


CHOSEN = "seed = {}\ndevice = '{}'\nsandbox = '{}'\nonly = []"


@pytest.mark.parametrize(
    "text", ["", "seed = 'x'", "[", "seed = 1", CHOSEN.format(-1, "cpu", "auto"), CHOSEN.format(1, "tpu", "auto")]
)
def test_settings_that_cannot_be_read(tmp_path, text):
    (tmp_path / results.SETTINGS).write_text(text)
    with pytest.raises(UnusableSubmission, match="cannot be read"):
        results.opened(tmp_path, "cpu", "auto", ())


def test_another_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UnusableSubmission, match="not empty"):
        results.opened(tmp_path, "cpu", "auto", ())


def test_grades():
    late = Handed("ada", Path("b"), attempt=2, submitted=DUE + datetime.timedelta(hours=25))
    pair = Handed("bo+cy", Path("c"), people=(Person("Bo", "2"), Person("=cmd()", "3")))
    graded = [
        (Handed("ada", Path("a")), report(30.0)),
        (late, report(50.0, x="needs review")),
        (pair, results.failed("?")),
    ]
    dates = lateness.Dates(DUE, LateRule())
    best, last = (grades.rows(grades.by_person(graded, pick, dates)) for pick in ("best", "last"))
    assert [(row["student"], row["attempt"], row["score"], row["late"], row["state"]) for row in best] == [
        ("ada", 2, 50.0, 2, "needs review"),
        ("bo+cy", 1, "", "unknown", "not graded"),
        ("bo+cy", 1, "", "unknown", "not graded"),
    ]
    assert last[0]["attempt"] == 2
    assert best[0]["rmsnorm"] == 50.0
    rows = list(csv.DictReader(io.StringIO(grades.as_csv(best).decode())))
    assert rows[2]["name"] == "'=cmd()"


# the command


@pytest.fixture
def small_class(tmp_path):
    folder = tmp_path / "class"
    package(folder / "ada", (ROOT / "assignment/reference/cs336_kernels/weighted_sum.py").read_text())
    package(folder / "bo")
    (folder / "cy.zip").write_bytes(b"PK nonsense")
    return folder


def run(*arguments):
    return classroom.main(["grade", *map(str, arguments), "--only", "weighted_sum", "--jobs", "1", "--device", "cpu"])


@pytest.mark.slow
def test_a_class_is_graded_once(small_class, tmp_path, capsys, monkeypatch):
    """As alone, and again only what is missing"""
    to = tmp_path / "results"
    assert run(small_class, "--to", to) == grade.INCOMPLETE
    said = capsys.readouterr().out
    assert "ada: 10 of 10" in said
    assert "1 got no grade: cy" in said
    table = {row["student"]: row for row in csv.DictReader(io.StringIO((to / "grades.csv").read_text()))}
    assert [table[name]["score"] for name in ("ada", "bo", "cy")] == ["10.0", "0.0", ""]
    assert table["cy"]["state"] == "not graded"
    told = json.loads((to / "reports" / "ada.json").read_text())
    alone = subprocess.run(
        [sys.executable, ROOT / "grade.py", small_class / "ada", "--only", "weighted_sum", "--jobs", "1",
         "--seed", str(told["seed"]), "--device", "cpu", "--json", tmp_path / "alone.json"],
        capture_output=True, timeout=200, cwd=tmp_path,
    )  # fmt: skip
    assert alone.returncode == 0
    same = json.loads((tmp_path / "alone.json").read_text())
    keys = ("name", "status", "score", "cases", "passed", "message", "hint")

    def verdicts(data):
        return [{key: check[key] for key in keys} for problem in data["problems"] for check in problem["checks"]]

    assert verdicts(told) == verdicts(same)
    asked: list[list[str]] = []

    def grade_all(jobs, *more):
        asked.append([job.handed.name for job in jobs])
        return iter(())

    monkeypatch.setattr(batch, "grade_all", grade_all)
    run(small_class, "--to", to)
    run(small_class, "--to", to, "--again", "bo")
    (small_class / "bo" / "cs336_kernels" / "weighted_sum.py").write_text("x = 1\n")
    run(small_class, "--to", to)
    assert asked == [[], ["bo"], ["bo"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "expected a folder of submissions"),
        (["class", "--again", "nobody"], "nobody of that name"),
        (["empty"], "no folder and no zip"),
    ],
)
def test_what_cannot_be_graded_is_said_in_a_sentence(small_class, tmp_path, capsys, arguments, words):
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / arguments[0], *arguments[1:], "--to", tmp_path / "r") == classroom.UNUSABLE
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


PARENT = """
import time
from assignment.classroom import batch, results

grader = batch.Grader(results.ClassSettings(0, "cpu", only=("weighted_sum",)))
print(grader._start().pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_a_grader_ends_with_the_process_that_has_started_it():
    """Even if that is killed"""
    with subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    until = time.monotonic() + 30
    while Path(f"/proc/{pid}/environ").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until
        time.sleep(0.2)
