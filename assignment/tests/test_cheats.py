"""The bank of cheats is whole, what is said of their runs follows from them, and the runner sees what a run leaves."""

import ast
import importlib
import json
import math
import multiprocessing
import re
import socket
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from assignment.bank import cheats
from assignment.bank.cheats import CLASSES, HARMLESS, LOSES, QUICK, REFUSED, ZERO, Cheat
from assignment.bank.corpus import entries
from assignment.bank.run import cheats_page, grade, held, matrix, results_page, whole_runs
from assignment.bank.run.judging import GradingJob, Result, Verdict
from assignment.bank.run.verdicts import VerdictRow, judge
from assignment.confined import supervisor
from assignment.system import here
from assignment.verdict import checks

ENTRIES = {entry.name: entry for entry in entries() if entry.cheat}
BANK = {name: entry.cheat for name, entry in ENTRIES.items() if entry.cheat}
DECLARED = checks.declared()
PROBLEM_OF = {check.name: check.problem for check in DECLARED}
FORWARD, BACKWARD = QUICK["weighted_sum"]
ELSEWHERE = cheats.BYSTANDERS["weighted_sum"]
LOST = Verdict(
    "FAIL", 0.0, "", "result 1 of 1 comes from aten::mv at cs336_kernels/cheat.py:20 in weighted_sum_forward"
)
KEPT = Verdict("ok", 0.1)
DOUBTED = Verdict("needs review", 0.1, "", "kernel f loads x_ptr[0], which was computed by aten::clamp")


def run(*verdicts: Verdict, **more) -> Result:
    names = (FORWARD, BACKWARD, ELSEWHERE)
    return Result("cheats/x", 0, "", "key", 3.0, dict(zip(names, verdicts, strict=False)), **more)


def cheat(expected: str = ZERO, loses: tuple[str, ...] = (), evidence: str = r"aten::mv.*cheat\.py:\d+") -> Cheat:
    return Cheat("x", "weighted_sum", "", expected, loses, evidence)


def test_every_class_of_the_threats_has_cheats():
    assert len(BANK) >= 60
    assert all(re.fullmatch(r"[a-z0-9_]+", cheat.name) for cheat in BANK.values())
    assert {cheat.group for cheat in BANK.values()} == set(CLASSES)


@pytest.mark.parametrize("name", BANK)
def test_a_cheat_says_what_must_come_of_checks_that_are_run(name):
    cheat = BANK[name]
    own = (cheat.problem,) if cheat.slow else cheats.quick(cheat.problem)
    run = checks.select(DECLARED, list(cheat.only or own))
    assert {check.problem for check in run} == {cheat.problem}
    assert PROBLEM_OF[cheat.bystander] != cheat.problem
    assert (cheat.expected == LOSES) == bool(cheat.loses)
    assert all(any(part in check.name for check in run) for part in cheat.loses)
    assert cheat.evidence or cheat.expected in (HARMLESS, cheats.OWN_LOSS)
    re.compile(cheat.evidence)


def test_what_is_slow_is_in_the_bank():
    names = {cheat.name for cheat in BANK.values()}
    banks = [
        importlib.import_module(f"{cheats.__name__}.{module}") for modules in CLASSES.values() for module in modules
    ]
    assert {name for bank in banks for name in bank.SLOW} <= names


@pytest.mark.parametrize("name", BANK)
def test_a_cheats_modules_are_python(name):
    files = ENTRIES[name].submission.files
    assert files.keys() > cheats.bugs.base().keys()
    ast.parse(files[f"cs336_kernels/{BANK[name].file}"])
    ast.parse(files["cs336_kernels/__init__.py"])


