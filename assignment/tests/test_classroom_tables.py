"""Tables and files for import: a row a student, no grade that was not made, no row that a platform cannot place."""

import csv
import dataclasses
import datetime
import io
import json
import re
import tempfile
import unicodedata
from typing import Any

import pytest

from assignment.classroom import __main__ as classroom
from assignment.classroom import batch, grade, grades, layouts, results, review, roster, tables
from assignment.classroom.handed_in import Handed, Person
from assignment.classroom.kept import Decision, KeptReport
from assignment.course import course
from assignment.submission import Submission, UnusableSubmission
from assignment.tests import class_made
from assignment.tests.test_classroom import report
from assignment.tests.test_classroom_layouts import KERNEL, METADATA, package, zipped

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,Lab (17)
    Points Possible,,,,,80
"Lovelace, Ada",12,S77,ada@uni.example,CS 336,
"Roe, Eric",13,S78,eroe,CS 336,
"Roe, Eric",14,S79,eroe2,CS 336,
"""
GRADESCOPE = """\
First Name,Last Name,SID,Email,Role,Section
Ada,Lovelace,S77,ada@uni.example,Student,A
Zoë,"O'Brien",S80,zoe@uni.example,Student,A
"""
ADA = Person("Ada Lovelace", "S77", "ada@uni.example")


def rows(path):
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))


def written(folder, *graded, **form):
    """Write the tables of submissions and their reports; None is a report that there is not."""
    kept = results.Results(folder, results.opened(folder, "cpu", "auto", ()))
    for handed, told in graded:
        if told is not None:
            kept.keep(handed, "key", told, "log")
    return tables.write(folder, tables.Form(tuple(handed for handed, _ in graded), **form))


def test_an_import_form_publishes_no_grade_that_was_not_made(tmp_path):
    bo, cy = Person("Bo", "S2", "bo@uni.example"), Person("Cy", "S3", "cy@uni.example")
    wrote = written(
        tmp_path,
        (Handed("ada", tmp_path / "a", people=(ADA,)), report(30.0)),
        (Handed("bo", tmp_path / "b", people=(bo,)), results.failed("lost")),
        (Handed("cy", tmp_path / "c", people=(cy,)), report(0.0)),
        (Handed("di", tmp_path / "李雷.zip"), report(50.0)),
    )
    gradescope, canvas = rows(tmp_path / "gradescope.csv"), rows(tmp_path / "canvas.csv")
    assert [(row["Name"], row["SID"], row["Email"], row["Score"]) for row in gradescope] == [
        ("Ada Lovelace", "S77", "ada@uni.example", "30.0"),
        ("Bo", "S2", "bo@uni.example", ""),
        ("Cy", "S3", "cy@uni.example", "0.0"),
    ]
    assert list(canvas[0]) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", course().title]
    assert [(row["Student"], row[course().title]) for row in canvas] == [
        ("Ada Lovelace", "30.0"), ("Bo", ""), ("Cy", "0.0"),
    ]  # fmt: skip
    assert wrote.left_out == ("di",)
    table = {row["student"]: row for row in rows(tmp_path / "grades.csv")}
    assert (table["bo"]["score"], table["bo"]["rmsnorm"], table["bo"]["state"]) == ("", "", "not graded")
    assert table["di"]["source"] == "李雷.zip"


FORMULA = "HYPERLINK(1)"
TEXTS = [
    f"{before}{sign}{FORMULA}"
    for before in ("", "x;", "x,", "x\t", "\n", "\r\n", "\r", " ", "x|", 'x"', "'", "\ufeff", "\u2028", 'x;"', "é ")
    for sign in "=+-@＝＋－＠﹦⁼−"
]


@pytest.mark.parametrize("divides", [",", ";", "\t", "|", " ", ":"])
def test_no_part_of_a_cell_is_a_formula(divides):
    """However a spreadsheet divides lines, whatever it normalises, with or without its quotes"""
    table = grades.as_csv([{"student": text, "name": f"{text} {text}", "score": -1.5} for text in TEXTS]).decode()
    read = [cell for row in csv.reader(io.StringIO(table, newline=""), delimiter=divides) for cell in row]
    for cell in [*read, *re.split(f"[{divides}\r\n]", table)]:
        seen = unicodedata.normalize("NFKC", cell).strip(' \t\r\n\ufeff"\u200b\u2028')
        assert not (seen[:1] in tuple("=+-@−") and FORMULA in seen), cell
    assert all(row["score"] == "-1.5" for row in csv.DictReader(io.StringIO(table, newline="")))


def test_every_sign_that_is_normalised_to_one_is_known():
    signs = {c for c in map(chr, range(0x110000)) if unicodedata.normalize("NFKC", c)[:1] in ("=", "+", "-", "@", "−")}
    assert {c for c in signs if grades.plain(f"{c}1") != f"'{c}1"} == set()


@pytest.mark.parametrize(
    "word",
    [
        "Lovelace, Ada", "O'Brien-Smith", "bo@uni.example+cy@uni.example", "李雷.zip", "zoë_2", "rmsnorm: 5 points",
        "x+tag@uni.example", "", "not graded", "Jean-Luc (CS 336)", "(touch x)-a075e3b1",
    ],
)  # fmt: skip
def test_a_plain_word_stays_as_it_is(word):
    assert grades.plain(word) == word


@pytest.mark.parametrize("field", ["sid", "email", "canvas", "login"])
@pytest.mark.parametrize("key", [f"={FORMULA}", f"a;＝{FORMULA}", "\r1", "-1"])
def test_a_column_by_which_an_import_matches_is_never_changed(tmp_path, capsys, field, key):
    bo = dataclasses.replace(Person("Bo", "S2", "bo@uni.example"), **{field: key})
    wrote = written(
        tmp_path,
        (Handed("ada", tmp_path / "a", people=(ADA,)), report(30.0)),
        (Handed("bo", tmp_path / "b", people=(bo,)), report(20.0)),
    )
    assert wrote.left_out == ("bo",)
    assert [row["SID"] for row in rows(tmp_path / "gradescope.csv")] == ["S77"]
    assert [row["SIS User ID"] for row in rows(tmp_path / "canvas.csv")] == ["S77"]
    assert [row["score"] for row in rows(tmp_path / "grades.csv")] == ["30.0", "20.0"]


def test_a_heading_that_is_a_formula_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        classroom.main(["grade", str(tmp_path), "--to", str(tmp_path / "r"), "--assignment", "x;=1"])
    assert "is a formula in a spreadsheet" in capsys.readouterr().err


def test_what_was_graded_until_the_limit_is_a_row_and_no_import(tmp_path):
    ada = Handed("ada", tmp_path / "a", people=(ADA,))
    cut = class_made.report(class_made.submission(), failed="ended by --limit: 3 of 9 cases were graded") | {
        "score": 30.0
    }
    written(tmp_path / "r", (ada, cut))
    (row,) = rows(tmp_path / "r" / "grades.csv")
    assert (row["score"], row["state"]) == ("30.0", "graded in part")
    assert [row["Score"] for row in rows(tmp_path / "r" / "gradescope.csv")] == [""]
    assert classroom.main(["review", str(tmp_path / "r")]) == review.OPEN
    decide = ["--decide", "ada", "total", "30", "--reason", "as it is", "--by", "me"]
    assert classroom.main(["review", str(tmp_path / "r"), *decide]) == review.SETTLED
    assert [row["Score"] for row in rows(tmp_path / "r" / "gradescope.csv")] == ["30.0"]


@pytest.mark.parametrize("second", [batch.Lost("gone"), {"report": {**report(40.0)}, "log": ""}], ids=["lost", "whole"])
def test_a_second_attempt_loses_nothing_of_the_first(second, tmp_path):
    job = batch.Job(Handed("ada", tmp_path), Submission({}), "")
    cut: Any = {"report": {**report(30.0), "failed": "ended by --limit"}, "log": ""}
    ((_, answer),) = batch.lost_once_more([(job, cut)], lambda job: (job, second))
    assert answer is (cut if isinstance(second, Exception) else second)


def test_a_decision_is_a_grade_even_if_none_was_made():
    decided = {"total": Decision("b", "total", 7.0, "r", "g", "w", "")}
    told: KeptReport = {**results.failed("lost"), "score": 7.0, "decided": decided}
    (one,), _ = grades.importable([grades.Counted(ADA, Handed("b", layouts.Path("b"), people=(ADA,)), told)])
    assert one.score == 7.0


@pytest.mark.parametrize(("pick", "score", "name"), [("best", 50.0, "alone"), ("last", 20.0, "pair")])
def test_somebody_alone_and_in_a_group_has_one_row(pick, score, name):
    bo, noon = Person("Bo", "S2", "bo@uni.example"), datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
    again = dataclasses.replace(ADA, email="Ada@uni.example")
    graded = [
        (Handed("pair", layouts.Path("p"), submitted=noon + datetime.timedelta(1), people=(bo, again)), report(20.0)),
        (Handed("alone", layouts.Path("a"), submitted=noon, people=(ADA,)), report(50.0)),
    ]
    table = grades.rows(grades.by_person(graded, pick))
    assert sorted((row["name"], row["score"], row["student"]) for row in table) == [
        ("Ada Lovelace", score, name), ("Bo", 20.0, "pair"),
    ]  # fmt: skip


def test_no_grade_does_not_go_before_a_grade_of_0():
    one, two = (Handed("a", layouts.Path("a"), attempt=attempt) for attempt in (1, 2))
    assert grades.best([(one, results.failed("lost")), (two, report(0.0))])[0] is two


def test_a_table_that_is_not_complete_says_so_in_its_name(tmp_path):
    """Also where an earlier submission's report is still there"""
    ada, bo = Handed("ada", tmp_path / "a", people=(ADA,)), Handed("bo", tmp_path / "b")
    written(tmp_path, (ada, report(30.0)), (bo, report(20.0)))
    assert (tmp_path / "grades.csv").exists()
    for wrote in (written(tmp_path, (ada, report(30.0)), (bo, report(20.0)), waiting=("bo",)),):
        assert wrote.waiting == ("bo",)
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == [
        "canvas.incomplete.csv", "grades.incomplete.csv", "gradescope.incomplete.csv",
    ]  # fmt: skip
    table = {row["student"]: row for row in rows(tmp_path / "grades.incomplete.csv")}
    assert (table["bo"]["score"], table["bo"]["state"]) == ("", "not graded yet")
    assert tables.form_of(tmp_path).waiting == ("bo",)
    written(tmp_path, (ada, report(30.0)), (bo, report(20.0)))
    assert not list(tmp_path.glob("*incomplete*"))


