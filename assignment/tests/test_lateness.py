"""What a late submission is worth, and what of it stands in tables, exports and pages; nothing where no date is set."""

import datetime
import re
from pathlib import Path
from typing import Any

import pytest

from assignment import course
from assignment.classroom import __main__ as classroom
from assignment.classroom import batch, class_report, grades, lateness, results, staff_dates, tables
from assignment.classroom.autograder import results as gradescope_results
from assignment.classroom.handed_in import Handed, Person
from assignment.classroom.lateness import Dates, Late, late
from assignment.commands import html_page, markdown, run
from assignment.commands.settings import Settings
from assignment.course import Course, LateRule
from assignment.handout import website
from assignment.release import File, student_tree
from assignment.submission import Submission, UnusableSubmission
from assignment.tests import class_made
from assignment.tests.test_classroom import report
from assignment.tests.test_classroom_late import clone
from assignment.tests.test_classroom_layouts import package, zipped
from assignment.tests.test_classroom_tables import rows, written

DUE = datetime.datetime.fromisoformat("2026-11-30T23:59:00+01:00")
DAY, HOUR, MINUTE, SECOND = (datetime.timedelta(seconds=s) for s in (86_400, 3_600, 60, 1))
RULE = LateRule(grace_minutes=15, credit_days=2, share_a_day=0.1, cut_off_days=3)
ADA, BO = Person("Ada Lovelace", "S77", "ada@uni.example"), Person("Bo", "S2", "bo@uni.example", login="bo2")
DATES = "Hand in by 30 November 2026, 23:59 (UTC+01:00)."


@pytest.fixture
def dated(monkeypatch):
    """A course with a date, as everything that reads it sees it."""
    known = Course(due=DUE, late=RULE)
    places = ("classroom.tables", "classroom.grade", "classroom.class_report", "commands.report", "handout.in_course")
    for place in places:
        monkeypatch.setattr(f"assignment.{place}.course", lambda: known)
    return known


@pytest.mark.parametrize(
    ("after", "days", "credit", "share"),
    [
        (-DAY, 0, 0, 1.0),
        (0 * DAY, 0, 0, 1.0),
        (15 * MINUTE, 0, 0, 1.0),  # the last moment of the grace
        (15 * MINUTE + SECOND, 1, 1, 1.0),
        (DAY + 15 * MINUTE, 1, 1, 1.0),  # the grace moves the beginning of each day
        (DAY + 15 * MINUTE + SECOND, 2, 2, 1.0),
        (2 * DAY + HOUR, 3, 2, 0.9),
        (5 * DAY + 15 * MINUTE, 5, 2, 0.7),
        (5 * DAY + 15 * MINUTE + SECOND, 6, 2, 0.0),  # the cut-off
        (900 * DAY, 900, 2, 0.0),
    ],
)
def test_days_credit_and_share(after, days, credit, share):
    assert late(DUE + after, DUE, RULE) == Late(days, credit, share)
    assert late((DUE + after).astimezone(datetime.UTC), DUE, RULE) == Late(days, credit, share)
    assert late(DUE + after + 4 * DAY, DUE, RULE, extension=DUE + 4 * DAY) == Late(days, credit, share)


def test_a_share_is_never_below_nothing_and_a_rule_may_forgive_or_refuse_all():
    assert late(DUE + 3 * DAY, DUE, LateRule(share_a_day=0.5)).share == 0
    assert late(DUE + 5 * DAY, DUE, LateRule(share_a_day=0)).share == 1
    assert late(DUE + SECOND, DUE, LateRule(cut_off_days=0)) == Late(1, 0, 0.0)


@pytest.mark.parametrize(
    ("is_late", "is_worth"), [(None, Late(None, 0, 1.0)), (False, Late(0, 0, 1.0)), (True, Late(None, 0, None))]
)
def test_without_a_time_a_platforms_word_counts(is_late, is_worth):
    assert late(None, DUE, RULE, is_late=is_late) == is_worth
    assert is_worth.after(30.0) == (None if is_late else 30.0)


