"""`--watch`: what a save sets off, and what cannot end it."""

import copy
import json
import multiprocessing
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.sharedctypes import RawValue
from pathlib import Path

import pytest
from rich.console import Console

from assignment import failure
from assignment.commands import next_check, watch
from assignment.commands.run import GraderRun
from assignment.commands.settings import Settings
from assignment.judge.pool import Pool
from assignment.judge.shared import FATAL, LONG_S
from assignment.sandbox.stage import GIVE_UP, GO_ON, WAIT
from assignment.sandbox.worker_client import Worker
from assignment.submission import Submission, UnusableSubmission
from assignment.tests.graded import heed_interrupts
from assignment.verdict import checks

ROOT = Path(__file__).resolve().parents[2]
CHECK = checks.declared()[0].name
PATIENCE_S = 60.0  # for what takes less than a second on a quiet machine


def test_an_answer_to_somebody_else_is_passed_over():
    """A judge that was killed left it in the socket that all judges of the worker share"""
    worker, (ours, theirs) = Worker.__new__(Worker), socket.socketpair(type=socket.SOCK_SEQPACKET)
    worker._control, worker._pid = ours, RawValue("i", 0)

    def answer():
        message = json.loads(theirs.recv(1 << 16))
        theirs.sendall(json.dumps({"strays": [], "number": message["number"]}).encode())

    with ours, theirs:
        theirs.sendall(json.dumps({"strays": ["of another"], "number": 1}).encode())
        thread = threading.Thread(target=answer)
        thread.start()
        assert worker._supervisor("strays")["strays"] == []
        thread.join()


@pytest.fixture
def pool():
    """A pool without workers."""
    made = Pool(Submission({"a.py": b""}), "cpu", seed=1, jobs=0)
    yield made
    made.close()


def test_what_cannot_be_staged_is_said_and_watched_on(capsys, pool, monkeypatch):
    def full(submission, seed):
        raise UnusableSubmission("no room")

    monkeypatch.setattr(pool, "replace", full)
    watching = watch.SaveWatch(Settings(), next_check.Following(), GraderRun([], pool, Console()))
    watching._start(watch.Seen(Submission({})), set())
    assert capsys.readouterr().out == "no room\n"
    assert watching._process is None


def test_a_run_in_which_the_grader_fails_says_so(capfd, pool):
    def broken(*arguments):
        raise IndexError("planted")

    watching = watch.SaveWatch(Settings(), broken, GraderRun([], pool, Console()))
    process = multiprocessing.get_context("fork").Process(target=watching._run_once, args=(set(),))
    process.start()
    process.join()
    assert process.exitcode == failure.BROKEN
    assert capfd.readouterr().err.startswith(f"grade.py: {failure.SAID}\n")


def test_a_forked_process_leaves_the_pool_to_its_maker(pool):
    process = multiprocessing.get_context("fork").Process(target=pool.close)
    process.start()
    process.join()
    assert pool.stage.submission.is_dir()
    pool.close()
    assert not pool.stage.submission.exists()


def test_another_submission_begins_with_no_check_given_up(pool):
    pool.shared.died(CHECK, FATAL[1])
    assert pool.shared.given_up(CHECK) == FATAL[1]
    pool.replace(Submission({}), 1)
    assert pool.shared.given_up(CHECK) is None


def test_of_two_long_calls_the_later_waits(pool):
    """Where the order of verdicts counts, and until the test of the earlier is judged"""
    first, second = (copy.copy(pool.shared) for _ in range(2))  # as two processes have it
    first.judge(3, CHECK)
    second.judge(4, CHECK)
    assert [second.turn(LONG_S + 1), first.turn(LONG_S + 1)] == [GO_ON, GO_ON]
    first.is_in_order = second.is_in_order = True
    assert [second.turn(LONG_S - 1), first.turn(LONG_S - 1)] == [GO_ON, GO_ON]
    assert [second.turn(LONG_S + 1), first.turn(LONG_S + 1), second.turn(0.0)] == [GO_ON, GO_ON, WAIT]
    first.is_judged()
    assert second.turn(LONG_S + 1) == GO_ON
    first.judge(5, CHECK)
    assert first.turn(0.0) == WAIT
    first.died(CHECK, FATAL[1])
    assert second.turn(0.0) == GIVE_UP