@pytest.fixture
def interrupted(monkeypatch):
    """A grader that grades one submission, and is interrupted then."""

    def grade_all(jobs, *more):
        for job in jobs[:1]:
            yield job, {"report": class_made.report(job.submission), "log": ""}
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "grade_all", grade_all)


def test_an_interrupted_run_says_how_many_are_missing(tmp_path, interrupted, capsys):
    for name in ("ada", "bo", "cy"):
        package(tmp_path / "class" / name, f"{KERNEL}# {name}\n")
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]
    assert classroom.main(command) == classroom.INTERRUPTED
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 of 3 submissions are not graded yet: ")
    assert "grades.incomplete.csv is not complete" in last
    assert [row["state"] for row in rows(tmp_path / "r" / "grades.incomplete.csv")][1:] == ["not graded yet"] * 2


def test_a_doubt_is_told_before_the_first_grade_and_strict_ends_there(tmp_path, interrupted, capsys):
    package(tmp_path / "class" / "m.müller")
    zipped(tmp_path / "class" / "m.muller.zip", {"cs336_kernels/a.py": ""})
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]
    assert classroom.main([*command, "--strict"]) == classroom.UNUSABLE
    said = capsys.readouterr()
    assert "taken for 2 students" in said.out
    assert "--strict: 1 doubts" in said.err
    assert not (tmp_path / "r").exists()
    classroom.main(command)
    said = capsys.readouterr().out
    assert said.index("taken for 2 students") < said.index("2 submissions: 0 have a report")


