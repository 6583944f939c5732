"""Processes of a grade are killed from outside: its report is complete and right, and nothing is left behind.

A hundred times by `python -m assignment.bank signals`; here once for each kind of process.
"""

import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from assignment.bank.run import signals
from assignment.bank.run.processes import descendants, left_behind

SEED = 7
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed():
    outcome, report = signals.run(SEED)
    assert not outcome.faults
    assert report is not None
    assert report["score"] == 10
    return outcome, report


@pytest.mark.parametrize("role", signals.ROLES)
def test_a_killed_process_costs_at_most_the_call_that_it_was_at(undisturbed, role):
    moment = undisturbed[0].seconds * random.uniform(0.1, 0.4)  # early: a grade that has ended cannot be hit
    strike = signals.Strike(moment, role, signal.SIGKILL)
    outcome = signals.compared(*signals.run(SEED, [strike]), undisturbed[1])
    assert outcome.hits == [f"{role} SIGKILL"]
    assert not outcome.faults
    assert outcome.lost <= 1 + (role == "supervisor")  # one beside it may lose the new worker's first call


@pytest.mark.parametrize("role", ["judge", "supervisor"])
def test_a_stopped_process_is_set_going_again(undisturbed, role):
    """Its own time is all that is lost"""
    strike = signals.Strike(undisturbed[0].seconds * 0.1, role, signal.SIGSTOP)
    outcome = signals.compared(*signals.run(SEED, [strike]), undisturbed[1])
    assert outcome.hits == [f"{role} SIGSTOP"]
    assert (outcome.faults, outcome.lost) == ([], 0)


def test_a_killed_grader_leaves_no_process(tmp_path):
    command = [sys.executable, str(signals.ROOT / "grade.py"), str(signals.ROOT / "assignment/reference")]
    command += ["--only", signals.ONLY, "--jobs", "2"]
    grade = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)})
    while not (seen := descendants(grade.pid)) or not signals.by_role(grade.pid, seen)["judge"]:
        assert grade.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)  # each judge has begun
    seen = descendants(grade.pid)
    grade.kill()
    grade.wait()
    assert not [fault for fault in left_behind(tmp_path, ("grade-",), seen) if "process" in fault]


def test_a_wrong_report_is_seen(undisturbed):
    """A check that was not hit and is not as it was, points for one that was, a sum that is none"""
    outcome, report = undisturbed
    check = report["problems"][0]["checks"][0]
    rest: Any = [{**report["problems"][0], "checks": [other, *report["problems"][0]["checks"][1:]]} for other in (
        {**check, "status": "FAIL", "score": 0.0},
        {**check, "status": "crashed"},
        {**check, "name": "another"},
        {**check, "status": "crashed", "score": 0.0},
    )]  # fmt: skip
    for problem in rest:
        other_report: Any = {**report, "problems": [problem]}
        assert signals.compared(outcome, other_report, report).faults
