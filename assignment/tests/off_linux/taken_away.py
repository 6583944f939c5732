"""Run by each interpreter as it starts: takes away what only Linux has, and forks after PyTorch was loaded."""

import ctypes
import fcntl
import importlib.abc
import importlib.machinery
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

NAMES = {
    os: "memfd_create pidfd_open sched_getaffinity sched_setaffinity setns unshare eventfd pipe2 O_PATH",
    socket: "SOCK_SEQPACKET SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED MSG_CMSG_CLOEXEC",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS",
    resource: "RLIMIT_AS RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING prlimit",
    select: "epoll EPOLLIN",
    signal: "pidfd_send_signal sigtimedwait",
}
CALLS = {"prctl", "setns", "unshare", "syscall", "capset", "memfd_create"}
FILES = {"open", "os.listdir", "os.scandir"}
MAY_READ = "psutil"  # which asks other systems by calls of theirs


class Elsewhere(importlib.abc.MetaPathFinder):
    """Has `assignment.system` loaded as on a Mac; other libraries see the Linux that they were built for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "assignment.system":
            return None
        importlib.import_module("psutil")  # for the system that is here
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec
        assert isinstance(spec.loader, importlib.machinery.SourceFileLoader)
        spec.loader = AsOnAMac(spec.loader.name, spec.loader.path)
        return spec


class AsOnAMac(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        usual, sys.platform = sys.platform, "darwin"
        try:
            super().exec_module(module)
        finally:
            sys.platform = usual


def refuse(event: str, arguments: tuple) -> None:
    """Raise what another system does, or where it would not be safe."""
    if event in FILES and isinstance(arguments[0], str) and arguments[0].startswith("/proc"):
        if MAY_READ not in callers():
            raise FileNotFoundError(2, "there is no /proc", arguments[0])
    elif event == "os.fork" and "torch" in sys.modules and "cs336_kernels" not in callers():
        raise RuntimeError("forked after PyTorch was loaded")


def callers() -> set[str]:
    """Return the top packages of all that have led here."""
    frame: FrameType | None = sys._getframe(2)
    names = set[str]()
    while frame:
        names.add(frame.f_globals.get("__name__", "").partition(".")[0])
        frame = frame.f_back
    return names


class Library(ctypes.CDLL):
    def __getattr__(self, name: str):
        if name in CALLS:
            raise AttributeError(f"no symbol {name}")
        return super().__getattr__(name)


for module, names in NAMES.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
setattr(ctypes, "CDLL", Library)  # noqa: B010  to a type checker it is one
sys.meta_path.insert(0, Elsewhere())
sys.addaudithook(refuse)
