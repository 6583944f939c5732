"""What the pages of a class say, and what they do not tell."""

import re
import shutil
from typing import Any

import pytest

from assignment import pages
from assignment.classroom import __main__ as classroom
from assignment.classroom import decisions, leaderboard, overview, results, tables
from assignment.classroom.handed_in import Handed, Person
from assignment.simulator import faults
from assignment.tests import class_made
from assignment.tests.class_made import FLASH, HINT, MARKUP, SPEED, TIMING, VALUES
from assignment.verdict import finding, reporting, score
from assignment.verdict.case import Case
from assignment.verdict.finding import Explanation, Finding

GPU = "cuda: NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A class's results with their pages."""
    folder = class_made.made(tmp_path_factory.mktemp("class") / "results")
    assert classroom.main(["report", str(folder), "--price", "0.5"]) == 0
    return folder


def one_check(status: str, *hints: Explanation, kind: str = finding.OTHER, name: str = "t::test_x") -> Any:
    return {
        "name": name, "claim": "f is right", "function": "f", "status": status, "message": "",
        "hint": reporting.OR.join(map(str, hints)), "findings": [Finding(kind).as_json("a", hints)],
        "score": 0.0, "max_score": 2.0,
    }  # fmt: skip


def a_report(*found: Any, points: float = 0.0) -> Any:
    problem = {"name": "rmsnorm", "title": "RMSNorm", "score": points, "gradable": 20.0, "checks": [*found]}
    return {"score": points, "gradable": 80.0, "problems": [problem], "practice": []}


# what reports say together


def test_the_highest_score_is_in_the_highest_column():
    reports = {str(i): a_report(points=p) for i, p in enumerate([0.0, 7.9, 8.0, 79.9, 80.0])}
    bars = overview.distribution(reports)
    assert [bar.count for bar in bars] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert sum(bar.count for bar in overview.distribution({})) == 0


@pytest.mark.parametrize(("values", "median"), [([1.0], 1.0), ([1.0, 2.0], 1.5), ([3.0, 1.0, 2.0], 2.0)])
def test_quartiles(values, median):
    assert overview.figures(values)["median"] == median
    assert overview.figures([]) == {"count": 0}


def test_what_was_not_graded_is_in_no_rate():
    statuses = (score.OK, score.NEEDS_REVIEW, score.FAIL, score.TO_DO, score.NOT_GRADED, score.CRASHED)
    (rate,) = overview.rates({status: a_report(one_check(status)) for status in statuses})
    assert (rate.counts, rate.graded, rate.rate) == ({"ok": 2, "lost": 2, "todo": 1}, 5, 0.4)
    assert overview.rates({"a": a_report(one_check(score.NOT_GRADED))}) == []


def test_a_misconception_counts_once_for_a_student_whatever_it_costs():
    half, more, most = (
        Explanation("factor of y", f"y is {x} times", "handout/faq.md", "", (x,)) for x in (0.5, 1.7, 2.4)
    )
    reports = {
        "ada": a_report(one_check(score.FAIL, HINT), one_check(score.FAIL, HINT, name="b")),
        "bo": a_report(one_check(score.FAIL, half, HINT)),
        "cy": a_report(one_check(score.FAIL, more), one_check(score.FAIL, most, name="b")),
        "di": a_report(one_check(score.OK)),
    }
    found = overview.misconceptions(reports)
    assert [(one.who, one.name) for one in found] == [
        (("ada", "bo"), "acc-not-rescaled"),
        (("bo", "cy"), "factor of y"),
    ]
    assert found[0].says.endswith("when the running maximum grows")
    assert found[0].more.startswith("handout/flash_attention.md#online-softmax: Look at")


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (score.FAIL, "out of bounds", "Memory out of bounds"),
        (score.FAIL, "race", "A race"),
        (score.FAIL, finding.WRONG_VALUES, "Wrong values"),
        (score.FAIL, finding.TOO_MUCH_MOVED, "More memory"),
        (score.CRASHED, score.CRASHED, "The process crashes"),
        (score.FAIL, finding.OTHER, "Something else"),
        (score.NEEDS_REVIEW, score.NEEDS_REVIEW, ""),
    ],
)
def test_other_failures_have_a_kind(status, kind, says):
    told = overview.kind(one_check(status, kind=kind))
    assert told.startswith(says)
    assert bool(told) == bool(says)
    found = overview.others({"ada": a_report(one_check(status, kind=kind))})
    assert [one.who for one in found] == ([("ada",)] if says else [])