def test_a_run_that_grades_nothing_sweeps_too(tmp_path, monkeypatch):
    (tmp_path / "tmp" / f"{batch.FOLDER}dead").mkdir(parents=True)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ada.zip").write_bytes(b"no zip")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert classroom.main(["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]) == grade.INCOMPLETE
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("said", ["2026-11-30T23:59", "2026-11-30", "tomorrow"])
def test_a_time_without_a_zone_is_refused_with_two_that_are_not_ambiguous(tmp_path, capsys, said):
    package(tmp_path / "class" / "ada")
    with pytest.raises(SystemExit):
        classroom.main(["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r"), "--due", said])
    assert "2026-11-30T23:59+01:00" in capsys.readouterr().err


# rosters


@pytest.mark.parametrize(
    ("content", "key", "name"),
    [
        (CANVAS, "12", None),  # nobody's number of the school's
        (CANVAS, "S77", "Lovelace, Ada"),
        (CANVAS, "ada@uni.example", "Lovelace, Ada"),
        (CANVAS, "Ada Lovelace", "Lovelace, Ada"),
        (CANVAS, "eroe", "Roe, Eric"),
        (CANVAS, "Eric Roe", None),  # there are two
        ("\ufeff" + GRADESCOPE, "Zoë O'Brien", "Zoë O'Brien"),
        (GRADESCOPE, "ADA@uni.example", "Ada Lovelace"),
        (GRADESCOPE, "nobody", None),
    ],
)
def test_a_folder_s_name_is_looked_up_in_a_roster(tmp_path, content, key, name):
    (tmp_path / "roster.csv").write_text(content, encoding="utf-8")
    (one,), doubts = roster.filled([Handed(key, tmp_path / key, key=key)], roster.read(tmp_path / "roster.csv"))
    assert [person.name for person in one.people] == ([name] if name else [])
    assert bool(doubts) == (name is None)