@pytest.mark.parametrize(
    ("points", "share", "left"), [(71.25, 0.9, 64.13), (80.0, 0.7, 56.0), (0.05, 0.1, 0.01), (33.33, 1.0, 33.33)]
)
def test_what_is_left_is_in_hundredths_and_halves_are_rounded_up(points, share, left):
    assert Late(1, 0, share).after(points) == left


def handed(name: str, after: datetime.timedelta | None, attempt: int = 1, *people: Person, **more: Any) -> Handed:
    when = None if after is None else DUE + after
    return Handed(name, Path(f"/class/{name}{attempt}"), attempt=attempt, submitted=when, people=people, **more)


def counted(*graded, pick="best", **extensions):
    return grades.by_person(graded, pick, Dates(DUE, RULE, extensions))


def test_the_submission_counts_that_is_worth_most_after_lateness():
    in_time, better, worthless = handed("ada", -DAY), handed("ada", 4 * DAY, 2), handed("ada", 9 * DAY, 3)
    several = [(in_time, report(60.0)), (better, report(80.0)), (worthless, report(80.0))]
    assert [(one.handed.attempt, one.after) for one in counted(*several)] == [(2, 64.0)]
    assert [(one.handed.attempt, one.after) for one in counted(*several[::2])] == [(1, 60.0)]
    assert [(one.handed.attempt, one.after) for one in counted(*several, pick="last")] == [(3, 0.0)]
    assert [one.handed.attempt for one in grades.by_person(several, "best")] == [2]


def test_what_is_late_by_an_unknown_time_is_neither_dropped_nor_worth_anything():
    """It may be worth all its points: staff have to say"""
    in_time, flagged = handed("ada", None), handed("ada", None, 2, is_late=True)
    (one,) = counted((in_time, report(60.0)), (flagged, report(70.0)))
    assert (one.handed.attempt, one.after) == (2, None)
    (one,) = counted((in_time, report(60.0)), (flagged, report(60.0)))
    assert (one.handed.attempt, one.after) == (1, 60.0)


def test_each_of_a_group_has_their_own_date():
    pair = (handed("ada+bo", 5 * DAY, 1, ADA, BO), report(50.0))
    ada, bo = counted(pair, **{"ada@uni.example": DUE + 5 * DAY})
    assert (ada.after, bo.after) == (50.0, 35.0)


EXTENSIONS = """\
login,until,reason
ADA@uni.example,4,ill
bo2,2026-12-01,"a wedding, abroad"
cy,2026-12-03T12:00+02:00
dee,7
"""