def test_every_kind_of_fault_is_the_simulators():
    kinds = {faults.MemoryFault.kind, *(fault.kind for fault in faults.MemoryFault.__subclasses__())}
    assert kinds == set(finding.FAULTS)
    assert kinds - {"memory fault"} <= set(overview.KINDS)


# pages


@pytest.mark.parametrize(
    ("value", "said"), [(0.0, "0 %"), (0.001, "< 1 %"), (0.5, "50 %"), (0.999, "> 99 %"), (1.0, "100 %")]
)
def test_all_and_none_are_exact(value, said):
    assert pages.percent(value) == said


def test_a_name_is_broken_where_its_words_join_and_stays_text():
    assert pages.breakable("a_b<i>") == "a_<wbr>b&lt;i&gt;"


def test_a_page_for_every_student(made):
    assert {path.stem for path in (made / "students").iterdir()} == {"ada", "bo", "cy", "di"}
    page = (made / "report.html").read_text()
    for name in ("ada", "bo", "cy", "di"):
        assert f'href="students/{name}.html"' in page
    assert "acc-not-rescaled" in page
    assert "needs review, 1 check" in page


def test_what_a_student_wrote_is_text_and_nothing_is_fetched(made):
    for path in [made / "report.html", *(made / "students").iterdir()]:
        page = path.read_text()
        assert "<img" not in page
        assert page.count("<script") == 1
        assert "&lt;script&gt;" in page or path.name == "report.html"
        links = re.findall(r'(?:src|href)="([^"]*)"', page)
        assert all(re.fullmatch(r"#[\w.:-]+|students/\w+\.html", link) for link in links)
        assert "default-src &#39;none&#39;" in page


def test_a_student_s_page_tells_neither_seed_nor_place(made):
    seed = str(results.known(made).seed)
    for path in (made / "students").iterdir():
        page = path.read_text()
        assert seed not in page
        assert "/class/" not in page
        assert "--seed" not in page
        others = {"ada", "bo", "cy", "di"} - {path.stem}
        assert not [name for name in others if re.search(rf"\b{name}\b", page)]
    assert "line_12 = 12</mark>" in (made / "students" / "cy.html").read_text()


def test_what_students_get_holds_nothing_of_the_staff_s(tmp_path):
    """Whatever a message, a traceback or a log says: no seed, no path of this machine, nobody else's name"""
    folder = tmp_path / "staff" / "r"
    seed = results.opened(folder, "auto", "auto", ()).seed
    said = (
        f"{tmp_path}/staff/class/x.py, {tmp_path}/staff/r/logs, {results.ROOT}/grade.py --seed {seed} and seed {seed}"
    )
    of = class_made.submission()
    told = class_made.report(of, {VALUES: Case("tile", score.FAIL, said)}, import_error=said, notes_to_staff=[said])
    settings = results.known(folder)
    handed = [Handed(name, tmp_path / "staff" / "class" / name) for name in ("adalovelace", "grace", "alan")]
    for one in handed[:2]:
        results.Results(folder, settings).keep(one, "key", told, said, of)
    results.Results(folder, settings).keep(
        handed[2], "", results.failed(f"{handed[2].path}: holds nothing; {said}"), said
    )
    tables.write(folder, tables.Form(tuple(handed)))
    assert classroom.main(["report", str(folder)]) == 0
    for one in handed:
        page = (folder / "students" / f"{one.name}.html").read_text()
        private = [str(seed), str(tmp_path), str(results.ROOT), *(other.name for other in handed if other != one)]
        assert not [text for text in private if text in page]
        assert "<pre>:" not in page


def test_the_handbook_hands_out_pages_and_no_logs():
    handbook = (results.ROOT / "assignment" / "README.md").read_text()
    step = handbook.partition("**7. Publish.**")[2].partition("**8.")[0]
    assert "`results/students/<name>.html`" in step
    assert "logs/<name>" not in step