def test_what_is_expected_is_no_finding():
    assert held.wrong(cheat(), run(LOST, LOST, KEPT), PROBLEM_OF) == []
    assert held.wrong(cheat(LOSES, ("test_forward_values",)), run(LOST, KEPT, KEPT), PROBLEM_OF) == []
    assert held.wrong(cheat(HARMLESS), run(KEPT, KEPT, KEPT), PROBLEM_OF) == []
    assert held.wrong(cheat(cheats.REVIEWED), run(LOST, DOUBTED, KEPT), PROBLEM_OF) == []
    assert held.came(cheat(cheats.REVIEWED), run(DOUBTED, DOUBTED, KEPT), PROBLEM_OF) == "needs review in 2 of 2 checks"
    assert held.wrong(cheat(cheats.OWN_LOSS, evidence=""), run(LOST, KEPT, KEPT), PROBLEM_OF) == []
    refused = run(status=2, said="grade.py: over 1 MiB of Python")
    assert held.wrong(cheat(REFUSED, evidence="1 MiB"), refused, PROBLEM_OF) == []


@pytest.mark.parametrize(
    ("expected", "result", "finding"),
    [
        (cheat(), run(LOST, KEPT, KEPT), f"keeps {BACKWARD}"),
        (cheat(), run(LOST, LOST, LOST), f"costs points elsewhere: {ELSEWHERE}"),
        (cheat(evidence="numpy"), run(LOST, LOST, KEPT), "no evidence like 'numpy'"),
        (cheat(LOSES, ("test_forward_values",)), run(KEPT, LOST, KEPT), f"keeps {FORWARD}"),
        (cheat(LOSES, ("forward",), "numpy"), run(LOST, LOST, KEPT), "no evidence"),
        (cheat(HARMLESS), run(KEPT, LOST, KEPT), f"costs its author {BACKWARD}"),
        (cheat(cheats.REVIEWED), run(KEPT, DOUBTED, KEPT), f"keeps {FORWARD}"),
        (cheat(), run(LOST, replace(LOST, status="grader error"), KEPT), "the grader failed"),
        (cheat(), run(LOST, LOST, KEPT, trouble=["1 processes left: sleep"]), "1 processes left"),
        (cheat(), run(status=3, said="Traceback"), "ended with 3: Traceback"),
        (cheat(), run(status=None), "ended with None"),
        (cheat(REFUSED), run(LOST, LOST, KEPT), "was to be refused"),
    ],
)
def test_what_is_not_expected_is_a_finding(expected, result, finding):
    assert any(finding in line for line in held.wrong(expected, result, PROBLEM_OF))
    row = VerdictRow(replace(ENTRIES["cheats/no_kernel/sdpa"], cheat=expected), (result,))
    assert any(finding in line for line in judge([row], DECLARED))


def test_who_is_wrong_in_all_that_it_replaces_gains_nothing():
    """Whatever is said; the problem's other functions keep what is theirs, and callers' mistakes may be refused"""
    forward = Cheat("x", "weighted_sum", "def weighted_sum_forward(x, weight): ...", ZERO, evidence="seen")
    names = [check.name for check in DECLARED if check.problem == "weighted_sum"]
    lost = Verdict("FAIL", math.inf, message="wrong")
    mine = {name: lost for name in names if checks.place(name)[0] == "weighted_sum_forward" and "mistakes" not in name}
    kept = {name: Verdict("ok", 0.0) for name in names if name not in mine}
    result = replace(run(LOST, LOST, KEPT), verdicts={**mine, **kept})
    assert held.wrong(forward, result, PROBLEM_OF) == []
    one = next(iter(mine))
    result = replace(result, verdicts={**mine, **kept, one: Verdict("ok", 0.0)})
    assert any(one in line for line in held.wrong(forward, result, PROBLEM_OF))


def test_a_mistake_of_the_bank_does_not_look_like_a_cheat_that_was_held():
    broken = replace(LOST, message=f"{LOST.message}\nRuntimeError: {cheats.MISTAKE}: NameError('RIGHT')")
    assert any("NameError" in line for line in held.wrong(cheat(), run(broken, broken, KEPT), PROBLEM_OF))