def test_extensions_are_days_or_dates_of_whom_the_class_knows(tmp_path):
    (tmp_path / "e.csv").write_text(EXTENSIONS, encoding="utf-8-sig")
    whole = [handed("ada", -DAY, 1, ADA), handed("ada", DAY, 2, ADA), handed("bo", DAY, 1, BO), handed("cy", DAY)]
    found = staff_dates.dated(whole, DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")
    assert found.dates is not None
    assert {key: when.isoformat() for key, when in found.dates.extensions.items()} == {
        "ada@uni.example": "2026-12-04T23:59:00+01:00",
        "bo@uni.example": "2026-12-01T23:59:00+01:00",
        "\0cy": "2026-12-03T12:00:00+02:00",
    }
    (doubt,) = found.doubts
    assert doubt.startswith("e.csv: 'dee' (line 5): nobody of this class; expected an address")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_columns_are_divided_as_a_spreadsheet_does(tmp_path, mark):
    (tmp_path / "e.csv").write_text(f"student{mark}days{mark}why\r\n\r\ncy{mark}2{mark}ill\r\n")
    found = staff_dates.dated([handed("cy", DAY)], DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")
    assert found.dates is not None
    assert found.dates.until("\0cy") == DUE + 2 * DAY


BAD = {
    "ada,soon": "line 2: expected a student and days or a new date, such as ada,2 or ada,2026-12-02 or "
    "ada,2026-11-30T23:59+01:00, got 'ada,soon'",
    "ada": "got 'ada'",
    ",3": "got ',3' (its first column is empty)",
    "ada,-1": "got 'ada,-1'",
    "ada,2.5": "got 'ada,2.5'",
    "ada,367": "got 'ada,367'",
    "ada,12/3/2026": "got 'ada,12/3/2026'",
    "ada,2026-13-01": "got 'ada,2026-13-01'",
    "ada,2026-12-02T10:00": "(it names no zone)",
    "ada,2026-11-02": "(that is before the course's date, 2026-11-30T23:59:00+01:00)",
    "ada,1\nada,2": "line 3: 'ada' is in line 2 already; expected one line",
    "ada,1\nLovelace,2": "line 3: 'Lovelace' is in line 2 already",
    "roe,1": "line 2: 'roe' may be any of 13, 14; expected what is one's alone",
}


@pytest.mark.parametrize("said", BAD)
def test_a_bad_line_is_told_with_its_number_and_what_was_expected(tmp_path, said):
    (tmp_path / "e.csv").write_text(f"login,days\n{said}\n")
    roes = [handed(f"roe-{n}", DAY, 1, Person("Roe", canvas=n)) for n in ("13", "14")]
    ada = handed("ada", DAY, 1, Person("Lovelace", login="ada"))
    with pytest.raises(UnusableSubmission) as error:
        staff_dates.dated([ada, *roes], DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")
    assert str(error.value).startswith(f"{tmp_path / 'e.csv'} cannot be used:\n  line ")
    assert BAD[said] in str(error.value)


def test_all_bad_lines_are_told_at_once(tmp_path):
    (tmp_path / "e.csv").write_text("".join(f"s{n},?\n" for n in range(30)))
    with pytest.raises(UnusableSubmission) as error:
        staff_dates.dated([], DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")
    told = str(error.value).splitlines()
    assert (len(told), told[-1]) == (22, "  and 10 more")


@pytest.mark.parametrize("content", [b"\xff\xfe", b'a,"b\x00' + b"x" * 200_000])
def test_a_file_that_is_no_csv_is_told(tmp_path, content):
    (tmp_path / "e.csv").write_bytes(content)
    with pytest.raises(UnusableSubmission, match=r"cannot be (read|used)"):
        staff_dates.dated([], DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")


def test_times_of_the_staff_go_before_all_others(tmp_path):
    (tmp_path / "t.csv").write_text(
        "submission,time\nada.2,2026-12-01T10:00+01:00\nbo2,2026-12-05T10:00Z\nx,2026-12-05T10:00Z\n"
    )
    whole = [handed("ada", -DAY), handed("ada", -DAY, 2, time_from="commit"), handed("bo", None, 1, BO, is_late=True)]
    found = staff_dates.dated(whole, DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")
    assert [(str(one.submitted)[:10], one.time_from) for one in found.handed] == [
        ("2026-11-29", ""), ("2026-12-01", "staff"), ("2026-12-05", "staff"),
    ]  # fmt: skip
    assert found.doubts == [f"t.csv: 'x' (line 4): nobody of this class; {staff_dates.KNOWN}"]
    (tmp_path / "t.csv").write_text("ada,2026-12-01T10:00+01:00\n")
    with pytest.raises(UnusableSubmission, match=r"line 1: 'ada' may be any of ada, ada\.2; expected"):
        staff_dates.dated(whole, DUE, RULE, tmp_path / "e.csv", tmp_path / "t.csv")


def whole(score: float) -> Any:
    return class_made.report(class_made.submission(), score=score)


def some_class(folder):
    return written(
        folder,
        (handed("ada", 3 * DAY, 1, ADA, time_from="Gradescope"), whole(80.0)),
        (handed("bo", None, 1, BO, time_from="Canvas", is_late=True), whole(50.0)),
    )


OF_DATES = ["due", "handed_in", "time_from", "credit", "share", "after_lateness"]


def test_the_tables_have_the_score_after_lateness_beside_the_raw_one(tmp_path, dated):
    wrote = some_class(tmp_path)
    ada, bo = rows(tmp_path / "grades.csv")
    assert [ada[name] for name in [*OF_DATES, "late", "score"]] == [
        "2026-11-30T23:59:00+01:00", "2026-12-03T23:59:00+01:00", "Gradescope", "2", "0.9", "72.0", "3", "80.0",
    ]  # fmt: skip
    assert [bo[name] for name in [*OF_DATES, "late", "score"]] == [
        "2026-11-30T23:59:00+01:00", "unknown", "Canvas", "0", "", "", "late", "50.0",
    ]  # fmt: skip
    names = list(ada)
    assert names[names.index("score") + 1] == "after_lateness"
    table = rows(tmp_path / "gradescope.csv")
    assert [(row["Score"], row["Score before lateness"]) for row in table] == [("72.0", "80.0"), ("", "50.0")]
    assert [row[course.course().title] for row in rows(tmp_path / "canvas.csv")] == ["72.0", ""]
    assert wrote.lateness == "1 late, 1 late by an unknown time, and without a score after lateness"


def test_dates_that_change_later_change_the_tables_and_no_report(tmp_path, dated, capsys):
    some_class(tmp_path)
    kept = {path: path.read_bytes() for path in (tmp_path / "reports").iterdir()}
    (tmp_path / staff_dates.EXTENSIONS).write_text("S77,3\n")
    (tmp_path / staff_dates.TIMES).write_text("bo2,2026-12-05T10:00+01:00\n")
    classroom.main(["review", str(tmp_path)])
    assert "lateness: 1 late\n" in capsys.readouterr().out
    ada, bo = rows(tmp_path / "grades.csv")
    assert (ada["after_lateness"], ada["due"]) == ("80.0", "2026-12-03T23:59:00+01:00")
    assert (bo["after_lateness"], bo["late"], bo["time_from"]) == ("35.0", "5", "staff")
    assert {path: path.read_bytes() for path in (tmp_path / "reports").iterdir()} == kept
    (tmp_path / staff_dates.EXTENSIONS).write_text("S77,soon\n")
    assert classroom.main(["review", str(tmp_path)]) == classroom.UNUSABLE
    assert "line 1: expected" in capsys.readouterr().err
    assert rows(tmp_path / "grades.csv")[0]["after_lateness"] == "80.0"


def test_without_a_date_nothing_changes(tmp_path, monkeypatch):
    """No column, no sentence, no paragraph, even where staff have given extensions"""
    wrote = some_class(tmp_path)
    (tmp_path / staff_dates.EXTENSIONS).write_text("S77,soon\n")
    tables.write(tmp_path, tables.form_of(tmp_path))
    assert wrote.lateness == ""
    assert not {*OF_DATES} & {*rows(tmp_path / "grades.csv")[0]}
    assert [row["late"] for row in rows(tmp_path / "grades.csv")] == ["", "late"]
    assert list(rows(tmp_path / "gradescope.csv")[0]) == ["Name", "SID", "Email", "Score"]
    assert (Course().told_dates(), markdown.dates()) == ("", [])
    assert "Hand in by" not in website.written()["handout.md"]
    found = tables.read(tmp_path)
    shown = class_report.of_class(found, "t", None)
    assert (found.dates, shown["dates"], shown["lateness"]) == (None, "", "")


@pytest.fixture
def graded(monkeypatch):
    """A grader that gives everybody all points at once."""

    def grade_all(jobs, *_):
        for job in jobs:
            yield job, {"report": class_made.report(job.submission), "log": ""}

    monkeypatch.setattr(batch, "grade_all", grade_all)


def test_a_class_is_graded_with_lateness(tmp_path, dated, graded, capsys):
    """And the files of dates are kept for later runs"""
    clone(tmp_path / "class" / "ada", when=(DUE + 3 * DAY).isoformat())
    package(tmp_path / "class" / "bo")
    (tmp_path / "e.csv").write_text("ada,1\ncyd,2\n")
    (tmp_path / "t.csv").write_text("bo,2026-12-03T10:00+01:00\n")
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]
    assert classroom.main([*command, "--extensions", str(tmp_path / "e.csv"), "--times", str(tmp_path / "t.csv")]) == 0
    said = capsys.readouterr().out
    assert "e.csv: 'cyd' (line 2): nobody of this class" in said
    assert "lateness: 2 late, 1 of these without a loss\n" in said
    once = (tmp_path / "r" / "grades.csv").read_bytes()
    assert [row["late"] for row in rows(tmp_path / "r" / "grades.csv")] == ["2", "3"]
    assert classroom.main(command) == 0
    assert (tmp_path / "r" / "grades.csv").read_bytes() == once
    assert classroom.main([*command, "--strict"]) == classroom.UNUSABLE


@pytest.mark.parametrize("option", ["--extensions", "--times"])
def test_a_bad_file_ends_it_before_anything_is_graded_or_kept(tmp_path, dated, graded, capsys, option):
    package(tmp_path / "class" / "bo")
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r"), option, str(tmp_path / "e.csv")]
    assert classroom.main(command) == classroom.UNUSABLE
    assert "e.csv: no such file" in capsys.readouterr().err
    (tmp_path / "e.csv").write_text("bo,soon\n")
    assert classroom.main(command) == classroom.UNUSABLE
    assert "line 1: expected" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_an_extension_needs_a_date(tmp_path, graded, capsys):
    package(tmp_path / "class" / "bo")
    (tmp_path / "e.csv").write_text("bo,2\n")
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r"), "--extensions", str(tmp_path / "e.csv")]
    assert classroom.main(command) == classroom.UNUSABLE
    assert "set `due` in course.toml, or --due" in capsys.readouterr().err
    assert classroom.main([*command, "--due", DUE.isoformat()]) == 0


def test_canvas_says_who_is_late_and_staff_how_much(tmp_path, dated, graded, capsys):
    (tmp_path / "class").mkdir()
    for name in ("doejane_LATE_12_345_work.zip", "roeric_13_346_work.zip"):
        zipped(tmp_path / "class" / name, {"cs336_kernels/weighted_sum.py": name})
    command = ["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]
    assert classroom.main(command) == 0
    said = capsys.readouterr().out
    assert "'doejane_LATE_12_345_work.zip': late by an unknown time, and no score" in said
    assert "taken as in time" not in said
    assert [row["Score"] for row in rows(tmp_path / "r" / "gradescope.csv")] == ["", "80.0"]
    (tmp_path / "t.csv").write_text("doejane,2026-12-04T10:00+01:00\n")
    assert classroom.main([*command, "--strict", "--times", str(tmp_path / "t.csv")]) == 0
    assert [row["Score"] for row in rows(tmp_path / "r" / "gradescope.csv")] == ["64.0", "80.0"]


RULES = {
    LateRule(): "Each day late, begun ones too, costs 10 % of the points. "
    "What is more than 5 days late is worth nothing.",
    RULE: "Being up to 15 minutes late costs nothing. You may be 2 days late without a loss. "
    "Each further day begun costs 10 % of the points. What is more than 5 days late is worth nothing.",
    LateRule(cut_off_days=0): "Later it is worth nothing.",
    LateRule(credit_days=1, cut_off_days=0): "You may be 1 day late without a loss. "
    "What is more than 1 day late is worth nothing.",
    LateRule(share_a_day=0): "What is more than 5 days late is worth nothing.",
}


@pytest.mark.parametrize("rule", RULES)
def test_the_sentence_says_the_rule(rule):
    assert Course(due=DUE, late=rule).told_dates() == f"{DATES} {RULES[rule]}"


def test_students_see_date_and_rule(tmp_path, dated, monkeypatch):
    """In a terminal, on their pages, in the summaries of GitHub and Gradescope, and at the handout's head"""
    made: Any = class_made.report(Submission({"cs336_kernels/rmsnorm.py": b"x = 1\n"}))
    assert markdown.dates()[1] in markdown.page(made)
    assert DATES.replace("+", "\\+") in markdown.dates()[1] or DATES in markdown.dates()[1]
    assert DATES in html_page.of_report(made, {}, [80.0], False).decode()
    assert markdown.dates()[1] in gradescope_results.of(made, "abc", "visible")["output"]
    monkeypatch.chdir(tmp_path)
    lines, _ = run.remarks(Settings(path=tmp_path), made, Submission({}))
    assert DATES in " ".join(lines)
    assert max(map(len, lines)) <= 80
    monkeypatch.setattr("assignment.commands.greeting.lines", lambda _: ["Welcome!"])
    assert " ".join(run.remarks(Settings(path=tmp_path), made, Submission({}))[0]).startswith(f"Welcome! {DATES}")
    website.copy(tmp_path / "docs")
    for page in ((tmp_path / "docs" / "index.md").read_text(), website.written()["handout.md"]):
        assert page.index("# CS336") < page.index(DATES) < page.index("## ")


def test_no_page_of_a_student_tells_an_extension(tmp_path, dated, capsys):
    """Nor does what members of a group see: their page is one, and their dates differ"""
    pair = (handed("ada+bo", 5 * DAY, 1, ADA, BO), class_made.report(class_made.submission()))
    alone = (handed("cy", 5 * DAY), class_made.report(class_made.submission()))
    written(tmp_path, pair, alone)
    (tmp_path / staff_dates.EXTENSIONS).write_text("S77,5\n")
    assert classroom.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "students" / "ada+bo.html").read_text()
    assert DATES in page
    assert not re.search(r"score after lateness|days late</dt>|2026-12-05|5 December", page)
    page = (tmp_path / "students" / "cy.html").read_text()
    assert re.search(r"days late</dt><dd>5</dd></div>\s*<div><dt>score after lateness</dt><dd>56<", page)
    page = (tmp_path / "report.html").read_text()
    assert re.search(r"<td>5</td><td class=\"n\" data-sort=\"[\d.]+\">80, 56</td>", page)
    assert "Students: 2 late, 1 of these" not in page


@pytest.mark.parametrize("path", ["extensions.csv", "handout/extensions.CSV", "tests/roster.csv"])
def test_lists_of_people_are_in_no_release(path):
    tree = {name: File(b"x\n") for name in ("README.md", path)}
    tree["assignment/reference/cs336_kernels/a.py"] = File(b"")
    assert path not in student_tree(tree)


def test_a_course_that_cannot_be_read_is_told(tmp_path, monkeypatch, capsys):
    def broken():
        raise course.CourseError("course.toml, line 3: due: expected a date")

    monkeypatch.setattr("assignment.classroom.grade.course", broken)
    package(tmp_path / "class" / "bo")
    assert classroom.main(["grade", str(tmp_path / "class"), "--to", str(tmp_path / "r")]) == classroom.UNUSABLE
    assert "course.toml, line 3" in capsys.readouterr().err


def test_a_line_on_lateness():
    assert lateness.told([Late(0, 0, 1.0)]) == ""
    found = [Late(1, 1, 1.0), Late(9, 2, 0.0), Late(None, 0, 1.0), Late(None, 0, None)]
    assert lateness.told(found) == (
        "2 late, 1 of these without a loss, 1 of these worth nothing, 1 late by an unknown time, and without a score "
        "after lateness, 1 without a known time, taken as in time"
    )


def test_tables_of_an_earlier_version_are_read():
    data: Any = results.as_data(handed("ada", DAY, time_from="commit"))
    assert results.from_data(data).time_from == "commit"
    del data["time_from"]
    assert results.from_data(data).time_from == ""
