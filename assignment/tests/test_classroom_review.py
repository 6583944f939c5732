"""What needs a person, and that what they decide counts, and is never lost."""

import csv
import re
import shlex
import threading

import pytest

from assignment.classroom import COMMAND, decisions, evidence, review, tables
from assignment.classroom import __main__ as classroom
from assignment.commands.excerpts import excerpts
from assignment.submission import UnusableSubmission
from assignment.tests import class_made
from assignment.tests.class_made import DOUBT, FILE, VALUES
from assignment.verdict import score
from assignment.verdict.case import Case


@pytest.fixture
def folder(tmp_path):
    return class_made.made(tmp_path / "results")


def run(*arguments):
    return classroom.main(["review", *map(str, arguments)])


def decide(folder, name="cy", problem="rmsnorm", points="12", reason="clamps its input", by="Grace"):
    return run(folder, "--decide", name, problem, points, "--reason", reason, "--by", by)


def grades_of(folder, table="grades.csv", key="student"):
    rows = csv.DictReader((folder / table).read_text().splitlines())
    return {row[key]: row for row in rows}


def test_what_is_open_is_told_with_its_code(folder, capsys):
    assert run(folder) == review.OPEN
    said = capsys.readouterr().out
    assert "cy: rmsnorm, 20 of 20 points: needs review" in said
    assert "  >    12 | line_12 = 12" in said
    assert "       16 | line_16 = 16" in said
    assert "line_17" not in said
    assert "di: total, 0 of 100 points: not graded" in said
    assert "2 open, of 2 submissions" in said


def test_a_decision_counts_in_every_table(folder, capsys):
    before = grades_of(folder)["cy"]
    assert (before["score"], before["state"]) == ("80.0", "needs review")
    assert decide(folder) == review.SETTLED
    row = grades_of(folder)["cy"]
    assert (row["score"], row["rmsnorm"], row["state"]) == ("72.0", "12.0", "decided")
    assert row["decided"] == "rmsnorm: 12 points, by Grace: clamps its input"
    assert "72.0" in (folder / "canvas.csv").read_text()
    assert "72.0" in (folder / "gradescope.csv").read_text()
    assert decide(folder, "di", "total", "40.5", "a zip by mail") == review.SETTLED
    assert grades_of(folder)["di"]["score"] == "40.5"
    capsys.readouterr()
    assert run(folder) == review.SETTLED
    said = capsys.readouterr().out
    assert "decided: cy, rmsnorm: 12 points, by Grace: clamps its input" in said
    assert "0 open" in said


def test_a_decision_outlives_regrading_and_not_another_submission(folder, capsys):
    decide(folder)
    doubted, same = {VALUES: Case("", score.NEEDS_REVIEW, DOUBT)}, class_made.submission()
    class_made.keep(folder, "cy", class_made.report(same, doubted, seconds=3), same)
    assert grades_of(folder)["cy"]["score"] == "72.0"
    other = class_made.submission("more = 1\n")
    class_made.keep(folder, "cy", class_made.report(other, doubted), other)
    assert (grades_of(folder)["cy"]["score"], grades_of(folder)["cy"]["state"]) == ("80.0", "needs review")
    assert run(folder) == review.OPEN
    assert "the submission has changed since" in capsys.readouterr().out


def test_the_later_of_two_decisions_counts_and_the_earlier_stays(folder):
    decide(folder)
    (folder / decisions.FILE).write_text((folder / decisions.FILE).read_text() + "# ask Ada\n")
    decide(folder, points="15")
    assert grades_of(folder)["cy"]["rmsnorm"] == "15.0"
    assert [one.points for one in decisions.read(folder)] == [12.0, 15.0]
    assert "# ask Ada" in (folder / decisions.FILE).read_text()


@pytest.mark.parametrize(
    "reason", ['"quoted" \\ back', "two\nlines", "]]\n[[decision]]", "名前 🙂", "\x7f\x00\u202e", "'''", "#"]
)
def test_any_reason_can_be_kept(folder, reason):
    assert decide(folder, reason=reason) == review.SETTLED
    (kept,) = decisions.read(folder)
    assert kept.points == 12.0
    assert "\n" not in kept.reason