def test_limits_alone_are_not_asked_for_what_they_cannot_hold():
    confined = replace(cheat(HARMLESS), confined=True)
    leaked = run(LOST, LOST, KEPT, rung="rlimits")
    assert held.wrong(confined, leaked, PROBLEM_OF) == []
    assert held.wrong(confined, replace(leaked, rung="landlock"), PROBLEM_OF) != []
    assert held.wrong(cheat(HARMLESS), leaked, PROBLEM_OF) != []


def test_a_lost_check_that_was_not_run_needs_no_evidence():
    given_up = replace(LOST, ran=False)
    both = cheat(LOSES, ("forward_values", "backward_values"))
    assert held.wrong(both, run(LOST, given_up, KEPT), PROBLEM_OF) == []


def test_the_page_counts_what_was_held_on_each_rung():
    entry = replace(ENTRIES["cheats/harness/exit_0"], cheat=replace(cheat(), group="harness", confined=True))
    results = [
        run(LOST, LOST, KEPT, rung="bubblewrap"),
        run(KEPT, KEPT, KEPT, rung="landlock"),
        run(KEPT, KEPT, KEPT, rung="rlimits"),
    ]
    rows = [VerdictRow(entry, tuple(results))]
    text = cheats_page.section(rows, DECLARED)
    assert "| harness | 1 of 1 | 0 of 1 | 0 of 1, 1 open |" in text
    assert "Open:\n\n- harness/x\n" in text
    assert "complains of:\n\n- cheats/harness/exit_0: keeps " in text
    text = cheats_page.render(rows, DECLARED)
    assert "| harness/x | weighted_sum | scores 0 | loses 2 of 2 checks: FAIL; keeps every point |" in text


def test_quick_leaves_out_the_slow_ones_and_rungs_are_for_the_sandboxs_classes():
    asked = grade.BankGrade(quick=True, sandbox=("landlock", "rlimits"))
    jobs = grade.jobs_of(ENTRIES["cheats/harness/exit_0"], asked)
    assert [job.sandbox for job in jobs] == ["landlock", "rlimits"]
    assert [job.sandbox for job in grade.jobs_of(ENTRIES["cheats/no_kernel/sdpa"], asked)] == ["landlock"]
    assert grade.jobs_of(ENTRIES["cheats/denial/sleep"], asked) == []


def report(
    tmp_path, score: float, printed: str, junit: str = "<testsuites />", message: str = ""
) -> tuple[Any, list[str]]:
    check = {"name": FORWARD, "score": score, "max_score": 2.0, "status": "ok", "message": message}
    entry = {"checks": [check]}
    data = {"score": 2.0, "max_score": 2.0, "gradable": 2.0, "device": "cpu", "problems": [entry], "practice": []}
    (tmp_path / "report.json").write_text(json.dumps(data))
    (tmp_path / "report.xml").write_text(junit)
    (tmp_path / "stdout").write_text(printed)
    return whole_runs.read_report(tmp_path, GradingJob(ENTRIES["cheats/harness/exit_0"], 0, FORWARD))


def test_an_honest_report_is_read(tmp_path):
    data, wrong = report(tmp_path, 2.0, "ok\n\nScore: 2/2\n")
    assert data["score"] == 2.0
    assert wrong == []


@pytest.mark.parametrize(
    ("score", "printed", "junit", "finding"),
    [
        (2.0, "Score: 80/80\nScore: 2/2\n", "<testsuites />", "printed ['Score: 80/80', 'Score: 2/2']"),
        (2.0, "\x1b[2J\nScore: 2/2\n", "<testsuites />", r"printed '\x1b'"),
        (2.0, "Score: 2/2\n", "<testsuites>\x07</testsuites>", "cannot be read"),
        (float("nan"), "Score: 2/2\n", "<testsuites />", "cannot be read"),
        (1.0, "Score: 2/2\n", "<testsuites />", "not the sum"),
        (2.0, "Score: 2/2\n" + "x" * (1 << 20), "<testsuites />", "bytes"),
    ],
)
def test_a_forged_report_is_trouble(tmp_path, score, printed, junit, finding):
    assert any(finding in line for line in report(tmp_path, score, printed, junit)[1])