def test_inputs_stay_until_no_case_fails(pool):
    """To do is no failure; a run that was cut short shows nothing mended"""
    watching = watch.SaveWatch(Settings(), next_check.Following(), GraderRun([], pool, Console()))

    def seed_after(*statuses: str, is_cut_short: bool = False) -> int:
        pool.replace(Submission({}), watching._seed)
        for status in statuses:
            pool.shared.ended(status)
        watching._choose_seed(is_cut_short)
        return watching._seed

    drawn = seed_after("ok", "todo")
    assert drawn != 1
    for status in ("FAIL", "crashed", "timeout"):
        assert seed_after(status, "ok") == drawn
    assert seed_after("ok", is_cut_short=True) == drawn
    assert seed_after("ok", "needs review") != drawn


def test_a_seed_that_was_asked_for_stays(pool):
    watching = watch.SaveWatch(Settings(seed=1), next_check.Following(), GraderRun([], pool, Console()))
    watching._choose_seed(False)
    assert (watching._seed, watching._is_kept) == (1, False)


def save(path: Path, content: str) -> None:
    """As editors do, by rename."""
    part = path.with_name(".part")
    part.write_text(content)
    part.replace(path)


def test_a_save_is_seen_also_of_the_same_text(submission):
    file = submission / "cs336_kernels" / "rmsnorm.py"
    before = watch.look(submission)
    assert watch.wait_until_stable(submission, before) == before
    save(file, file.read_text())
    after = watch.wait_until_stable(submission, before)
    assert after.changes(before) == {"cs336_kernels/rmsnorm.py"}
    assert watch.look(submission / "cs336_kernels") == after
    (submission / "cs336_kernels" / "notes.txt").write_text("no kernel")
    assert watch.look(submission) == after
    (submission / "cs336_kernels" / "helpers.py").write_text("")
    assert watch.look(submission).changes(after) == {"cs336_kernels/helpers.py"}


def test_a_folder_that_is_gone_is_told_and_comes_back(submission):
    before = watch.look(submission)
    (submission / "cs336_kernels").rename(submission / "away")
    gone = watch.wait_until_stable(submission, before)
    assert gone.submission is None
    assert "holds no cs336_kernels" in gone.why
    (submission / "away").rename(submission / "cs336_kernels")
    assert watch.wait_until_stable(submission, gone) == before


def test_what_is_still_being_written_is_waited_for(submission, monkeypatch):
    """Two looks while an editor writes, two after it"""
    before, half, more, whole = (watch.Seen(None, why) for why in ("before", "half", "more", "whole"))
    looks = iter([half, more, whole, whole])
    monkeypatch.setattr(watch, "look", lambda path: next(looks))
    assert watch.wait_until_stable(submission, before) == whole


@pytest.mark.parametrize(
    ("changed", "first"),
    [
        (set(), "weighted_sum"),
        ({"cs336_kernels/rmsnorm.py"}, "rmsnorm"),
        ({"cs336_kernels/flash_attention.py"}, "flash_forward_pytorch"),
        ({"cs336_kernels/flash_attention.py", "cs336_kernels/helpers.py"}, "weighted_sum"),
    ],
)
def test_the_checks_of_a_changed_file_come_first(changed, first):
    """Of a module that may be used anywhere, all; none is left out"""
    in_turn = watch.in_turn(checks.declared(), changed)
    assert in_turn[0].problem == first
    assert sorted(map(repr, in_turn)) == sorted(map(repr, checks.declared()))


