"""What /proc and descriptors of processes tell of them."""

import contextlib
import os
import re
import select
import stat
from collections.abc import Sequence
from pathlib import Path

# kinds of name spaces, as clone(2) numbers them
SPACES = {
    "user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000,
    "uts": 0x04000000, "cgroup": 0x02000000,
}  # fmt: skip


def cores() -> int:
    return len(os.sched_getaffinity(0))


def use_cores(n: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n])


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def usage_of(pid: int) -> tuple[float, bool] | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
        tasks = [path.read_text().rpartition(") ")[2][:1] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        return ticks / os.sysconf("SC_CLK_TCK"), not any(state in "RD" for state in tasks)
    return None


def mapped_by(pid: int) -> int:
    """Return the bytes of a process's address space."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def name_of(pid: int) -> str:
    return contents(f"/proc/{pid}/comm").strip() or "a process"


def unlinked(pid: int) -> int:
    size = 0
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                file = descriptor.stat()
                size += 512 * file.st_blocks if stat.S_ISREG(file.st_mode) and not file.st_nlink else 0
    return size


def is_over_memory(pids: Sequence[int], size: int) -> bool:
    return False  # limits() sees to it


def tasks_of_this_user() -> int:
    own, count = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            count += len(list((process / "task").iterdir())) if process.stat().st_uid == own else 0
        except OSError:  # it has ended
            continue
    return count


def has_ended(pid: int, timeout_s: float) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it is gone already
        return True
    try:
        return bool(select.select([process], [], [], timeout_s)[0])
    finally:
        os.close(process)


def kinds_to_join(pid: int) -> int:
    """Return the kinds of name spaces that a process has for itself, as setns takes them."""
    theirs, ours = Path(f"/proc/{pid}/ns"), Path("/proc/self/ns")
    return sum(bit for kind, bit in SPACES.items() if (theirs / kind).stat().st_ino != (ours / kind).stat().st_ino)


def free_memory() -> int:
    found = re.search(r"MemAvailable:\s+(\d+) kB", contents("/proc/meminfo"))
    free = [int(found[1]) << 10] if found else []
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = contents(limit).strip(), contents(used).strip()
        if most.isdecimal() and now.isdecimal():
            free.append(max(0, int(most) - int(now)))
    return min(free, default=0)


def contents(path: str) -> str:
    """Return a file's text; an empty string if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""
