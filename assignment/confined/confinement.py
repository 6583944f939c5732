"""A worker's confinement before a submission runs: limits, privileges, Landlock, system calls."""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from assignment.confined import landlock, seccomp

# bytes beyond what the libraries map; a view past 2**31 float32 elements needs over 8 GiB
ADDRESS_SPACE = 12 << 30
FILE_SIZE = 256 << 20
ON_GPU = ("gpu", "cuda")  # roles
OPEN_FILES = dict.fromkeys(ON_GPU, 4096)  # 256 in others
# processes and threads of one user beyond those that there are; the kernel does not count root's
TASKS = 512
CPU_TIME_S = 3600  # so that a process whose grader is gone ends at last
SELF = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# with a read-only /proc CUDA does not start: error 304
FOR_CUDA = ("/proc/self", "/dev/shm", "/dev/dxg")


class Setup(TypedDict):
    """How a worker's process is set up: what it plays, in which sandbox, and its folders."""

    rung: str
    device: str  # the role
    runtime: str
    submission: str
    scratch: str
    compiled: str  # "" where nothing is shared
    packages: Sequence[str]
    readable: Sequence[str]
    control: NotRequired[int]  # the number of a socket


def limit(device: str) -> None:
    """Set limits that the calling process and its children can never raise again."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: FILE_SIZE,
        resource.RLIMIT_NOFILE: OPEN_FILES.get(device, 256),
        resource.RLIMIT_CPU: CPU_TIME_S,
        resource.RLIMIT_NPROC: tasks_of_this_user() + TASKS,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if device not in ON_GPU:  # which map far more than they use
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = mapped + ADDRESS_SPACE
    for name, wanted in limits.items():
        hard = resource.getrlimit(name)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(name, (value, value))


def tasks_of_this_user() -> int:
    own, count = os.getuid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            count += len(list((process / "task").iterdir())) if process.stat().st_uid == own else 0
        except OSError:  # it has ended
            continue
    return count


def confine(setup: Setup) -> None:
    """Give up, for good, what the rung can take away.

    Call it in the process that will run the submission.
    """
    is_on_gpu = setup["device"] in ON_GPU
    prctl(4, 1)  # dumpable again, unlike its parent: it may look at itself
    drop_capabilities()
    if setup["rung"] == "rlimits":
        return
    prctl(38, 1)  # no_new_privs
    if setup["rung"] == "landlock":
        devices = [*FOR_CUDA, *(str(path) for path in Path("/dev").glob("nvidia*"))] if is_on_gpu else []
        readable = [setup["runtime"], setup["submission"], *setup["readable"], *SELF]
        readable += ["/sys", "/proc"] if is_on_gpu else []
        own = [folder for folder in (setup["scratch"], setup["compiled"]) if folder]
        landlock.restrict(readable, [*own, *DEVICES, *devices], has_sockets=is_on_gpu)
    seccomp.install(has_processes=setup["device"] in ("compile", *ON_GPU), has_sockets=is_on_gpu)


def die_with_parent() -> None:
    """Have this process killed when the one that has started it ends."""
    prctl(1, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def drop_capabilities() -> None:
    """Drop root's capabilities: it keeps the files that it owns, and no more."""
    version_3 = struct.pack("Ii", 0x20080522, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(version_3, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")
