"""Calls that do not come to their end: a recorder and a player are stopped in time, by their own time."""

import multiprocessing
import os
import re
import time

import pytest
import torch

from assignment.sandbox import slowness, worker_client
from assignment.sandbox.stage import GIVE_UP, GO_ON, WAIT
from assignment.sandbox.worker_client import WorkerDied
from assignment.tests.pairs import F, X, defined, result_of

pytestmark = pytest.mark.long_file

SPIN = "@triton.jit\ndef _spin(x_ptr):\n    i = 0\n    while tl.load(x_ptr) == tl.load(x_ptr):\n        i += 1\n"


def test_a_kernel_stopped_in_a_loop_names_its_line_and_round(at, monkeypatch):
    """What was printed before stays, and the stack of the interrupted process is not among it"""
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "play", 2.0)
    at.take(defined("print('hello')", "_spin[(1,)](x)", "return copied(x)", before=SPIN))
    with pytest.raises(WorkerDied) as caught:
        at.ask(F, X)
    first, place, loop = str(caught.value).splitlines()
    assert re.fullmatch(r"  at cs336_kernels/\w+\.py:\d+ in _spin: .*", place), first
    assert re.fullmatch(r"  in round [\d,]+ of `while tl.load\(x_ptr\) == tl.load\(x_ptr\)`.*", loop)
    assert at.pair.output() == "hello\n"


@pytest.mark.parametrize("before", ["breakpoint()", "_stops[(1,)](x)"], ids=["host code", "a kernel"])
def test_a_breakpoint_without_a_debugger_names_the_command(at, before):
    at.take(defined(before, "return copied(x)", before="@triton.jit\ndef _stops(x_ptr):\n    breakpoint()\n"))
    reply, _ = at.ask(F, X)
    assert "breakpoint() needs a debugger: run the command that the report calls debug" in reply.message


@pytest.mark.parametrize(
    ("lines", "before", "role"),
    [
        pytest.param(("while True:", "    pass"), "", "record", marks=pytest.mark.slow),
        pytest.param(("import time", "time.sleep(99)"), "", "record", marks=pytest.mark.slow),
        (("_spin[(1,)](x)", "return copied(x)"), SPIN, "play"),
    ],
    ids=["computes for ever", "sleeps for ever", "a kernel that never ends"],
)
def test_a_call_without_end_is_stopped(at, lines, before, role, monkeypatch):
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, role, 2.0)
    at.take(defined(*lines, before=before))
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="no answer within 2 s") as caught:
        at.ask(F, X)
    assert caught.value.status == "timeout"
    assert time.monotonic() - began < 20
    at.take(defined("return copied(x)"))
    assert torch.equal(result_of(at), X)


@pytest.mark.parametrize("factor", [1.0, pytest.param(3.0, marks=pytest.mark.slow)])
def test_a_slow_machine_lengthens_the_deadline(at, factor, monkeypatch):
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 2.0)
    monkeypatch.setattr(worker_client, "slowness", lambda: factor)
    spend = ("import time", "began = time.process_time()", "while time.process_time() - began < 4.0:", "    pass")
    at.take(defined(*spend, "return copied(x)"))
    if factor == 1.0:
        with pytest.raises(WorkerDied, match="no answer within 2 s"):
            at.ask(F, X)
    else:
        assert torch.equal(result_of(at), X)


@pytest.mark.parametrize(("samples", "is_stopped"), [([3.0, 1.0, 1.0, 1.0], True), ([1.0, 3.0, 3.0, 3.0], False)])
def test_one_slow_moment_is_not_a_slow_machine(at, samples, is_stopped, monkeypatch):
    """Nor is one quick moment a quick one: the median of those while the call runs counts"""
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 2.0)
    taken = iter([*samples, *[1.0 if is_stopped else 3.0] * 99])
    monkeypatch.setattr(worker_client, "slowness", lambda: next(taken))
    spend = ("import time", "began = time.process_time()", "while time.process_time() - began < 3.5:", "    pass")
    at.take(defined(*spend, "return copied(x)"))
    if is_stopped:
        with pytest.raises(WorkerDied, match="no answer within 2 s"):
            at.ask(F, X)
    else:
        assert torch.equal(result_of(at), X)


