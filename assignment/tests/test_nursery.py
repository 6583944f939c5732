"""The process that workers are forked from: one for all, replaced when it was killed, and gone with the grader."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from assignment.judge.pair import RecorderAndPlayer
from assignment.protocol.requests import Call
from assignment.sandbox import worker_client
from assignment.sandbox.stage import Stage
from assignment.submission import Submission
from assignment.system import here
from assignment.system.linux import nursery, starting
from tests.operators import called

ROOT = Path(__file__).resolve().parents[2]
X = torch.ones(3, 4)
CODE = """
def weighted_sum_forward(x):
    return x * 2.0

def weighted_sum(x):
    import time
    time.sleep(9)
"""


@pytest.fixture
def stage(monkeypatch):
    """A stage whose workers come from a nursery of their own."""
    ours = starting.Nursery()
    monkeypatch.setattr(worker_client, "_nursery", ours)
    stage = Stage(Submission({"cs336_kernels/__init__.py": b"", "cs336_kernels/weighted_sum.py": CODE.encode()}))
    yield stage
    stage.close()
    if ours._line:
        ours._line.close()
    for process in ours._processes:
        process.wait()


def recorded(pair):
    said, program = pair.record(Call(**called("weighted_sum_forward"), options={}), [X])
    return "ok" if program is not None and said and not said.ended else said


def parent_of(worker):
    worker._supervisor("strays")  # it has told its pid before
    return int(Path(f"/proc/{worker._pid.value}/stat").read_text().rpartition(") ")[2].split()[1])


def test_all_workers_have_one_parent(stage):
    pair = RecorderAndPlayer(stage, None)
    try:
        assert recorded(pair) == "ok"
        assert parent_of(pair.recorder) == parent_of(pair._player) != os.getpid()
    finally:
        pair.close()


def test_one_that_was_killed_is_replaced(stage):
    """Its workers go on; the next one comes from another"""
    pair, other = RecorderAndPlayer(stage, None), None
    try:
        assert recorded(pair) == "ok"
        os.kill(parent_of(pair.recorder), signal.SIGKILL)
        assert recorded(pair) == "ok"
        other = RecorderAndPlayer(stage, None)
        assert recorded(other) == "ok"
    finally:
        pair.close()
        if other:
            other.close()


@pytest.mark.slow
def test_one_that_hangs_is_replaced(stage, monkeypatch):
    """As where PyTorch lies on a disk that does not answer"""
    usual, start = worker_client.START_TIMEOUT_S, starting.Nursery._start

    def start_with_time_enough(self, *arguments, **named):
        worker_client.START_TIMEOUT_S = usual
        return start(self, *arguments, **named)

    monkeypatch.setattr(starting.Nursery, "wake", lambda self: None)
    monkeypatch.setattr(starting.Nursery, "_start", start_with_time_enough)
    pair, other = RecorderAndPlayer(stage, None), None
    try:
        assert recorded(pair) == "ok"
        os.kill(parent_of(pair.recorder), signal.SIGSTOP)
        monkeypatch.setattr(worker_client, "START_TIMEOUT_S", 1.0)
        other = RecorderAndPlayer(stage, None)
        assert recorded(other) == "ok"
        assert usual == worker_client.START_TIMEOUT_S  # another was started
    finally:
        pair.close()
        if other:
            other.close()


@pytest.mark.slow
def test_a_supervisor_that_is_stopped_and_killed_in_a_call_crashes_it(stage):
    """The grader asks it what the call has used just then"""
    pair = RecorderAndPlayer(stage, None)
    try:
        assert recorded(pair) == "ok"
        supervisor = pair.recorder._pid.value
        os.kill(supervisor, signal.SIGSTOP)
        killing = threading.Timer(1.5, os.kill, (supervisor, signal.SIGKILL))
        killing.start()
        with pytest.raises(worker_client.WorkerDied, match="killed"):
            pair.recorder.ask(Call(**called("weighted_sum"), options={}), [X])
        killing.join()
        assert recorded(pair) == "ok"
    finally:
        pair.close()


def test_why_it_does_not_start_is_told(stage, monkeypatch):
    monkeypatch.setattr(nursery, "__file__", "/nowhere/nursery.py")
    pair = RecorderAndPlayer(stage, None)
    try:
        with pytest.raises(worker_client.WorkerUnavailable, match="nowhere"):
            recorded(pair)
    finally:
        pair.close()


GRADER = """
from assignment.judge.pair import RecorderAndPlayer
from assignment.sandbox.stage import Stage
from assignment.submission import Submission
pair = RecorderAndPlayer(Stage(Submission({"cs336_kernels/__init__.py": b""})), None)
pair.recorder._supervisor("strays")
import os, signal
from pathlib import Path
worker = pair.recorder._pid.value
print(worker, Path(f"/proc/{worker}/stat").read_text().rpartition(") ")[2].split()[1], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_the_grader():
    """Also where that is killed: the nursery sees that its socket is closed"""
    done = subprocess.run([sys.executable, "-c", GRADER], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until, left = time.monotonic() + 10, [*map(int, done.stdout.split())]
    while any(map(is_alive, left)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [*map(is_alive, left)] == [False, False]


def is_alive(pid):
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def test_a_worker_that_was_stopped_before_it_told_its_pid_is_continued():
    ours = starting.Nursery()
    parent = subprocess.Popen(["/bin/sh", "-c", "sleep 30 & wait"])
    ours._processes.append(parent)
    try:
        while not (forked := here.children_of(parent.pid)):
            time.sleep(0.01)
        os.kill(forked[0], signal.SIGSTOP)
        while state_of(forked[0]) != "T":
            time.sleep(0.01)
        ours.wake()
        assert state_of(forked[0]) != "T"
    finally:
        os.kill(forked[0], signal.SIGKILL)
        parent.wait()


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