def test_a_message_that_a_terminal_would_obey_is_trouble(tmp_path):
    assert report(tmp_path, 2.0, "Score: 2/2\n", message="a\nb")[1] == []
    assert report(tmp_path, 2.0, "Score: 2/2\n", message="\x1b[2J")[1] == [r"reported '\x1b'"]


DAEMON = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
time.sleep({before_s})
if os.fork():
    os._exit(0)
time.sleep(1000)
"""


def adopt_and_look(found, before_s: float) -> None:
    look = supervisor.descendants

    def look_slowly(of: int | None = None, at_most: int = supervisor.MAX_FOUND) -> list[int]:
        pids = look(of, at_most)
        time.sleep(before_s)  # the daemon's parent, which we have seen, ends
        return pids

    here.adopt_orphans()
    subprocess.run([sys.executable, "-c", DAEMON.format(before_s=before_s / 2)], check=True)
    supervisor.descendants = look_slowly
    found.put((whole_runs.leftovers(), look()))


@pytest.mark.parametrize("before_s", [0.0, 0.4])
def test_a_daemon_is_seen_and_ended(before_s):
    fork = multiprocessing.get_context("fork")
    found = fork.Queue()
    process = fork.Process(target=adopt_and_look, args=(found, before_s))
    process.start()
    ((left,), remaining) = found.get(timeout=30)
    process.join(10)
    assert "1 processes left" in left
    assert remaining == []


def test_bait_that_was_taken_is_seen(tmp_path):
    with whole_runs.Bait(tmp_path) as bait:
        bait.lay_out(BANK["cheats/reading/network"], ENTRIES["cheats/reading/network"].submission.files)
        source = (tmp_path / "submission" / "cs336_kernels" / "cheat.py").read_text()
        port = int(re.findall(r'int\("(\d+)"\)', source)[0])
        assert bait.taken() == []
        with socket.create_connection(("127.0.0.1", port)):
            (tmp_path / "tmp" / f"cheat-{bait.token}").write_text("here")
            assert bait.taken() == ["reached by TCP", f"left {tmp_path}/tmp/cheat-{bait.token}"]


@pytest.mark.slow
def test_a_cheat_is_graded_by_the_real_program():
    """One that ends its process, in one run of grade.py: crashed, nobody else touched, nothing left"""
    entry, cheat = ENTRIES["cheats/harness/exit_0"], BANK["cheats/harness/exit_0"]
    (job,) = grade.jobs_of(entry, grade.BankGrade(quick=True))
    (result,) = whole_runs.judge_all([job], "cpu", processes=1)
    assert held.wrong(cheat, result, PROBLEM_OF) == []
    assert result.verdicts["test_weighted_sum.py::test_value"].status == "crashed"
    assert held.came(cheat, result, PROBLEM_OF) == "loses 1 of 1 checks: crashed"


def test_known_tricks_have_a_cheat_each():
    """Forty documented ones or more, each by the name of its cheat or of its race"""
    page = results_page.PAGE.with_name("tricks.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and "---" not in line][1:]
    named = [name for _, _, names, _ in rows for name in names.split(", ")]
    racers = (cheats.HERE / "racing.py").read_text() + (cheats.HERE / "racing_kernels.py").read_text()
    assert len(rows) >= 40
    assert all(f"cheats/{name}" in BANK or f'"{name.removeprefix("races: ")}"' in racers for name in named), named


def test_the_committed_page_counts_every_cheat():
    """But for those of problems that are not in it yet"""
    text, known = results_page.section(cheats_page.TITLE), results_page.rows_of(matrix.TITLE)
    n = sum(entry.problem in known for entry in ENTRIES.values())
    assert f"\n{n} cheats." in text, "run `python -m assignment.bank grade cheats/` and commit results.md"