def test_a_quiet_core_is_not_slow(monkeypatch):
    """And one that takes longer is as slow as it takes longer, up to a limit"""
    clock = iter([0.0, 0.09, 0.0, 0.2, 0.0, 9.0])
    monkeypatch.setattr(slowness, "ROUNDS", 1)
    monkeypatch.setattr(slowness.time, "thread_time", lambda: next(clock))
    assert [slowness.slowness() for _ in range(3)] == [1.0, 2.0, slowness.MOST]


def test_a_call_that_waits_takes_no_time_and_goes_on(at, monkeypatch):
    """Held back for longer than its deadline: it waits to be released, and then computes for a while"""
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 2.0)
    monkeypatch.setattr(worker_client, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(worker_client, "slowness", lambda: 1.0)
    released = "import signal, time\nreleased = []\nsignal.signal(signal.SIGCONT, lambda *_: released.append(1))\n"
    spend = ("began = time.process_time()", "while time.process_time() - began < 0.5:", "    pass")
    at.take(defined("while len(x) > 1 and not released:", "    pass", *spend, "return copied(x)", before=released))
    assert torch.equal(result_of(at, X[:1]), X[:1])  # it is connected
    asked: list[float] = []

    def turn(spent_s):
        asked.append(spent_s)
        return WAIT if len(asked) < 26 else GO_ON

    monkeypatch.setattr(at.stage, "turn", turn, raising=False)
    assert torch.equal(result_of(at), X)
    assert len(asked) > 25, "it was not held"
    assert asked[:27][-1] - asked[0] < 1.0, "it went on while it was held"


def test_a_call_that_nobody_needs_is_ended(at, monkeypatch):
    at.take(defined("while True:", "    pass"))
    monkeypatch.setattr(at.stage, "turn", lambda spent_s: GIVE_UP, raising=False)
    with pytest.raises(WorkerDied, match="nobody needs its answer") as caught:
        at.ask(F, X)
    assert not caught.value.ran
    monkeypatch.undo()
    at.take(defined("return copied(x)"))
    assert torch.equal(result_of(at), X)


HALF_A_REPLY = """
import os, stat, time

def weighted_sum_forward(x):
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, b"K33")
        except OSError:
            pass
    time.sleep(99)
"""


def test_a_reply_that_has_begun_has_to_end(at, monkeypatch):
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 2.0)
    at.take(HALF_A_REPLY)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="no answer within 2 s"):
        at.ask(F, X)
    assert time.monotonic() - began < 20


def busy(until):
    os.setsid()  # the kernel shares the processor out by sessions
    while time.monotonic() < until:
        pass


@pytest.mark.slow
def test_a_busy_neighbour_changes_nothing(at, monkeypatch):
    """The processor's time counts, so a call that takes most of its own takes long by the clock"""
    monkeypatch.setitem(worker_client.CALL_TIMEOUT_S, "record", 2.0)
    spend = ("import time", "began = time.process_time()", "while time.process_time() - began < 1.2:", "    pass")
    at.take(defined(*spend, "return copied(x)"))
    at.record(F, X)  # it is connected
    context = multiprocessing.get_context("fork")
    neighbours = [
        context.Process(target=busy, args=(time.monotonic() + 20,), daemon=True)
        for _ in range(3 * (os.cpu_count() or 2))
    ]
    for neighbour in neighbours:
        neighbour.start()
    try:
        began = time.monotonic()
        said, _ = at.record(F, X)
        took = time.monotonic() - began
    finally:
        for neighbour in neighbours:
            neighbour.kill()
    assert said.ended is None
    assert took > 2.0, "the neighbours were not busy enough to tell"
