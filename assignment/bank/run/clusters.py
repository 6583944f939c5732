"""Grade on a Ray cluster of nodes on this machine: how the throughput grows with the nodes. For kills see kills.py.

    python -m assignment.bank clusters [--nodes 1 2 4 8] [--cpus 1] [--seconds 2] [--each 10] [--jobs N]

Grades only sleep, so many for each processor (or --jobs in all), and are compared with what no overhead would give.
"""

import argparse
import os
import time
from pathlib import Path

from assignment.bank.run.raylets import raylets
from assignment.classroom import batch, cluster, results
from assignment.classroom.cluster import Needs
from assignment.classroom.handed_in import Handed
from assignment.classroom.kept import GraderAnswer
from assignment.submission import Submission

SLACK = 1.15
REPORT = 60_000  # bytes, as a report with its log has


class Sleeping(batch.Grader):
    """Sleeps as many seconds as its settings name, and returns as much as a grade does."""

    def __init__(self, settings: results.ClassSettings) -> None:
        self._seconds = float(settings.only[0])

    def start(self) -> None:
        """Do nothing: nothing has to be loaded."""

    def grade(self, job: batch.Job, limit_s: float) -> GraderAnswer:
        time.sleep(self._seconds)
        return {"report": results.failed(""), "log": "x" * REPORT}


def slept(jobs: int, seconds: float) -> float:
    """Return how long a number of grades takes on this process's cluster, in seconds."""
    files = {"cs336_kernels/a.py": os.urandom(15_000).hex().encode()}
    made = [batch.Job(Handed(f"s{n}", Path(f"s{n}")), Submission(files), "") for n in range(jobs)]
    start = time.monotonic()
    done = list(cluster.grade_all(made, results.ClassSettings(0, only=(str(seconds),)), Needs(), 60.0, print, Sleeping))
    assert len(done) == jobs
    assert not [answer for _, answer in done if isinstance(answer, Exception)]
    return time.monotonic() - start


def main(nodes: list[int], cpus: int, seconds: float, each: int, jobs: int) -> int:
    """Print the throughput for each number of nodes; 1 where one is too far from linear."""
    print("nodes  at once  grades  seconds   ideal  ratio  grades/s")
    worst = 0.0
    for count in nodes:
        with raylets(count, cpus) as made, cluster.connected(made.address):
            at_once = count * cpus
            slept(at_once * 2, seconds)  # the nodes' processes have started
            grades = jobs or at_once * each
            took, ideal = slept(grades, seconds), -(-grades // at_once) * seconds
            ratio = took / ideal if ideal else 0.0  # of grades that take no time only the rate says something
            worst = max(worst, ratio)
            print(
                f"{count:5}  {at_once:7}  {grades:6}  {took:7.1f}  {ideal:6.1f}  {ratio:5.2f}  {grades / took:8.2f}",
                flush=True,
            )
    return int(worst > SLACK)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--cpus", type=int, default=1, help="grades at once on a node")
    parser.add_argument("--seconds", type=float, default=2.0, help="a grade")
    parser.add_argument("--each", type=int, default=10, help="grades for each processor")
    parser.add_argument("--jobs", type=int, default=0, help="grades in all")
