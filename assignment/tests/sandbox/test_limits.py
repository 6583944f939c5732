"""What a hostile submission cannot use up or leave behind: processes, threads, scratch space, memory, time."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from assignment.confined import supervisor
from assignment.sandbox import rungs, stage
from assignment.sandbox.worker_client import WorkerDied
from assignment.system import here
from assignment.system.linux import seccomp
from assignment.tests.sandbox.boxes import ROOT, process_ids


def test_a_fork_bomb_is_stopped(box):
    """Either no process can be started at all, or all of them are ended"""
    began = time.monotonic()
    code = "try:\n    while True:\n        os.fork()\nexcept FileNotFoundError:\n    return x.sum()"
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match=r"more than 64 processes|was killed"):
            box.run(code)
    else:
        assert box.run(code) == 3
    assert time.monotonic() - began < 60
    assert box.run("return x.sum()") == 3


@pytest.mark.skipif(not seccomp.is_supported(), reason="no system-call filters here")
def test_where_processes_may_be_started_they_stay_in_one_group():
    """One signal ends them all, also root's, whom no limit counts"""
    code = """
        import os, subprocess, sys
        from assignment.system.linux import confinement, seccomp
        confinement.prctl(38, 1)
        seccomp.install(has_processes=True, has_sockets=False)
        group = os.getsid(0), os.getpgrp()
        os.setsid()
        os.setpgid(0, 0)
        tell = "import os; print(os.getsid(0), os.getpgrp())"
        told = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, start_new_session=True)
        assert group == (os.getsid(0), os.getpgrp()) == tuple(map(int, told.stdout.split())), told
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


DAEMON = """
if not os.fork():
    os.setsid()
    os.fork() or os.execlp("sleep", "sleep", "{0}")
    os._exit(0)
"""


@pytest.mark.parametrize("code", ["subprocess.Popen(['sleep', '{0}'])", DAEMON], ids=["a child", "a daemon"])
def test_a_process_left_behind_ends_the_call(box, marked, code):
    """Where it can be started at all"""
    attempt = (
        f"try:\n{textwrap.indent(code.format(marked), '    ')}\nexcept FileNotFoundError:\n    pass\nreturn x.sum()"
    )
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match="left a process running"):
            box.run(attempt)
    else:
        assert box.run(attempt) == 3
    assert not process_ids(marked)


def test_one_whose_parent_ends_while_we_look_is_found(monkeypatch):
    """It is the first process's by then"""
    lists = iter([[2], [], [3], [], [3]])  # 2 ends before it is asked, and had started 3
    monkeypatch.setattr(here, "children_of", lambda pid: next(lists))
    assert supervisor.descendants(1) == [2, 3]


def test_a_worker_whose_supervisor_is_killed_is_replaced(box):
    """Where it can be: elsewhere the signal is refused"""
    code = "try:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    return x.sum()\ntime.sleep(99)"
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match="was killed"):
            box.run(code)
    else:
        assert box.run(code) == 3
    assert box.run("return x.sum()") == 3


def test_all_in_its_name_spaces_ends_with_the_supervisor(box):
    """Nobody tells the others to, and the grader does not know yet"""
    if box.rung != rungs.BUBBLEWRAP:
        pytest.skip("name spaces are bubblewrap's")
    assert box.run("return x.sum()") == 3
    worker = box.worker
    (first,) = here.children_of(worker._processes[-1].pid)
    inside = [first, *supervisor.descendants(worker._pid.value)]
    assert len(inside) == 3, "its first process, the supervisor, its child"
    os.kill(worker._pid.value, signal.SIGKILL)
    assert all(here.has_ended(pid, 5.0) for pid in inside)
    assert box.run("return x.sum()") == 3


def kill_with_descendants(pid):
    """All of them, whatever they are about to start: bubblewrap's end alone does not always end what it began."""
    stopped: list[int] = []
    while (found := [pid, *supervisor.descendants(pid)]) != stopped:
        stopped = found
        for each in found:
            os.kill(each, signal.SIGSTOP)
    for each in stopped:
        os.kill(each, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_that_is_killed_at_its_start_is_replaced_a_few_times(box, monkeypatch):
    start, to_kill = box.worker._start, [1, 2, 3]

    def killed_at_first():
        start()
        if to_kill:
            to_kill.pop()
            box.worker._supervisor("strays")  # it has told its pid before
            kill_with_descendants(box.worker._pid.value)

    monkeypatch.setattr(box.worker, "_start", killed_at_first)
    box.worker._end_process()
    killed_at_first()
    assert box.run("return x.sum()") == 3
    assert not to_kill


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "for i in range(8):\n    open(f'{i}', 'wb').truncate(0)\n    with open(f'{i}', 'wb') as file:\n"
            "        for _ in range(200):\n            file.write(bytes(1 << 20))",
            id="in large files",
        ),
        pytest.param(
            "for i in range(50_000):\n    open(f'{i}', 'w').close()", id="in many files", marks=pytest.mark.slow
        ),
        pytest.param(
            "kept = []\nfor i in range(8):\n    kept.append(os.memfd_create('x'))\n    for _ in range(200):\n"
            "        os.write(kept[-1], bytes(1 << 20))",
            id="in files without a name",
        ),
    ],
)
def test_scratch_space_has_a_limit(box, code):
    with pytest.raises(WorkerDied, match="scratch space"):
        box.run(f"{code}\ntime.sleep(20)\nreturn x.sum()")
    assert box.run("return torch.tensor(float(len(os.listdir('.'))))") == 0


def test_one_file_has_a_limit(box):
    code = "with open('one', 'wb') as file:\n    for _ in range(300):\n        file.write(bytes(1 << 20))"
    assert box.run(f"try:\n{textwrap.indent(code, '    ')}\nexcept OSError:\n    return x.sum()") == 3


def test_memory_has_a_limit(box):
    assert box.run("try:\n    torch.empty(4 << 30)\nexcept RuntimeError:\n    return x.sum()") == 3


def test_nothing_is_handed_on_to_the_next_submission(box):
    """Not even by folders that resist removal"""
    box.run("""
        os.makedirs("closed/inner")
        open("closed/inner/note", "w").write("for the next one")
        for _ in range(300):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        return x.sum()
    """)
    assert box.run("return torch.tensor(float(len(os.listdir(os.environ['TMPDIR']))))") == 0


def test_caches_are_named_by_the_submission(box):
    code = "return torch.tensor(list(os.environ['TRITON_CACHE_DIR'].encode()))"
    first, again, other = (bytes(box.run(text).tolist()) for text in (code, code, f"{code}  # another"))
    assert first == again
    assert first != other


def test_when_the_submissions_time_is_over_calls_end_at_once(box):
    assert box.run("return x.sum()") == 3
    box.stage.spend(stage.SUBMISSION_TIMEOUT_S["cpu"])
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="time for the whole submission is over") as caught:
        box.call()
    assert (caught.value.status, caught.value.ran) == ("timeout", False)
    assert time.monotonic() - began < 5
