"""The processor time of a process and of all that descends from it, read from /proc.

`os.wait4` would miss most of a grade: whoever runs a submission is forked by a process that waits for none of its
children, and is counted nowhere once that has been killed.
"""

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_EVERY_S = 0.2


def tree_s(pid: int) -> float:
    """Return the seconds that a process, its descendants and those whom they have waited for have had so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    own = {pid}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(one, 0) for one in own) / TICKS


def spent_s(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a process to end; returns the seconds of its tree, up to its last LOOK_EVERY_S."""
    most = 0.0
    while process.poll() is None:
        most = max(most, tree_s(process.pid))
        time.sleep(LOOK_EVERY_S)
    return most
