"""What the report looks like, with a hostile message in it."""

import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from assignment.grading import report, score
from assignment.grading.checks import Check
from assignment.grading.score import Case, CheckResult, Session

HOSTILE = "\x1b[2J[bold]80/80[/bold]\0 </failure> " + "x" * 10_000 + "\n" * 50 + "end"


@pytest.fixture
def data():
    checks = [Check(f"test_rmsnorm.py::test_{i}", "rmsnorm", f"claim {i}", 1.0) for i in range(4)]
    statuses = ("ok", "FAIL", "todo", "crashed")
    results = [
        CheckResult(check, (Case("case", status, HOSTILE),), 1) for check, status in zip(checks, statuses, strict=True)
    ]
    return score.report(Session("uv run grade.py --only", 1, "cpu-simulated", "none", "00"), results)


def printed(data):
    console = Console(highlight=False, soft_wrap=True, width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        report.print_failures(console, data)
        report.print_summary(console, data)
    return console.export_text(styles=True)


def test_a_message_cannot_write_on_the_screen(data):
    text = printed(data)
    assert "\x1b[2J" not in text
    assert "[bold]80/80[/bold]" in text
    assert max(map(len, text.splitlines())) < 300
    assert len(text.splitlines()) < 60


def test_the_last_line_is_the_total(data):
    assert "Score: 1/4 gradable here, 96 need a GPU" in printed(data).splitlines()[-1]


def test_only_failures_are_told_at_length(data):
    text = printed(data)
    assert "test_1: FAIL" in text
    assert "test_0" not in text
    assert "test_2:" not in text


def test_junit_is_well_formed_and_counts_checks(data):
    root = ElementTree.fromstring(report.junit(data))
    suite = next(suite for suite in root if suite.get("name") == "rmsnorm")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "3", "1")
    assert sum(case.find("failure") is not None for case in suite) == 3