def test_a_roster_gives_canvas_its_columns(tmp_path):
    """Of a class that Gradescope has exported, and of one that Canvas has"""
    (tmp_path / "roster.csv").write_text(CANVAS, encoding="utf-8")
    known = roster.read(tmp_path / "roster.csv")
    for person in (ADA, Person("lovelaceada", canvas="12")):
        (one,), doubts = roster.filled([Handed("a", tmp_path / "a", people=(person,), key="a")], known)
        assert not doubts
        written(tmp_path / "r", (one, report(30.0)), assignment="Lab (17)")
        (row,) = rows(tmp_path / "r" / "canvas.csv")
        assert list(row.values()) == ["Lovelace, Ada", "12", "S77", "ada@uni.example", "CS 336", "30.0"]


def test_two_folders_of_one_student_in_the_roster_are_told(tmp_path):
    (tmp_path / "roster.csv").write_text(CANVAS, encoding="utf-8")
    handed = [Handed(key, tmp_path / key, key=key) for key in ("eroe", "S78")]
    _, (doubt,) = roster.filled(handed, roster.read(tmp_path / "roster.csv"))
    assert doubt == "S78 and eroe: both are Roe, Eric of the roster"


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe", b"Student,ID\n  Points Possible,\n"])
def test_what_is_no_roster_is_said_in_a_sentence(tmp_path, content):
    (tmp_path / "roster.csv").write_bytes(content)
    with pytest.raises(UnusableSubmission, match="expected the CSV"):
        roster.read(tmp_path / "roster.csv")


def test_gradescope_s_students_come_back_as_they_were(tmp_path):
    """Every row that is written for import is somebody in the export, with their own score"""
    (tmp_path / "submission_metadata.yml").write_text(METADATA)
    for number in (11, 12, 13):
        package(tmp_path / f"submission_{number}")
    handed = layouts.found(tmp_path)
    points = {one.name: float(i) for i, one in enumerate(handed)}
    written(tmp_path / "r", *((one, report(points[one.name])) for one in handed), pick="last")
    wanted = {person.email: points[one.name] for one in handed for person in one.people}
    assert {row["Email"]: float(row["Score"]) for row in rows(tmp_path / "r" / "gradescope.csv")} == wanted
    assert json.loads((tmp_path / "r" / "tables.json").read_text())["waiting"] == []
