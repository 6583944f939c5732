"""What a hostile submission cannot use up or leave behind: processes, threads, scratch space, memory, time."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from assignment.grading import rungs, seccomp, supervisor
from assignment.grading.sandbox import WorkerDied
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
        from assignment.grading import confinement, seccomp
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


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(
            "threading.Thread(target=time.sleep, args=(99,), name='later').start()", "a thread running: later", id="one"
        ),
        pytest.param("threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "a thread", id="a daemon"),
        pytest.param("import _thread\n_thread.start_new_thread(time.sleep, (99,))", "without a name", id="unnamed"),
        pytest.param(
            """
            import ctypes, mmap
            loop = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            loop.write(b"\\xeb\\xfe" if os.uname().machine == "x86_64" else bytes([0, 0, 0, 0x14]))  # jump to itself
            globals().setdefault("kept", []).append(loop)
            start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(loop)))
            assert ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, start, None) == 0
            """,
            "a native one",
            id="a native one",
        ),
    ],
)
def test_a_thread_left_behind_ends_the_call(box, code, words):
    with pytest.raises(WorkerDied, match=words) as caught:
        box.run(f"{textwrap.dedent(code)}\nreturn x.sum()")
    assert caught.value.status == "crashed"
    assert "left a thread running" in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "thread = threading.Thread(target=time.sleep, args=(0.1,))\nthread.start()\nthread.join()",
        "threading.Thread(target=time.sleep, args=(0.2,)).start()",
        "torch.set_num_threads(4)\na = torch.ones(512, 512)\nfor _ in range(20):\n    a = a @ a / 512",
        "y = torch.ones(9, requires_grad=True)\n(y * y).sum().backward()",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor() as pool:\n    pool.submit(print)",
    ],
    ids=["joined", "about to end", "PyTorch's pool", "autograd", "a pool that is shut down"],
)
def test_threads_that_are_over_or_pytorchs_own_cost_nothing(box, code):
    assert box.run(f"{code}\nreturn x.sum()") == 3
    assert box.call() == 3


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


def test_a_worker_whose_supervisor_is_killed_is_replaced(box):
    """Where it can be: elsewhere the signal is refused"""
    code = "try:\n    os.kill(os.getppid(), 9)\nexcept PermissionError:\n    return x.sum()\ntime.sleep(99)"
    if box.rung in rungs.UNSAFE:
        with pytest.raises(WorkerDied, match="was killed"):
            box.run(code)
    else:
        assert box.run(code) == 3
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
            kill_with_descendants(box.worker._process.pid)

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
        pytest.param("for i in range(50_000):\n    open(f'{i}', 'w').close()", id="in many files"),
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
    box.stage.deadline = time.monotonic()
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="time for the whole submission is over") as caught:
        box.call()
    assert (caught.value.status, caught.value.ran) == ("timeout", False)
    assert time.monotonic() - began < 0.5


def test_a_call_is_stopped_when_the_submissions_time_is_over(box):
    box.load("time.sleep(99)")
    box.stage.deadline = time.monotonic() + 3
    with pytest.raises(WorkerDied, match="in weighted_sum_forward") as caught:
        box.call()
    assert caught.value.status == "timeout"
