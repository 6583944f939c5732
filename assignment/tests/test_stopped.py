"""Host code that never ends: its loop is named, and two checks that end in it cost their function's others less."""

import json
import os
import textwrap

import pytest

from assignment.judge.pool import Pool
from assignment.judge.shared import LESS_PATIENCE
from assignment.sandbox import stopped, worker_client
from assignment.sandbox.stage import Stage
from assignment.sandbox.worker_client import WorkerDied
from assignment.submission import Submission
from assignment.tests.forked import python
from assignment.tests.graded import ROOT
from assignment.tests.pairs import F, X, defined
from assignment.verdict import checks

FILE = "cs336_kernels/x.py"
PATH = {"PYTHONPATH": str(ROOT)}
SOURCE = textwrap.dedent("""\
    def outer(x):
        for i in range(3):
            while True:
                x = step(
                    x,
                )

    def step(x):
        return x

    def plain(x):
        sleep(1e9)
    """)


def stack(*frames, others=""):
    return others + "".join(f'  File "/s/{FILE}", line {line} in {name}\n' for line, name in frames)


@pytest.mark.parametrize(
    ("frames", "place", "alike"),
    [
        ([(4, "outer")], [f"at {FILE}:4 in outer", f"in the loop of {FILE}:3: while True:"], f"{FILE}:2"),
        ([(5, "outer")], [f"at {FILE}:5 in outer", f"in the loop of {FILE}:3: while True:"], f"{FILE}:2"),
        ([(2, "outer")], [f"at {FILE}:2 in outer", f"in the loop of {FILE}:2: for i in range(3):"], f"{FILE}:2"),
        (
            [(9, "step"), (4, "outer")],
            [f"at {FILE}:9 in step", f"in the loop of {FILE}:3: while True:"],
            f"{FILE}:2",
        ),
        ([(12, "plain")], [f"at {FILE}:12 in plain"], f"{FILE}:12"),
        ([(99, "plain")], [f"at {FILE}:99 in plain"], f"{FILE}:99"),
        ([], [], ""),
    ],
)
def test_the_loop_around_a_line_is_named(frames, place, alike):
    sources = {FILE: SOURCE}
    assert [line.strip() for line in stopped.place(stack(*frames), sources).text.splitlines()] == place
    assert stopped.alike(stack(*frames), sources) == alike
    launching = stack(*frames, others=f'  File "/r/{stopped.LAUNCHES}", line 3 in run\n')
    assert stopped.alike(launching, sources) == ""


def test_a_file_that_there_is_not_is_no_place():
    made_up = '  File "/s/cs336_kernels/\x1b[2J.py", line 3 in f\n  File "cs336_kernels/y.py", line 1 in f\n'
    assert stopped.place(made_up, {FILE: SOURCE}).text == stopped.alike(made_up, {FILE: SOURCE}) == ""


LOOPS = {
    "nothing is called": ("number = 0", "while True:", "    number += 1"),
    "a function is called": ("import math", "while True:", "    math.sqrt(2.0)"),
    "it sleeps": ("import time", "while True:", "    time.sleep(9.0)"),
    "it closes its streams": ("import os", "os.close(1)", "while True:", "    pass"),
}


@pytest.mark.parametrize("lines", LOOPS.values(), ids=LOOPS)
def test_the_message_has_the_loop(at, lines, monkeypatch):
    """Whatever Python knows of lines between calls"""
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 1.0)
    heard: list[str] = []
    monkeypatch.setattr(at.stage, "hung", heard.append, raising=False)
    at.take(defined(*lines))
    with pytest.raises(WorkerDied) as caught:
        at.ask(F, X)
    first, place, loop = str(caught.value).splitlines()
    assert first == "no answer within 1 s; the call was stopped"
    assert place.startswith("  at cs336_kernels/weighted_sum.py:")
    assert loop.startswith("  in the loop of cs336_kernels/weighted_sum.py:")
    assert loop.endswith("while True:")
    assert heard == [loop.removeprefix("  in the loop of ").removesuffix(": while True:")]


@pytest.fixture
def pool():
    held = Pool(Submission({"cs336_kernels/__init__.py": b""}), "cpu", 1, 1)
    yield held
    held.close()


def test_two_checks_that_hang_in_one_place_cost_the_others_of_their_function_less(pool):
    own = [check for check in checks.declared() if check.function == "rmsnorm_forward"]
    other = next(check for check in checks.declared() if check.function == "rmsnorm_backward")
    patience = []
    for check, place in zip(own[:4], ("a:1", "a:2", "", "a:1"), strict=True):
        pool.shared.check = check.name
        patience.append(pool.stage.patience())
        pool.stage.hung(place)
    assert patience == [1.0] * 4
    for check, expected in ((own[4], LESS_PATIENCE), (other, 1.0)):
        pool.shared.check = check.name
        assert pool.stage.patience() == expected
    pool.replace(pool.submission, 1)
    pool.shared.check = own[4].name
    assert pool.stage.patience() == 1.0


PROGRAM = """
import sys
from assignment.sandbox import worker_client
worker_client.CALL_TIMEOUT_S["record"] = 5.0
worker_client.slowness = lambda: 1.0
from assignment.commands import cli
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_grade_of_what_hangs(submission, tmp_path):
    """Of one function, in host code: two checks take their limit, the others a fifth"""
    path = submission / "cs336_kernels/weighted_sum.py"
    text = path.read_text()
    at = text.index('"""', text.index('"""', text.index("def weighted_sum_forward(")) + 3) + 3
    path.write_text(f"{text[:at]}\n    while True:\n        pass\n{text[at:]}")
    options = [
        "--only",
        "weighted_sum_forward",
        "--jobs",
        "1",
        "--device",
        "cpu",
        "--json",
        str(tmp_path / "report.json"),
    ]
    done = python("-c", PROGRAM, str(submission), *options, timeout=300, cwd=tmp_path, env=os.environ | PATH)
    assert done.returncode == 0, done.stderr
    problems = json.loads((tmp_path / "report.json").read_text())["problems"]
    own = [check for problem in problems for check in problem["checks"] if check["status"] == "timeout"]
    hung = [check["message"] for check in own if check["function"] == "weighted_sum_forward"]
    assert len(hung) > 4
    assert sum("no answer within 5 s; the call" in message for message in hung) == 2
    assert sum("no answer within 1 s, a fifth of the limit" in message for message in hung) == len(hung) - 2
    assert all("in the loop of cs336_kernels/weighted_sum.py" in message for message in hung)


def test_a_stage_of_nobody_is_patient():
    with_no_pool = Stage(Submission({"cs336_kernels/__init__.py": b""}))
    try:
        assert with_no_pool.patience() == 1.0
    finally:
        with_no_pool.close()
