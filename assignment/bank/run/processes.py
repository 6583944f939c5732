"""The processes of this machine: who descends from whom and what each is, one struck by a signal, what a run leaves."""

import os
import random
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GONE_S = 30.0  # for the processes of a killed run to end
PROGRAMS = ("worker.py", "nursery.py")


@dataclass(frozen=True)
class Process:
    """A process that has not ended.

    Attributes:
        born: when it started: process ids are used again.
        program: one of PROGRAMS, or "".
        command: its arguments, as it shows them.
    """

    pid: int
    parent: int
    born: str
    program: str
    command: tuple[bytes, ...]

    def runs_in(self, folder: Path | str) -> bool:
        """Return whether a folder is the one for its temporary files."""
        with suppress(OSError):
            return f"TMPDIR={folder}".encode() in Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")
        return False


def processes() -> dict[int, Process]:
    """Return the processes that run, by their ids."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            command = tuple((folder / "cmdline").read_bytes().split(b"\0"))
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            named = [name for name in PROGRAMS if any(a.endswith(b"/" + name.encode()) for a in command)]
            program = named[0] if named and b"python" in command[0] else ""
            if fields[0] not in "ZX":
                found[int(folder.name)] = Process(int(folder.name), int(fields[1]), fields[19], program, command)
    return found


def descendants(pid: int) -> list[Process]:
    """Return the processes that descend from one."""
    everyone = processes()
    own = {pid}
    while more := {p.pid for p in everyone.values() if p.parent in own} - own:
        own |= more
    return [everyone[pid] for pid in own - {pid} if pid in everyone]


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
    while alive := [p for p in processes().values() if p in seen or p.runs_in(folder)]:
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    left = [f"left behind: {path.name}" for path in folder.iterdir() if path.name.startswith(names)]
    return [*left, *(f"process left: {process}" for process in alive)]
