"""The worker's first process: starts the children that run a submission, watches and ends them.

It never runs a submission's code. The grader asks it by JSON messages over a socket of packets, one
answer to each, with the message's number, since answers to a judge that was killed may be left
over. In the bubblewrap rung it has joined name spaces whose first process, and with it all others,
ends when it does.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from assignment.confined.confinement import ADDRESS_SPACE
from assignment.system import here
from assignment.system.interface import ChildStarting


class Answer(TypedDict, total=False):
    """What is answered, to whichever question."""

    number: int  # of the question
    supervisor: int  # this process
    pid: int  # of a new child
    status: int | None  # the wait status of a child that has ended,
    why: str  # and why it had to
    processor_s: float
    is_idle: bool
    grown: int  # bytes
    strays: list[str]  # names of processes


MAX_MESSAGE = 64 << 10
MAX_PROCESSES = 64  # of a submission, at one time; a compiler takes four
MAX_FOUND = 1_000  # processes, in one search
MAX_SCRATCH = 1 << 30  # bytes
MAX_ENTRIES = 20_000  # files and folders in the scratch space
TO_END_S = 5.0
HERE = "\n[the kernel is here]\n"  # before and after what a player prints at its deadline


class Supervisor:
    def __init__(self, control: socket.socket, scratch: Path, children: ChildStarting) -> None:
        self._control, self._scratch, self._children = control, scratch, children
        self._child = 0
        self._status: int | None = None  # the wait status of a child that has ended
        self._why = ""  # a sentence about why it had to

    def run(self) -> None:
        """Answer until the grader is gone."""
        here.adopt_orphans()
        here.hide()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        handlers: dict[str, Callable[..., Answer]]
        handlers = {"fork": self._fork, "end": self._end, "interrupt": self._interrupt, "strays": self._strays}
        handlers |= {"wipe": self._wipe, "used": self._used}
        # the child leaves the processor to others, and goes on
        handlers |= {"hold": partial(self._signal, signal.SIGSTOP), "release": partial(self._signal, signal.SIGCONT)}
        self._children.prepare()
        while received := self._next():
            message, descriptors = received
            number = message.pop("number")
            reply = handlers[message.pop("do")](*descriptors, **message)
            here.send(self._control, json.dumps({**reply, "number": number}).encode())
        self._end_all()
        for pid in self._children.known():
            os.kill(pid, signal.SIGKILL)

    def _next(self) -> tuple[dict[str, Any], list[int]] | None:
        """Return the next message, watching the child meanwhile."""
        pause = here.WATCH_EVERY_S
        while not select.select([self._control], [], [], pause)[0]:
            began = time.monotonic()
            self._watch()
            pause = max(here.WATCH_EVERY_S, 10 * (time.monotonic() - began))
        data, descriptors = here.receive(self._control, MAX_MESSAGE, 1)
        return (json.loads(data), descriptors) if data else None

    def _fork(self, connection: int, caches: str) -> Answer:
        self._status, self._why = None, ""
        try:
            self._child = self._children.take(connection, caches)
        except OSError:  # there can be no more processes
            self._child = 0
            return {}
        return {"pid": self._child}

    def _interrupt(self) -> Answer:
        """Have the child print where it is."""
        self._signal(signal.SIGUSR1)
        time.sleep(0.2)
        return {}

    def _signal(self, number: signal.Signals) -> Answer:
        self._reap()
        if self._status is None:
            os.kill(self._child, number)
        return {}

    def _end(self, patience_s: float) -> Answer:
        """End the child and all that it started; it has patience_s to end by itself."""
        until = time.monotonic() + patience_s
        while self._status is None and time.monotonic() < until:
            time.sleep(0.002)
            self._watch()
        self._end_all()
        self._children.prepare()
        return {"status": self._status, "why": self._why}

    def _used(self) -> Answer:
        """Return the processor time of the child and its descendants, whether all are idle, bytes.

        The bytes are those that the child has mapped since it was forked.
        """
        self._reap()
        figures = [figure for pid in self._living() if (figure := here.usage_of(pid))]
        used: Answer = {
            "processor_s": sum(seconds for seconds, _ in figures),
            "is_idle": all(idle for _, idle in figures),
        }
        return {**used, "grown": self._children.grown()}

    def _strays(self) -> Answer:
        """Return the names of processes beside the child that its last call left behind."""
        self._reap()
        return {"strays": [here.name_of(pid) for pid in self._started() if pid != self._child]}

    def _wipe(self) -> Answer:
        """Empty the scratch space, whatever a submission made of it."""
        self._end_all()
        folders = [str(path) for path in self._scratch.iterdir()]
        if folders:
            subprocess.run(["chmod", "-R", "u+rwX", "--", *folders], stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", "--", *folders], stderr=subprocess.DEVNULL)
        return {}

    def _watch(self) -> None:
        self._reap()
        if self._child and self._status is None and not self._why:
            self._why = excess(self._scratch)
            if self._why:
                self._end_all()

    def _end_all(self) -> None:
        """Kill the child and every descendant; those in its group at once."""
        if self._child and self._status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
        if not end(self._living, self._reap):  # where there is a process namespace, the kernel ends them when we end
            os._exit(1)

    def _living(self) -> list[int]:
        """Return the child, unless it has been reaped, and all known descendants."""
        child = [self._child] if self._child and self._status is None else []
        return list(dict.fromkeys([*child, *self._started()]))

    def _started(self) -> list[int]:
        return [pid for pid in descendants() if pid not in self._children.known()]

    def _reap(self) -> None:
        self._status = reap().get(self._child, self._status)


def end(living: Callable[[], list[int]], reap: Callable[[], dict[int, int] | None]) -> bool:
    """Kill processes until there are none; False if they multiply faster.

    New ones are killed in the next round. No process of a group outlives a signal to it, however
    fast they multiply.
    """
    until = time.monotonic() + TO_END_S
    while pids := living():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                if (group := os.getpgid(pid)) not in (0, os.getpgrp()):
                    os.killpg(group, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        reap()
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def end_descendants() -> None:
    """End what the calling process has started and not waited for, and what it has adopted."""
    end(descendants, reap)


def reap() -> dict[int, int]:
    """Collect the children that have ended; returns their wait statuses."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            ended[one[0]] = one[1]
    return ended


