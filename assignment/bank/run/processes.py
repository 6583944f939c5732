"""The processes of a grade: what each is, one struck by a signal, what a run leaves."""

import os
import random
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
from psutil import Process

from assignment.confined import supervisor

GONE = (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError)
GONE_S = 30.0  # for the processes of a killed run to end
PROGRAMS = ("worker.py", "nursery.py")


def program(process: Process) -> str:
    """Return which of PROGRAMS a process runs, or ""."""
    command = process.cmdline()
    named = [name for name in PROGRAMS if any(argument.endswith("/" + name) for argument in command)]
    return named[0] if named and "python" in command[0] else ""


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal."""
    (mask,) = re.findall(r"^SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


def running(processes: Collection[Process]) -> Iterator[Process]:
    """Yield those that have not ended: one that nobody has waited for yet has."""
    for process in processes:
        with suppress(*GONE):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def descendants(pid: int) -> list[Process]:
    """Return the processes that descend from one.

    psutil's own `children` leaves those out that seem older than their parent, as some do where the clock drifts.
    """
    found = []
    for child in supervisor.descendants(pid):
        with suppress(*GONE):
            found.append(Process(child))
    return [*running(found)]


def strike(pids: Collection[int], number: int) -> bool:
    """Send a signal to one of these processes, whichever; returns whether there still was one."""
    for pid in random.sample(sorted(pids), len(pids)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
    return False


def left_behind(folder: Path, names: tuple[str, ...], seen: Collection[Process] = ()) -> list[str]:
    """Return what outlives a run: processes seen or with this temporary folder, and what begins with a name in it."""
    until = time.monotonic() + GONE_S
    while alive := [*running(seen), *_with_temporary(folder)]:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    left = [f"left behind: {path.name}" for path in folder.iterdir() if path.name.startswith(names)]
    return [*left, *(f"process left: {process}" for process in alive)]


def _with_temporary(folder: Path) -> Iterator[Process]:
    for process in running([*psutil.process_iter()]):
        with suppress(*GONE):
            if process.environ().get("TMPDIR") == str(folder):
                yield process
