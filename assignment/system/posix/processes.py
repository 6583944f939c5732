"""What psutil tells of processes and of the machine."""

import contextlib
import os
import time
from collections.abc import Sequence

import psutil

WALK_S = 0.005
BUSY = 0.05  # of a core: who takes less sleeps, since twenty processes share a core at most
SOON_S = 0.05  # what was seen so shortly ago is not looked up again

_looked: dict[int, tuple[float, float, bool]] = {}  # of a process: when it was, its processor time, whether it slept
_walked: list[tuple[float, list[tuple[int, int]]]] = []  # when all processes were looked up last, and what was found


def cores() -> int:
    return os.cpu_count() or 1


def use_cores(n: int) -> None: ...


def free_memory() -> int:
    return psutil.virtual_memory().available


def children_of(pid: int) -> list[int]:
    return [child for child, parent in _parents() if parent == pid]


def _parents() -> list[tuple[int, int]]:
    """Return all processes with their parents, looked up once for a walk along them."""
    now = time.monotonic()
    if not _walked or now - _walked[-1][0] > WALK_S:
        _walked[:] = [(now, [(one.pid, one.info["ppid"]) for one in psutil.process_iter(["ppid"])])]
    return _walked[-1][1]


def usage_of(pid: int) -> tuple[float, bool] | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        _looked.pop(pid, None)
        return None
    seconds = times.user + times.system + times.children_user + times.children_system
    now = time.monotonic()
    before, had_s, is_idle = _looked.get(pid, (now, seconds, False))
    if now - before > SOON_S:
        is_idle = 0 <= seconds - had_s < BUSY * (now - before)
    elif pid in _looked:
        return seconds, is_idle
    _looked[pid] = now, seconds, is_idle
    return seconds, is_idle


def name_of(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name()
    return "a process"


def unlinked(pid: int) -> int:
    return 0  # nothing tells


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).memory_info().rss
    return 0


def is_over_memory(pids: Sequence[int], size: int) -> bool:
    return any(memory_of(pid) > size for pid in pids)


def tasks_of_this_user() -> int:
    found = [one.info["uids"] for one in psutil.process_iter(["uids"])]
    return sum(bool(uids) and uids.real == os.getuid() for uids in found)


def has_ended(pid: int, timeout_s: float) -> bool:
    until = time.monotonic() + timeout_s
    while _is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