def descendants(of: int | None = None, at_most: int = MAX_FOUND) -> list[int]:
    """Return the process ids of what a process, or this one, has started, directly or not.

    There may be a limit, which can be exceeded by some.
    """
    found: list[int] = []
    first = of or os.getpid()
    waiting = [first]
    while waiting and len(found) <= at_most:  # a fork bomb starts more while we look
        children = [pid for pid in here.children_of(waiting.pop()) if pid not in found]
        found += children
        waiting += children
        if not waiting:  # the children of one that ended while we looked are now the first's
            waiting = [pid for pid in here.children_of(first) if pid not in found]
            found += waiting
    return found


def excess(scratch: Path) -> str:
    """Return what the submission has used too much of."""
    pids = descendants(at_most=MAX_PROCESSES)
    if len(pids) > MAX_PROCESSES:
        return f"it had more than {MAX_PROCESSES} processes running"
    size, entries = usage(str(scratch))
    if entries > MAX_ENTRIES or size + sum(map(here.unlinked, pids)) > MAX_SCRATCH:
        return f"it wrote more than {MAX_SCRATCH >> 30} GiB, or {MAX_ENTRIES} files, to its scratch space"
    if here.is_over_memory(pids, ADDRESS_SPACE):
        return f"it took more than {ADDRESS_SPACE >> 30} GiB of memory"
    return ""


def usage(folder: str) -> tuple[int, int]:
    """Return the bytes and the entries below a folder, counted until there are too many."""
    size, entries, waiting = 0, 0, [folder]
    while waiting and entries <= MAX_ENTRIES:
        # gone, or closed to us
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as listing:
            for entry in listing:
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with contextlib.suppress(OSError):
                    size += 512 * entry.stat(follow_symlinks=False).st_blocks
    return size, entries
