"""How much memory a grade takes: all its processes together, at the most, shared pages counted once.

python -m assignment.bank peak_memory [OPTIONS OF grade.py]     by default the reference, with --jobs 2

Linux tells each process's proportional set size: its own pages, and of each shared one its part. Their sum is what the
grade needs, without the cache of files. It exits with 1 where this is more than --below GiB.
"""

import argparse
import subprocess
import sys
from collections import Counter
from contextlib import suppress

from psutil import Process

from assignment.bank.run.processes import GONE, descendants, program
from assignment.bank.run.watching import watching
from assignment.digest import ROOT

LOOK_EVERY_S = 0.1
GIB, MIB = 1 << 30, 1 << 20
DEFAULTS = ("assignment/reference", "--jobs", "2", "--device", "cpu")


class PeakWatch:
    """Looks at the memory of a process and of all that come from it, on the side."""

    def __init__(self, pid: int) -> None:
        self.most, self.then = 0, Counter[str]()  # bytes in all; and of each kind of process at that time
        self._pid = pid

    def look(self) -> None:
        now: Counter[str] = Counter()
        with suppress(*GONE):
            for process in (Process(self._pid), *descendants(self._pid)):
                with suppress(*GONE):
                    now["workers" if program(process) else "judges"] += process.memory_full_info()._asdict()["pss"]
        if now.total() > self.most:
            self.most, self.then = now.total(), now


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--below", type=float, metavar="GIB", help="exit with status 1 if it takes more")
    parser.add_argument("given", nargs=argparse.REMAINDER, metavar="PATH ...", help="as of grade.py, with its options")


def main(given: list[str], below: float | None) -> int:
    command = [sys.executable, "grade.py", *(given or DEFAULTS)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        watch = PeakWatch(process.pid)
        with watching(watch.look, LOOK_EVERY_S):
            status = process.wait()
    parts = ", ".join(f"{name} {size / MIB:.0f} MiB" for name, size in watch.then.most_common())
    print(f"at most {watch.most / GIB:.2f} GiB at a time: {parts}")
    return status or int(below is not None and watch.most > below * GIB)
