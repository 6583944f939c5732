"""The processes of this machine, read from /proc: who descends from whom, and what each is."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
