"""What somebody meets who has written nothing yet, or only the first of it: greeting, --next, progress."""

import io
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from assignment import release
from assignment.commands import greeting, handout, next_check, progress, run
from assignment.commands.settings import Settings
from assignment.compiling import cache
from assignment.judge.pool import FUNCTIONS
from assignment.submission import Submission
from assignment.tests.forked import python
from assignment.verdict import checks, reporting, where
from assignment.verdict.checks import Check
from assignment.verdict.reporting import Circumstances
from assignment.verdict.score import Case, CheckResult

ROOT = Path(__file__).resolve().parents[2]
SESSION = Circumstances("uv run grade.py --seed 1 --only", 1, "cpu-simulated", "none", "00", seconds=15.3)


def grade(folder: Path, *arguments: str) -> str:
    """What grade.py prints in a folder."""
    env = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    done = python(ROOT / "grade.py", *arguments, cwd=folder, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def stubs(tmp_path):
    """A fresh copy."""
    release.write_folder(release.stubs(release.read_folder(ROOT, "assignment")), tmp_path)
    return tmp_path


def report_of(*statuses):
    """A report in which the first checks of all have these statuses, and the others, if any, are to do."""
    declared = checks.without_a_gpu(checks.without_practice(checks.declared()))
    all_statuses = [*statuses, *["todo"] * (len(declared) - len(statuses))]
    results = [
        CheckResult(check, (Case("case", status),), 1) for check, status in zip(declared, all_statuses, strict=True)
    ]
    return reporting.report(SESSION, results, [])


# Where things are.


def test_the_stubs_name_the_same_files_functions_and_sections():
    stubs = release.stubs(release.read_folder(ROOT, "assignment"))
    said = {text for file in stubs.values() for text in re.findall(r'Error\(\s*"(.*)"\s*\)', file.data.decode())}
    for check in checks.without_a_gpu(checks.declared()):
        assert str(where.place(check)) in said


def test_a_claim_begins_with_its_function():
    for check in checks.declared():
        assert where.place(check).function in FUNCTIONS, check.claim


def test_every_section_that_a_check_names_is_in_the_handout():
    for check in checks.declared():
        section = where.place(check).section
        assert handout.section(section).startswith("#"), section


# The greeting.


def test_who_has_written_nothing_is_greeted():
    """And led to the first kernel of the handout, by a command that exists"""
    lines = greeting.lines(report_of())
    (section,) = re.findall('"(.+)"', lines[1])
    assert handout.section(f"handout.md#{section.lower().replace(' ', '-')}").startswith(f"## {section}")
    assert lines[2].endswith("vector_add, your first kernel, in cs336_kernels/practice/vector_add.py")
    assert lines[3].endswith("uv run grade.py --only vector_add")
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("status", ["ok", "FAIL", "crashed", "timeout", "needs review", "grader error"])
def test_who_has_begun_is_not_greeted(status):
    assert greeting.lines(report_of(status)) == []
    assert greeting.lines(report_of("todo", "todo", status)) == []
    assert greeting.lines(report_of() | {"practice": [{"checks": [{"status": status}]}]}) == []


@pytest.mark.slow
def test_a_fresh_copy_is_greeted_and_its_total_stays_the_last_line(stubs):
    out = grade(stubs)
    assert "Welcome! Nothing is written yet" in out
    assert "Next:" not in out  # which would lead elsewhere
    assert out.splitlines()[-1] == "Score: 0/80 gradable here, 20 need a GPU"
    assert "Welcome" not in grade(stubs, "--only", "test_value")


# --next.


@pytest.mark.slow
def test_next_on_a_fresh_copy_is_the_first_stub(stubs):
    out = grade(stubs, "--next", "--seed", "3").splitlines()[2:]
    assert [line for line in out if line] == [
        "test_weighted_sum.py::test_forward_values: to do, for 2 points",
        "  weighted_sum_forward returns Σ_j x_ij w_j in float32",
        "  open:  cs336_kernels/weighted_sum.py: weighted_sum_forward, handout/weighted_sum.md",
        "  all of it: uv run grade.py --seed 3 --explain test_weighted_sum.py::test_forward_values",
        "After it: weighted_sum_forward is right for every shape: no size is a multiple of a tile (1 point), and 95 "
        "checks more",
    ]


@pytest.mark.slow
def test_next_shows_a_failure_as_the_report_does_and_nothing_beyond(submission):
    file = submission / "cs336_kernels" / "weighted_sum.py"
    file.write_text(file.read_text() + "\n\ndef weighted_sum_backward(*arguments):\n    return 1 / 0\n")
    out = grade(submission, "--next")
    assert "9 checks before it: all right." in out  # those of weighted_sum_forward
    assert "test_weighted_sum.py::test_backward_values: FAIL" in out
    assert "it raised ZeroDivisionError" in out
    assert "debug: uv run pytest --inline --pdb" in out
    assert "open:  cs336_kernels/weighted_sum.py: weighted_sum_backward, handout/weighted_sum.md" in out
    assert out.count("FAIL") == 1
    assert "Score" not in out


@pytest.mark.slow
def test_next_says_when_there_is_nothing_left(submission):
    assert "All right: 2 checks. For the others, leave out --only." in grade(
        submission, "--next", "--only", "test_value"
    )
    assert "Nothing here can be graded without a GPU" in grade(submission, "--next", "--only", "speed")


CHECKS = [Check(f"test_x.py::test_{name}", "rmsnorm", f"rmsnorm {name}", 1.0) for name in "abc"]


def first_of(*heard):
    """What is known to be the first, after each of these verdicts; whether the run was stopped then."""
    judge = next_check.First(CHECKS, Console(file=io.StringIO()), "uv run grade.py --only")
    judge._session = SimpleNamespace(shouldstop="")  # type: ignore[assignment]
    known = []
    for name, status in heard:
        judge.hear({"name": f"test_x.py::test_{name}", "status": status})
        check = judge.unfinished()
        assert bool(judge._session.shouldstop) == bool(check) == judge.has_enough
        known.append(check and check.name[-1])
    return known


def test_the_first_is_known_when_all_before_it_are_finished():
    """Verdicts come in any order"""
    assert first_of(("b", "todo"), ("c", "FAIL"), ("a", "ok")) == [None, None, "b"]
    assert first_of(("b", "todo"), ("a", "crashed")) == [None, "a"]
    assert first_of(("a", "ok"), ("b", "needs review"), ("c", "ok")) == [None, None, None]


# Progress.


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cs336-kernels" / "progress"


def names(report):
    return [check["name"] for problem in report["problems"] for check in problem["checks"]]


def test_a_run_is_compared_with_the_last_and_the_best(tmp_path):
    first, better, worse = report_of("ok", "FAIL"), report_of("ok", "ok", "ok"), report_of("FAIL", "ok")
    a, b, c = names(first)[:3]
    assert progress.lines(tmp_path, first) == []
    assert progress.lines(tmp_path, better) == [
        f"Newly passed since the last full run: {b}, {c}",
        f"Your best score so far; before, it was {first['score']:g}.",
        "",
    ]
    assert progress.lines(tmp_path, worse) == [
        f"Newly broken since the last full run: {a}, {c}",
        f"Your best score so far is {better['score']:g}.",
        "",
    ]
    assert progress.lines(tmp_path, better)[:2] == [f"Newly passed since the last full run: {a}, {c}", ""]
    assert progress.lines(tmp_path, better) == []
    assert progress.lines(tmp_path / "elsewhere", better) == []


def test_a_check_that_was_not_there_before_is_no_news():
    assert progress.compare(progress.Earlier(2.0, {}), report_of("ok")) == []


def test_many_checks_are_counted():
    before = progress.Earlier(0.0, dict.fromkeys(names(report_of()), False))
    (line, *_) = progress.compare(before, report_of(*["ok"] * 8))
    assert line.endswith(", and 3 more")


WRONG = {
    "empty": "",
    "cut off": '{"best": 3',
    "a list": "[]",
    "no best": '{"good": {}}',
    "no verdicts": '{"best": 1, "good": []}',
    "text": '{"best": "80/80", "good": {}}',
    "NaN": '{"best": NaN, "good": {}}',
    "infinite": '{"best": 1e999, "good": {}}',
    "negative": '{"best": -1, "good": {}}',
    "too good": '{"best": 101, "good": {}}',
    "huge": '{"best": 1' + "0" * 4000 + ', "good": {}}',
    "deep": "[" * 100_000,
    "long": '{"best": 1, "good": {}}' + " " * (1 << 21),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_what_is_not_of_the_form_was_never_there(tmp_path, kept, content):
    """And the next run replaces it"""
    report = report_of("ok")
    progress.lines(tmp_path, report)
    (file,) = kept.iterdir()
    file.write_text(content)
    assert progress.lines(tmp_path, report) == []
    assert json.loads(file.read_text())["best"] == 2.0


def test_verdicts_of_another_form_are_no_verdicts(tmp_path, kept):
    """Nothing in the file is shown: names are the report's own"""
    report = report_of("ok")
    progress.lines(tmp_path, report)
    (file,) = kept.iterdir()
    file.write_text(json.dumps({"best": 2.0, "good": dict.fromkeys(names(report), "\x1b[2J") | {"\x1b": False}}))
    assert progress.lines(tmp_path, report) == []


def link(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, link], ids=["a pipe", "a folder", "a device"])
def test_what_is_no_file_is_not_read(tmp_path, kept, make):
    report = report_of("ok")
    kept.mkdir(parents=True)
    make(kept / f"{progress.key(tmp_path, report)}.json")
    assert progress.lines(tmp_path, report) == []


@pytest.mark.parametrize("home", ["a file", "nowhere"])
def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch, home):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if home == "a file" else "/proc/nowhere")
    assert [progress.lines(tmp_path, report_of("ok")) for _ in range(2)] == [[], []]
    assert cache.folder("progress") is None


UNWRITTEN = Submission({})


@pytest.mark.parametrize(
    "different",
    [
        {"only": ("rmsnorm",)},
        {"inline": True},
        {"json": Path("report.json")},
        {"junit": Path("report.xml")},
        {"markdown": Path("report.md")},
        {"fail_under": 0.0},
        {"path": Path("submission.zip")},
        {"path": Path("submissions/somebody")},
    ],
    ids=str,
)
def test_who_grades_others_keeps_nothing_and_is_told_nothing(tmp_path, monkeypatch, kept, different):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for _ in range(2):
        assert run.remarks(Settings(**different), report_of("ok"), UNWRITTEN)[0] == []
    assert not kept.exists()
    assert run.remarks(Settings(), report_of(), UNWRITTEN)[0][0].startswith("Welcome")
    assert run.remarks(Settings(), report_of("ok"), UNWRITTEN)[0] == []
    assert run.remarks(Settings(), report_of("ok", "ok"), UNWRITTEN)[0][0].startswith("Newly passed")
    assert not list((tmp_path / "work").iterdir())


def test_a_check_keeps_its_number_in_another_order():
    declared = checks.declared()
    for check in declared:
        assert next_check.number_of(check, declared) == next_check.number_of(check, declared[::-1])
