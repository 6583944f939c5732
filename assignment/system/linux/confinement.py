"""How the calling process is hidden, limited and confined, by prctl, Landlock and a filter of system calls."""

import contextlib
import ctypes
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

from assignment.system.interface import BUBBLEWRAP, LANDLOCK, ON_GPU, RLIMITS, Setup
from assignment.system.linux import landlock, seccomp

SELF = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# with a read-only /proc CUDA does not start: error 304
FOR_CUDA = ("/proc/self", "/dev/shm", "/dev/dxg")


def hide() -> None:
    prctl(4, 0)  # not dumpable


def limits(address_space: int) -> dict[int, int]:
    own = {resource.RLIMIT_MSGQUEUE: 0}
    return own | {resource.RLIMIT_AS: mapped() + address_space} if address_space else own


def interrupts_unheard() -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def memory_limited(more: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = [mapped() + more, *(limit for limit in limits if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_AS, (min(most), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def mapped() -> int:
    """Return the bytes of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def join_sandbox(setup: Setup) -> None:
    if setup["rung"] == BUBBLEWRAP:  # what joining its name spaces has given
        drop_capabilities()


def confine(setup: Setup) -> None:
    is_on_gpu = setup["device"] in ON_GPU
    prctl(4, 1)  # dumpable again, unlike its parent: it may look at itself
    drop_capabilities()
    if setup["rung"] == RLIMITS:
        return
    prctl(38, 1)  # no_new_privs
    if setup["rung"] == LANDLOCK:
        devices = [*FOR_CUDA, *(str(path) for path in Path("/dev").glob("nvidia*"))] if is_on_gpu else []
        readable = [setup["runtime"], setup["submission"], *setup["readable"], *SELF]
        readable += ["/sys", "/proc"] if is_on_gpu else []
        own = [folder for folder in (setup["scratch"], setup["compiled"]) if folder]
        landlock.restrict(readable, [*own, *DEVICES, *devices], has_sockets=is_on_gpu)
    seccomp.install(has_processes=setup["device"] in ("compile", *ON_GPU), has_sockets=is_on_gpu)


def die_with_parent() -> None:
    prctl(1, signal.SIGKILL)


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def adopt_orphans() -> None:
    prctl(36, 1)


def drop_capabilities() -> None:
    """Drop root's capabilities: it keeps the files that it owns, and no more."""
    version_3 = struct.pack("Ii", 0x20080522, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(version_3, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")