def test_code_is_shown_once(tmp_path):
    of, doubt = class_made.submission(), Case("", score.NEEDS_REVIEW, class_made.DOUBT)
    class_made.keep(tmp_path / "r", "cy", class_made.report(of, {VALUES: doubt, FLASH: doubt}), of)
    assert classroom.main(["report", str(tmp_path / "r")]) == 0
    page = (tmp_path / "r" / "students" / "cy.html").read_text()
    assert page.count("line_12 = 12</mark>") == 1
    assert page.count("loads x_ptr[0]") == 2


def test_a_likely_cause_is_told_once_with_the_checks_that_it_explains(tmp_path):
    of, failed = class_made.submission(), Case("tile", score.FAIL, "y: wrong", hints=(HINT,))
    told = class_made.report(of, {FLASH: failed, VALUES: failed})
    class_made.keep(tmp_path / "r", "bo", told, of)
    assert classroom.main(["report", str(tmp_path / "r")]) == 0
    page = re.sub("<wbr>", "", (tmp_path / "r" / "students" / "bo.html").read_text())
    assert page.count("old accumulator is not rescaled") == page.partition("<h2>Log")[0].count("old accumulator") == 1
    cause = page.partition('id="cause-1"')[2].partition("</div>")[0]
    for name in (FLASH, VALUES):
        assert f'href="#{name}"' in cause
        assert f'<section id="{name}"' in page
    assert page.count('href="#cause-1"') == 2


def test_the_number_of_a_check_stands_before_its_name(made):
    page = (made / "report.html").read_text()
    table = page.partition('id="checks"')[2].partition("</table>")[0]
    assert re.search(r'<thead><tr><th scope="col" class="n">pass rate</th>', table)
    assert all(row.lstrip().startswith('<td class="n"') for row in re.findall(r"<tr>(<td.*)", table))


def test_the_distribution_has_upright_bars_and_quartiles(made):
    page = (made / "report.html").read_text()
    drawn = page.partition('class="histogram"')[2].partition("</svg>")[0]
    bars = re.findall(r'<rect class="good" x="[\d.]+" y="([\d.]+)" width="40" height="([\d.]+)"', drawn)
    assert len(bars) == overview.BINS
    assert all(float(y) + float(height) == 190 for y, height in bars)
    assert max(float(height) for _, height in bars) == 140
    (box,) = re.findall(r'class="box" x="([\d.]+)" y="8" width="([\d.]+)"', drawn)
    (median,) = re.findall(r'class="median" x1="([\d.]+)"', drawn)
    drawn_at = [float(box[0]), float(box[0]) + float(box[1])]
    assert drawn_at == pytest.approx([20 + 440 * points / 80 for points in (77.5, 80.0)], abs=0.1)
    assert float(median) == 460


def test_a_decision_shows_on_the_student_s_page(made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "copy")
    arguments = ["--decide", "cy", "rmsnorm", "12", "--reason", MARKUP, "--by", "Grace"]
    assert classroom.main(["review", str(folder), *arguments]) == 0
    assert classroom.main(["report", str(folder)]) == 0
    page = (folder / "students" / "cy.html").read_text()
    assert "Decided by the staff: rmsnorm: 12 points, by Grace: &lt;script&gt;" in page
    assert "72 of 80" in page


def test_results_without_reports(tmp_path, capsys):
    assert classroom.main(["report", str(tmp_path)]) == classroom.UNUSABLE
    assert "expected a folder" in capsys.readouterr().err


# the leaderboard


def timed(of=None, ratio=0.9, status=score.OK, share=None, **cases):
    """The report of a submission that was timed on a GPU; `cases` by the check's name."""
    of = of or class_made.submission()
    timing: Any = {**TIMING, "ratio": ratio}
    case = Case("large", status, measured="m", timing=timing, share=share)
    return class_made.report(of, {SPEED: case, **cases}, GPU)