GOOD = """[[decision]]
name = "cy"
problem = "rmsnorm"
points = 3
reason = "r"
by = "b"
when = 2026-12-02
sha256 = ""
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[decision]\n", "line 1"),
        (GOOD + "\n" + GOOD.replace("points = 3", 'points = "ten"'), "line 10: points: expected a number"),
        (GOOD.replace("points = 3", "points = 21"), "from 0 to 20, got 21"),
        (GOOD.replace("points = 3", "points = nan"), "from 0 to 20"),
        (GOOD.replace("points = 3", "points = true"), "from 0 to 20"),
        (GOOD.replace("rmsnorm", "rms"), "line 1: problem: expected weighted_sum"),
        (GOOD.replace('by = "b"\n', ""), "line 1: by is missing"),
        (GOOD.replace("reason", "because"), "because: expected one of"),
        (GOOD + "\n[[decisions]]\n", "'decisions' in line 10: expected only [[decision]]"),
        ("decision = 3\n", "line 1: expected [[decision]]"),
        ("\n\ndecision = [4]\n", "line 3: expected [[decision]]"),
        (GOOD.replace('"r"', "7"), "reason: expected text in quotation marks"),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence_and_changes_nothing(folder, capsys, text, words):
    tables_before = (folder / "grades.csv").read_bytes()
    (folder / decisions.FILE).write_text(text)
    for act in (run, decide):
        assert act(folder) == classroom.UNUSABLE
        said = capsys.readouterr().err
        assert words in said
        assert "Traceback" not in said
    assert (folder / decisions.FILE).read_text() == text
    assert (folder / "grades.csv").read_bytes() == tables_before


def test_a_file_of_other_bytes_is_a_sentence(folder, capsys):
    (folder / decisions.FILE).write_bytes(b"\xff\xfe")
    assert run(folder) == classroom.UNUSABLE
    assert decisions.FILE in capsys.readouterr().err


def test_edits_by_hand_count_once_review_has_run(folder):
    sha256 = class_made.submission().sha256
    (folder / decisions.FILE).write_text(GOOD.replace('sha256 = ""', f'sha256 = "{sha256}"'))
    run(folder)
    assert grades_of(folder)["cy"]["rmsnorm"] == "3.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("eve", "rmsnorm", "3"), "no report of that name"),
        (("cy", "rms", "3"), "problem: expected"),
        (("cy", "rmsnorm", "-1"), "from 0 to 20"),
        (("cy", "rmsnorm", "many"), "could not convert"),
        (("di", "rmsnorm", "3"), "no such problem"),
        (("cy", "rmsnorm", "3", " "), "expected a few words"),
    ],
)
def test_what_cannot_be_decided_is_said(folder, capsys, arguments, words):
    assert decide(folder, *arguments) == classroom.UNUSABLE
    assert words in capsys.readouterr().err
    assert not (folder / decisions.FILE).exists()


def test_decisions_made_at_once_are_all_kept(folder):
    sha256 = class_made.submission().sha256
    made = [decisions.new("cy", "rmsnorm", i, "r", "b", sha256) for i in range(8)]
    threads = [threading.Thread(target=decisions.add, args=(folder, one)) for one in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.points for one in decisions.read(folder)} == set(range(8))


@pytest.mark.parametrize(
    ("got", "asked", "below"),
    [
        ("rlimits", "auto", True),
        ("landlock", "auto", False),
        ("landlock", "bubblewrap", True),
        ("bubblewrap", "landlock", False),
        ("", "auto", True),
    ],
)
def test_a_sandbox_below_the_one_asked_for(got, asked, below):
    assert evidence.is_below(got, asked) == below


def test_what_is_of_a_whole_submission():
    told = class_made.report(class_made.submission(), sandbox="rlimits", grader_failures=["Traceback: x"])
    found = evidence.findings("ada", told, {}, {})
    assert [(one.problem, one.why) for one in found] == [
        (decisions.TOTAL, score.GRADER_ERROR),
        (decisions.TOTAL, evidence.SANDBOX),
    ]


def test_code_is_shown_only_of_what_was_graded(folder):
    sha256 = class_made.submission().sha256
    assert set(evidence.sources(folder, "cy", sha256)) == {FILE}
    assert evidence.sources(folder, "cy", "another") == {}
    assert evidence.sources(folder, "di", "") == {}


@pytest.mark.parametrize(("path", "line"), [(FILE, 0), (FILE, 999), ("../../etc/passwd", 1), ("x", 1)])
def test_a_line_that_is_not_there_has_no_code(path, line):
    assert excerpts([{"path": path, "line": line}], class_made.submission().sources, set()) == ()


def test_a_line_that_is_named_has_code():
    (found,) = excerpts([{"path": FILE, "line": 2}], class_made.submission().sources, set())
    assert (found.named, found.lines[1]) == ((2,), (2, "line_2 = 2"))


def test_where_nothing_was_graded(tmp_path, capsys):
    assert run(tmp_path / "none") == classroom.UNUSABLE
    assert f"expected a folder that `{COMMAND} grade` has made" in capsys.readouterr().err


def test_tables_are_remembered(folder):
    form = tables.form_of(folder)
    assert [one.name for one in form.handed] == ["ada", "bo", "cy", "di"]
    (folder / tables.FILE).write_text('{"pick": "worst"')
    with pytest.raises(UnusableSubmission, match=f"run `{COMMAND} grade` again"):
        tables.form_of(folder)


def test_the_command_that_is_told_can_be_pasted(folder, capsys):
    assert classroom.main(["review", str(folder)]) == review.OPEN
    told = re.findall(r"decide, with other points or these: (.*)", capsys.readouterr().out)
    assert told
    for line in told:
        assert line.startswith(f"{COMMAND} review ")
        arguments = shlex.split(line.removeprefix(f"{COMMAND} ").replace("$USER", "grace"))
        assert classroom.main(arguments) == review.SETTLED
    assert classroom.main(["review", str(folder)]) == review.SETTLED
