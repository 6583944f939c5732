"""Starts processes as fresh interpreters: workers, and the children of their first processes."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable

from assignment.system.interface import Folders, Setup, Started, WorkerEnds, setup
from assignment.system.posix import lines
from assignment.system.posix.confinement import readable, seen
from assignment.system.posix.processes import memory_of

MAX_MESSAGE = 1 << 10
MAX_DESCRIPTORS = 256  # of a worker, where it starts


class Fresh:
    """Starts workers."""

    def start(self, rung: str, device: str, folders: Folders, env: dict[str, str], ends: WorkerEnds) -> Started:
        told = {**setup(rung, device, seen(rung, folders), readable(device)), "control": ends.control}
        process = subprocess.Popen(
            [sys.executable, "-I", program(folders.runtime), json.dumps(told)],
            stdin=subprocess.DEVNULL,
            stdout=ends.output,
            stderr=ends.output,
            pass_fds=[ends.control, ends.living],
            cwd=folders.scratch,
            env=env,
            start_new_session=True,
        )
        return Started(process.pid, (process,))

    def wake(self) -> None: ...

    def close(self) -> None: ...


class Spares:
    """Starts children that load what they need before they are wanted, one at a time."""

    def __init__(self, run: Callable[[socket.socket, str], None], setup: Setup) -> None:
        """Set up; `run` is what a child does that has its connection."""
        self._setup = setup
        for descriptor in range(3, MAX_DESCRIPTORS):  # which this process was given, not its children
            with contextlib.suppress(OSError):
                os.set_inheritable(descriptor, False)
        self._child = self._spare = 0
        self._line: socket.socket | None = None  # to the spare
        self._loaded = 0  # bytes that the child had before its first request

    def prepare(self) -> None:
        with contextlib.suppress(OSError):  # there can be no more processes: take() tries again
            self._start()

    def _start(self) -> None:
        if self._line is not None:
            return
        self._line, theirs = lines.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            told: Setup = {**self._setup, "line": theirs.fileno()}
            command = [sys.executable, "-I", program(self._setup["runtime"]), json.dumps(told)]
            try:
                self._spare = os.posix_spawn(sys.executable, command, os.environ)
            except OSError:
                self._forget()
                raise

    def take(self, connection: int, caches: str) -> int:
        os.set_inheritable(connection, False)
        try:
            self._start()
            self._wait_until_loaded()
            assert self._line is not None
            lines.send(self._line, caches.encode(), [connection])
        finally:
            os.close(connection)
            self._child, pid = self._spare, self._spare
            self._forget()
        self._loaded = memory_of(pid)
        return pid

    def _wait_until_loaded(self) -> None:
        """Wait until the spare says so; start another one where somebody has killed it.

        Where that does not load either, this process ends, as one does that cannot load what its children need.
        """
        for _ in range(2):
            assert self._line is not None
            with contextlib.suppress(ConnectionError):
                if lines.receive(self._line, MAX_MESSAGE)[0]:
                    return
            self._forget()
            self._start()
        os._exit(1)

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line, self._spare = None, 0

    def grown(self) -> int:
        return memory_of(self._child) - self._loaded

    def known(self) -> set[int]:
        return {self._spare} if self._spare else set()


def taken(line: int) -> tuple[socket.socket, str]:
    with socket.socket(fileno=line) as supervisor, contextlib.suppress(OSError):
        lines.send(supervisor, b"loaded")
        caches, descriptors = lines.receive(supervisor, MAX_MESSAGE, 1)
        if descriptors:
            os.set_inheritable(descriptors[0], False)
            return socket.socket(fileno=descriptors[0]), caches.decode()
    os._exit(0)  # its supervisor is gone


def program(runtime: str) -> str:
    return f"{runtime}/assignment/worker.py"