@pytest.mark.parametrize(
    ("changes", "is_on"),
    [
        ({}, True),
        ({SPEED: Case("large", score.FAIL, timing=TIMING, measured="m", share=0.5)}, True),  # slow
        ({SPEED: Case("large", score.FAIL, "wrong values")}, False),
        ({FLASH: Case("", score.FAIL, "wrong")}, False),  # of another problem
        ({FLASH: Case("", score.TO_DO)}, False),
        ({VALUES: Case("", score.NEEDS_REVIEW, "look")}, False),
        ({"test_rmsnorm.py::test_forward_traffic": Case("", score.FAIL, "read twice")}, True),
        ({"test_rmsnorm.py::test_forward_mistakes": Case("", score.FAIL, "no ValueError")}, True),
    ],
)
def test_only_who_is_right_is_on_the_board(changes, is_on):
    assert leaderboard.is_right(timed(**changes)) == is_on


def test_who_was_not_asked_for_values_is_not_on_the_board():
    told = timed()
    speed = [problem for problem in told["problems"] if problem["name"] == "speed"]
    assert not leaderboard.is_right({**told, "problems": speed, "score": speed[0]["score"]})


def test_points_of_speed_that_were_not_graded_keep_nobody_off():
    told = timed()
    without = {"name": "speed", "status": score.NOT_GRADED, "score": 0.0, "claim": "Speed: no check"}
    speed = told["problems"][-1]
    timed_one = [check for check in speed["checks"] if check["name"] == SPEED]
    part = {**speed, "checks": [*timed_one, without], "score": timed_one[0]["score"]}
    rest = [*told["problems"][:-1], part]
    total = sum(problem["score"] for problem in rest)
    assert leaderboard.is_right({**told, "problems": rest, "score": total})


def test_a_decision_settles_a_doubt_or_takes_it_off_the_board():
    told = timed(**{VALUES: Case("", score.NEEDS_REVIEW, "look")})
    sha256 = decisions.sha256_of(told)
    for points, is_on in ((20, True), (12, False)):
        made = decisions.new("ada", "rmsnorm", points, "r", "b", sha256)
        assert leaderboard.is_right(decisions.applied(told, {"rmsnorm": made})) == is_on


def board(folder, *options):
    status = classroom.main(["leaderboard", str(folder), *options])
    return status, (folder / "leaderboard.html").read_text() if status == 0 else ""


def test_ratios_are_shown_with_spread_machine_and_day(tmp_path):
    wrong = timed(ratio=2.0, **{FLASH: Case("", score.FAIL, "wrong")})
    for name, told in (("slow", timed(ratio=0.84)), ("fast", timed(ratio=1.21)), ("wrong", wrong)):
        class_made.keep(tmp_path / "r", name, told, class_made.submission(), (Person(f"{name} {MARKUP}"),))
    status, page = board(tmp_path / "r")
    assert status == 0
    assert page.index("fast &lt;script&gt;") < page.index("slow &lt;script&gt;")
    assert "wrong &lt;script&gt;" not in page
    assert "1 was timed and is not" in page
    for said in ("NVIDIA H100 80GB HBM3", "× a copy", "1.21", "0.80–1.00", "full: 0.75", "202"):
        assert said in page


def test_pseudonyms_stay(tmp_path):
    for name in ("ada", "bo"):
        told = timed()
        class_made.keep(tmp_path / "r", name, told, class_made.submission(), (Person(f"Real {name}"),))
    _, first = board(tmp_path / "r", "--pseudonyms")
    _, second = board(tmp_path / "r", "--pseudonyms")
    assert first == second
    assert "Real" not in first
    assert not re.search(r"\bada\b", first)
    (tmp_path / "r" / leaderboard.PSEUDONYMS).write_text("[")
    assert board(tmp_path / "r", "--pseudonyms")[0] == classroom.UNUSABLE


def test_nothing_timed(made, capsys):
    assert board(made)[0] == classroom.UNUSABLE
    assert "grade with --device cuda" in capsys.readouterr().err


def test_pseudonyms_never_run_out(tmp_path):
    names = leaderboard.pseudonyms(tmp_path / "p.json", [str(i) for i in range(2500)])
    assert len(set(names.values())) == 2500


def test_who_has_the_name_of_another_is_told_apart():
    named = leaderboard.distinct({"a": "Zoë", "b": "Zoë", "c": "Ada", "d": ""})
    assert named == {"a": "Zoë (a)", "b": "Zoë (b)", "c": "Ada", "d": "d"}
