"""Threads that a call leaves behind, where host code runs beside the graded values: on a GPU."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LOOK = """
import os, threading, time, torch
from assignment.grading import leftovers
torch.set_num_threads(1)
before = leftovers.snapshot()
{}
print(leftovers.left_since(before, "cpu"), flush=True)
os._exit(0)
"""


def left(code: str) -> str:
    """What is said to be left by this code, in a process of its own."""
    program = LOOK.format(textwrap.dedent(code))
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param("threading.Thread(target=time.sleep, args=(99,), name='later').start()", "later", id="one"),
        pytest.param("threading.Thread(target=time.sleep, args=(99,), daemon=True).start()", "Thread", id="a daemon"),
        pytest.param(
            "import _thread\n_thread.start_new_thread(time.sleep, (99,))\ntime.sleep(0.2)",
            "without a name",
            id="unnamed",
        ),
        pytest.param(
            """
            import ctypes, mmap
            loop = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            loop.write(b"\\xeb\\xfe" if os.uname().machine == "x86_64" else bytes([0, 0, 0, 0x14]))  # jump to itself
            start = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(loop)))
            assert ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, start, None) == 0
            """,
            "a native one",
            id="a native one",
        ),
    ],
)
def test_a_thread_left_behind_is_seen(code, words):
    assert words in left(code)


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
def test_threads_that_are_over_or_pytorchs_own_cost_nothing(code):
    assert left(code) == ""
