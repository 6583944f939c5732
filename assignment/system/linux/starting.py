"""Starts workers: in bubblewrap's name spaces or without, forked from the nursery or, with a GPU, as new programs."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from assignment.system import interface
from assignment.system.interface import BUBBLEWRAP, ON_GPU, Folders, NotStarted, Setup, Started, WorkerEnds
from assignment.system.linux import bubblewrap, nursery
from assignment.system.linux.processes import children_of, kinds_to_join

START_TIMEOUT_S = 180.0  # of bubblewrap


@dataclass(frozen=True)
class NameSpaces:
    """What a process needs to join name spaces."""

    first: int  # a descriptor of their first process
    kinds: int
    lifeline: int  # the pipe that it lives by


class Nursery:
    """The grader's end of the process that workers are forked from, which is restarted if it was killed."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._processes: list[subprocess.Popen] = []  # Popen complains when it is forgotten

    def start(self, rung: str, device: str, folders: Folders, env: dict[str, str], ends: WorkerEnds) -> Started:
        if device not in ON_GPU:
            told = interface.setup(rung, device, bubblewrap.seen(rung, folders), bubblewrap.readable(device))
            descriptors = [ends.control, ends.output, ends.living]
            if rung != BUBBLEWRAP:
                self.fork_worker(told, env, 0, descriptors)
                return Started(0)
            with name_spaces(device, folders, ends.output) as (spaces, process):
                self.fork_worker(told, env, spaces.kinds, [*descriptors, spaces.first, spaces.lifeline])
            return Started(0, (process,))
        process = subprocess.Popen(
            bubblewrap.command(rung, device, folders, ends.control, env),
            stdin=subprocess.DEVNULL,
            stdout=ends.output,
            stderr=ends.output,
            pass_fds=[ends.control, ends.living],
            cwd=folders.scratch,
            # its first process shows bwrap's to the others
            env={} if rung == BUBBLEWRAP else env,
            start_new_session=True,
        )
        return Started(process.pid, (process,))

    def fork_worker(self, setup: "Setup", environment: dict[str, str], spaces: int, descriptors: Sequence[int]) -> None:
        """Start a worker; its first message on the control socket is its pid."""
        wanted: nursery.WorkerOrder
        wanted = {"setup": setup, "environment": environment, "folder": setup["scratch"], "spaces": spaces}
        order = json.dumps(wanted).encode()
        try:
            if self._line is None:
                raise ConnectionError
            socket.send_fds(self._line, [order], descriptors)
        except OSError:
            line = self._start(environment, output=descriptors[1])
            # killed already: the caller finds the control socket closed
            with contextlib.suppress(OSError):
                socket.send_fds(line, [order], descriptors)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._signal(signal.SIGKILL)

    def wake(self) -> None:
        self._signal(signal.SIGCONT, also=children_of)

    def _signal(self, number: signal.Signals, also: Callable[[int], list[int]] = lambda pid: []) -> None:
        for process in self._processes:
            for pid in (process.pid, *also(process.pid)) if process.returncode is None else ():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            process.poll()

    def _start(self, environment: dict[str, str], output: int) -> socket.socket:
        self.close()
        self._line, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [*bubblewrap.FIRST_TO_GO, sys.executable, "-I", nursery.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,  # says why, where PyTorch cannot be loaded
                stderr=output,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        return self._line


@contextmanager
def name_spaces(device: str, folders: Folders, output: int) -> Iterator[tuple[NameSpaces, subprocess.Popen]]:
    """Yield what joins new name spaces, and bubblewrap, which keeps them; raises NotStarted."""
    process = subprocess.Popen(
        bubblewrap.keeper(device, folders),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        cwd=folders.scratch,
        env={},
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    with process.stdin, process.stdout:
        has_answered = select.select([process.stdout], [], [], START_TIMEOUT_S)[0] and process.stdout.read(1)
        if not has_answered or not (inside := children_of(process.pid)):
            process.kill()
            process.wait()
            raise NotStarted("bubblewrap", "--sandbox landlock does without it")
        first = inside[0]
        descriptor = os.pidfd_open(first)
        try:
            yield NameSpaces(descriptor, kinds_to_join(first), process.stdin.fileno()), process
        finally:
            os.close(descriptor)
