"""Threads that a call of a submission left running.

Threads of Python count for as long as they live: one that waits can still act later. Native ones count only while they
run, since PyTorch and OpenMP keep pools of sleeping ones for the next call.
"""

import _thread
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 1.0  # for threads that are about to end, and for pools that spin before they sleep
LOOK_EVERY_S = 0.01


@dataclass(frozen=True)
class Threads:
    started: int  # by Python, and not over
    python: frozenset[int]  # those in the midst of Python code, by threading's identifiers
    native: frozenset[int]  # all, by the kernel's


def snapshot() -> Threads:
    native = frozenset(int(task.name) for task in Path("/proc/self/task").iterdir())
    return Threads(_thread._count(), frozenset(sys._current_frames()), native)


def left_since(before: Threads, device: str) -> str:
    """The name of a thread that was not there before, and is after a while; "" without one."""
    until = time.monotonic() + GRACE_S
    while name := _of_python(before) or (_running(before) if device != "cuda" else ""):  # CUDA's driver has its own
        if time.monotonic() > until:
            return name
        time.sleep(LOOK_EVERY_S)
    return ""


def _of_python(before: Threads) -> str:
    now = snapshot()
    for identifier in now.python - before.python:
        return next((thread.name for thread in threading.enumerate() if thread.ident == identifier), "without a name")
    return "without a name" if now.started > before.started else ""


def _running(before: Threads) -> str:
    for task in snapshot().native - before.native:
        try:
            state = Path(f"/proc/self/task/{task}/stat").read_text().rpartition(") ")[2]
        except OSError:  # it has ended
            continue
        if state.startswith("R"):
            return "a native one"
    return ""
