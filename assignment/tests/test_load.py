"""Grades at once are compared with grades alone, and whatever differs is found."""

import threading

import pytest

from assignment.bank.corpus import BUG, VARIANT, entries
from assignment.bank.run import load
from assignment.bank.run.load import GRADED, PROGRAM

ENTRIES = entries()
BOTH = {PROGRAM: GRADED, "test_a.py::test_x": "ok, 2", "test_a.py::test_y": "FAIL, 0"}
BROKEN = {PROGRAM: "exit status 3: what happened"}


@pytest.mark.parametrize(
    ("alone", "at_once", "lines"),
    [
        pytest.param(BOTH, BOTH, [], id="nothing"),
        pytest.param(
            BOTH,
            {**BOTH, "test_a.py::test_x": "timeout, 0"},
            ["test_a.py::test_x: alone ok, 2; at once timeout, 0"],
            id="a verdict",
        ),
        pytest.param(
            BOTH,
            {PROGRAM: GRADED, "test_a.py::test_x": "ok, 2"},
            ["test_a.py::test_y: alone FAIL, 0; at once no verdict"],
            id="a check that is missing",
        ),
        pytest.param(
            BROKEN,
            BROKEN,
            [f"{PROGRAM}: alone exit status 3: what happened; at once exit status 3: what happened"],
            id="a grader that fails both times",
        ),
    ],
)
def test_what_differs_is_said(alone, at_once, lines):
    assert load.differences(alone, at_once) == lines


def test_a_verdict_is_status_and_score():
    """Messages, margins and notes are no part of it"""
    check = {"name": "test_a.py::test_x", "status": "ok", "score": 0.75, "message": "words", "margin": 0.1}
    assert load.read({"problems": [{"checks": [check]}, {"checks": []}]}) == {"test_a.py::test_x": "ok, 0.75"}


def test_without_names_ten_of_each_are_taken_from_all_over_the_corpus():
    some = load.graded_entries([], ENTRIES)
    assert len({entry.name for entry in some}) == 21
    assert some[0].name == load.REFERENCE
    assert [sum(entry.kind == kind for entry in some) for kind in (VARIANT, BUG)] == [11, 10]
    assert len({entry.problem for entry in some if entry.kind == BUG}) >= 5


def test_cheats_are_not_among_those_of_a_name():
    """They may take all of a machine"""
    some = load.graded_entries(["weighted_sum"], ENTRIES)
    assert {entry.kind for entry in some} == {VARIANT, BUG}
    assert load.graded_entries(["no such name"], ENTRIES) == []


class Meeting:
    """Grades that are over once so many of them are under way; the last one is another submission's fault."""

    def __init__(self, at_once):
        self.alone, self._barrier, self._seen = True, threading.Barrier(at_once), 0

    def verdicts(self, entry):
        if self.alone:
            self._seen += 1
            self.alone = self._seen < 2
            return BOTH
        self._barrier.wait(10)
        return BOTH if entry.kind == VARIANT else BROKEN


def test_so_many_are_graded_at_once_and_compared_with_one_alone(capsys):
    variant, bug = (next(entry for entry in ENTRIES if entry.kind == kind) for kind in (VARIANT, BUG))
    assert load.compare([variant, bug], Meeting(4), at_once=4, times=2) == 6  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["alone"] * 2 + ["at"] * 4
    assert lines[2] == lines[4] == f"at once  {variant.name}: the same"
    assert f"{PROGRAM}: alone {GRADED}; at once exit status 3" in lines[3]


@pytest.mark.slow
def test_one_submission_at_once_with_itself():
    pairwise = load.graded_entries(["variants/weighted_sum_pairwise"], ENTRIES)
    grading = load.Grading(7, ("test_weighted_sum.py::test_forward_values",))
    assert load.compare(pairwise, grading, at_once=2, times=2) == 0
    assert grading.verdicts(pairwise[0])["test_weighted_sum.py::test_forward_values"].startswith("ok, ")
    assert load.Grading(7, ("no such check",)).verdicts(pairwise[0])[PROGRAM].startswith("exit status 2: ")
