"""How much of a GPU a grade takes: all its processes together, at the most.

python -m assignment.bank gpu_memory [PATH] [--of GIB] [--only NAME ...]

With --of, on a GPU of so many GiB: what a larger one has beyond that is taken, and the grader told. Nothing else should
use the GPU meanwhile.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch

from assignment.bank.run.watching import watching
from assignment.commands import cli
from assignment.digest import ROOT
from assignment.judge import pool
from assignment.timing import speed

LOOK_EVERY_S = 0.02
GIB = 1 << 30


def grade(total: int, arguments: list[str]) -> int:
    """Return what grade.py does, where the GPU's memory is said to be so large."""
    honest = pool.properties_of_gpu
    pool.properties_of_gpu = speed.properties_of_gpu = lambda: {**honest(), "total_memory": total}
    sys.argv = ["grade.py", *arguments]
    return cli.main()


class GpuWatch:
    """How much is taken, and was at the most."""

    def __init__(self) -> None:
        self.before = self.most = used()

    def look(self) -> None:
        self.most = max(self.most, used())


def used() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", type=Path, default=ROOT / "assignment/reference")
    parser.add_argument("--of", type=float, metavar="GIB", help="of a GPU's memory (default: all)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="as of grade.py")
    parser.add_argument("--total", type=int, help=argparse.SUPPRESS)  # bytes: this process is to grade


def main(path: Path, of: float | None, only: list[str], total: int | None) -> int:
    if not torch.cuda.is_available():
        print("a GPU's memory is looked at on a GPU, and PyTorch finds none", file=sys.stderr)
        return 2
    arguments = [str(path), "--device", "cuda", *(["--only", *only] if only else [])]
    if total:
        return grade(total, arguments)
    free, whole = torch.cuda.mem_get_info()
    limit = min(whole, round(of * GIB)) if of else whole
    taken = torch.empty(max(0, free - limit), dtype=torch.uint8, device="cuda")
    command = [sys.executable, "-m", "assignment.bank", *sys.argv[1:], "--total", str(limit)]
    watch = GpuWatch()
    with watching(watch.look, LOOK_EVERY_S):
        status = subprocess.run(command, cwd=ROOT).returncode
    print(f"at most {(watch.most - watch.before) / GIB:.1f} GiB of {limit / GIB:.1f} taken at a time")
    del taken
    return status