class Watching:
    """A watch in a process of its own, and what it prints."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        temporary = folder.parent / "tmp"
        temporary.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "grade.py"), "--watch", *arguments],
            cwd=folder, env=os.environ | {"TMPDIR": str(temporary)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                self.lines.put(line)

    def wait_for(self, words: str, timeout_s: float) -> str:
        """The next line with these words."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {words!r} within {timeout_s} s after {''.join(self.seen[-20:])}")
            self.seen.append(line)
            if words in line:
                return line

    def stop(self) -> int:
        """By Ctrl-C in a terminal, which every process of the group gets; returns the exit status."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)


@pytest.fixture
def watching(submission):
    started: list[Watching] = []

    def start(*arguments: str) -> Watching:
        started.append(Watching(submission, *arguments))
        return started[0]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


CLAIM = "weighted_sum_forward returns Σ_j"


@pytest.mark.slow
def test_a_watch_answers_every_save_and_nothing_but_an_interrupt_ends_it(watching, submission):
    """Good code, code that does not parse, a hang that is mended, no folder, and Ctrl-C at last"""
    file = submission / "cs336_kernels" / "weighted_sum.py"
    right = file.read_text()
    its = watching("--only", "test_weighted_sum.py::test_forward_values")
    assert "ok" in its.wait_for(CLAIM, PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    save(file, right + "\n")
    its.wait_for("saved: cs336_kernels/weighted_sum.py", PATIENCE_S)
    assert "ok" in its.wait_for(CLAIM, PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    save(file, "def (")
    failing = its.wait_for("seed", PATIENCE_S)
    assert "FAIL" in its.wait_for(CLAIM, PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    save(file, right)
    kept = its.wait_for("The inputs stay", PATIENCE_S)
    assert failing.endswith(kept.partition(": ")[2])
    assert its.wait_for("seed", PATIENCE_S) == failing
    its.wait_for("Watching: save a file to run again with new inputs", PATIENCE_S)
    save(file, right + "\n")
    assert its.wait_for("seed", PATIENCE_S) != failing
    save(file, right + "\n\ndef weighted_sum_forward(x, weight):\n    while True:\n        pass\n")
    its.wait_for("Sandbox", PATIENCE_S)
    time.sleep(1)  # the judges wait for it
    save(file, right)
    assert "ok" in its.wait_for(CLAIM, PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    file.parent.rename(submission / "away")
    its.wait_for("holds no cs336_kernels", PATIENCE_S)
    (submission / "away").rename(file.parent)
    assert "ok" in its.wait_for(CLAIM, PATIENCE_S)
    assert its.stop() == 130
    its.wait_for("no longer watching", 5)
    assert not [line for line in its.seen if "Traceback" in line or "\x1b" in line]
    assert not list((submission.parent / "tmp").glob("grade-*"))


@pytest.mark.slow
def test_next_is_watched_at_the_check_where_it_stopped(watching, submission):
    """It is told first after each save, and what comes after it once it passes"""
    file = submission / "cs336_kernels" / "weighted_sum.py"
    right = file.read_text()
    todo = "\n\ndef {}(*arguments):\n    raise NotImplementedError('write it')\n"
    file.write_text(right + todo.format("weighted_sum_backward") + todo.format("weighted_sum"))
    its = watching("--next", "--only", "weighted_sum")
    its.wait_for("test_weighted_sum.py::test_backward_values: to do", PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    save(file, file.read_text() + todo.format("weighted_sum_forward"))  # broken before it, but this one is at work
    its.wait_for("test_weighted_sum.py::test_backward_values: to do", PATIENCE_S)
    its.wait_for("Watching", PATIENCE_S)
    save(file, right + todo.format("weighted_sum_forward"))
    its.wait_for("test_weighted_sum.py::test_forward_values: to do", PATIENCE_S)
    assert its.stop() == 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--watch", "submission.zip"], "--watch needs a folder"),
        (["--watch", "--inline"], "--watch needs a folder"),
        (["--watch", "--json", "report.json"], "--watch shows and does not report: leave out --json"),
        (["--next", "--junit", "a.xml", "--fail-under", "3"], "leave out --junit and --fail-under"),
        (["--next", "--explain", "test_eps"], "leave out one of them"),
        (["--watch", "--only", "test_matmul.py::test_speed"], "--watch times nothing"),
        (["--watch", "--explain", "test_matmul.py::test_speed"], "--watch times nothing"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_sentence(submission, arguments, words):
    shutil.make_archive(str(submission / "submission"), "zip", submission)
    command = [sys.executable, str(ROOT / "grade.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=submission, timeout=60)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
