"""Grade on a Ray cluster of nodes on this machine: how the throughput grows with the nodes, and what kills cost.

    python -m assignment.attacks.clusters scale [--nodes 1 2 4 8] [--cpus 1] [--seconds 2] [--each 10] [--jobs N]
    python -m assignment.attacks.clusters kills [--times 50] [--what node worker driver] [--seed N]

`scale` has grades that only sleep, so many for each processor (or --jobs in all), and compares with what no overhead
would give. `kills` grades the weighted sum of twenty submissions again and again while nodes, Ray's workers on them and
the driver are killed at random moments; each time the same command goes on until it is done, and the results must be
those of an undisturbed run.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assignment.attacks.corpus import entries
from assignment.attacks.raylets import Raylets, raylets
from assignment.classroom import batch, cluster, results
from assignment.classroom.cluster import Needs
from assignment.classroom.handed_in import Handed
from assignment.judge import checks
from assignment.submission import Submission

ROOT = Path(__file__).resolve().parents[2]
CLASS = 20
FIRST = checks.without_practice(checks.declared())[0].problem
SLACK = 1.15
SAID = 2000  # characters
COMMANDS = 50  # until a class must be through
LONGEST_S = 900.0  # a run of the command
REPORT = 60_000  # bytes, as a report with its log has


class Sleeping(batch.Grader):
    """Sleeps as many seconds as its first argument says, and returns as much as a grade does."""

    def __init__(self, arguments: list[str]) -> None:
        self._seconds = float(arguments[0])

    def start(self) -> None:
        """Do nothing: nothing has to be loaded."""

    def grade(self, job: batch.Job, limit_s: float) -> dict[str, Any]:
        time.sleep(self._seconds)
        return {"report": {"score": 0.0, "filler": "x" * REPORT}, "log": ""}


def slept(jobs: int, seconds: float) -> float:
    """Return how long a number of grades takes on this process's cluster, in seconds."""
    files = {"cs336_kernels/a.py": os.urandom(15_000).hex().encode()}
    made = [batch.Job(Handed(f"s{n}", Path(f"s{n}")), Submission(files), "") for n in range(jobs)]
    start = time.monotonic()
    done = list(cluster.grade_all(made, [str(seconds)], Needs(), 60.0, print, Sleeping))
    assert len(done) == jobs
    assert not [answer for _, answer in done if isinstance(answer, Exception)]
    return time.monotonic() - start


def scale(options: argparse.Namespace) -> int:
    """Print the throughput for each number of nodes; 1 where one is too far from linear."""
    print("nodes  at once  grades  seconds   ideal  ratio  grades/s")
    worst = 0.0
    for nodes in options.nodes:
        with raylets(nodes, options.cpus) as made, cluster.connected(made.address):
            at_once = nodes * options.cpus
            slept(at_once * 2, options.seconds)  # the nodes' processes have started
            jobs = options.jobs or at_once * options.each
            seconds, ideal = slept(jobs, options.seconds), -(-jobs // at_once) * options.seconds
            ratio = seconds / ideal if ideal else 0.0  # of grades that take no time only the rate says something
            worst = max(worst, ratio)
            print(
                f"{nodes:5}  {at_once:7}  {jobs:6}  {seconds:7.1f}  {ideal:6.1f}  {ratio:5.2f}  {jobs / seconds:8.2f}",
                flush=True,
            )
    return int(worst > SLACK)


# Kills.


def stage_class(folder: Path) -> None:
    """Write twenty submissions, variants and bugs of weighted sum in turn."""
    own = [entry for entry in entries() if entry.problems[:1] == (FIRST,)]
    kinds = [[entry for entry in own if entry.kind == kind] for kind in ("variant", "bug")]
    for number in range(CLASS):
        kind = kinds[number % 2]
        kind[number // 2 % len(kind)].submission.stage(folder / f"student{number:02}")


def command(folder: Path, to: Path, address: str, only: Sequence[str]) -> list[str]:
    """Return the command that grades the class."""
    program = [sys.executable, "-m", "assignment.classroom", "grade", str(folder), "--to", str(to)]
    return [*program, "--only", *only, "--device", "cpu", "--ray", address]


def timeless(to: Path) -> dict[str, Any]:
    """Return the results without what each grade has of its own."""
    found: dict[str, Any] = {"table": (to / "grades.csv").read_text()}
    for path in sorted((to / "reports").iterdir()):
        report = json.loads(path.read_text())
        report["seconds"] = report["cpu_s"] = report["classroom"]["graded"] = None
        found[path.name] = report
    for path in sorted((to / "logs").iterdir()):
        found[path.name] = path.read_text()
    return found


def differences(found: Any, expected: Any) -> str:
    """Return the fields of a report that are not as expected, with both values."""
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return f"{str(found)[:SAID]}\n{str(expected)[:SAID]}"
    keys = [key for key in sorted(found | expected) if found.get(key) != expected.get(key)]
    return "\n".join(f"{key}: {found.get(key)}, expected {expected.get(key)}" for key in keys)[:SAID]


def workers_of(made: Raylets) -> list[int]:
    """Return the processes in which the nodes' tasks run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            title = path.read_bytes()
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
            if title.startswith(b"ray::graded") and parent in {_raylet(node) for node in made.nodes}:
                found.append(int(path.parent.name))
    return found


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def strike(what: str, made: Raylets, driver: "subprocess.Popen[str]", chance: random.Random) -> bool:
    """Kill something; False where there is nothing of the kind."""
    if what == "node":
        made.kill(chance.choice(made.nodes))
        made.add()
    elif what == "driver":
        driver.kill()
    elif pids := workers_of(made):
        os.kill(chance.choice(pids), signal.SIGKILL)
    else:
        return False
    return True


def kills(options: argparse.Namespace) -> int:
    """Kill so many times, over as many runs as it takes; 1 where results differ from those of an undisturbed run."""
    chance, hits, runs, wrong = random.Random(options.seed), Counter[str](), 0, 0
    with tempfile.TemporaryDirectory(prefix="kills-") as name, raylets(2) as made:
        folder, calm = Path(name, "class"), Path(name, "calm")
        stage_class(folder)
        start = time.monotonic()
        subprocess.run(
            command(folder, calm, made.address, options.only),
            cwd=ROOT,
            check=True,
            timeout=LONGEST_S,
            capture_output=True,
        )
        expected = timeless(calm)
        print(f"undisturbed: {CLASS} submissions in {time.monotonic() - start:.0f} s", flush=True)
        while hits.total() < options.times:
            to = Path(name, f"results{runs}")
            for part in ("reports", "logs"):
                (to / part).mkdir(parents=True)
            shutil.copy(calm / results.SETTINGS, to)
            commands, said = _until_done(folder, to, made, options, chance, hits)
            runs += 1
            found = timeless(to)
            other = [name for name in sorted(found | expected) if found.get(name) != expected.get(name)]
            wrong += bool(other)
            print(f"run {runs}: {commands} commands, {dict(hits)}: {other or 'the same'}", flush=True)
            if other:
                print(differences(found.get(other[0]), expected.get(other[0])), said[-SAID:], sep="\n", flush=True)
    print(f"{hits.total()} kills over {runs} runs: {wrong} with other results")
    return int(wrong > 0)


def _until_done(
    folder: Path, to: Path, made: Raylets, options: argparse.Namespace, chance: random.Random, hits: Counter[str]
) -> tuple[int, str]:
    """Give the command, with kills, until it says that all is done; returns how often, and what it said last."""
    number, status = 0, 1
    while status and number < COMMANDS:
        number += 1
        with (to.parent / "said.txt").open("w") as out:
            driver = subprocess.Popen(
                command(folder, to, made.address, options.only),
                cwd=ROOT,
                text=True,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            start = time.monotonic()
            while driver.poll() is None and time.monotonic() - start < LONGEST_S:
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(chance.uniform(*options.every))
                if driver.poll() is None and hits.total() < options.times:
                    what = chance.choice(options.what)
                    hits[what] += strike(what, made, driver, chance)
            driver.kill()
        status = driver.wait()
    return number, (to.parent / "said.txt").read_text()


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m assignment.attacks.clusters", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    scaling = commands.add_parser("scale", help="throughput by the number of nodes")
    scaling.set_defaults(run=scale)
    scaling.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    scaling.add_argument("--cpus", type=int, default=1, help="grades at once on a node")
    scaling.add_argument("--seconds", type=float, default=2.0, help="a grade")
    scaling.add_argument("--each", type=int, default=10, help="grades for each processor")
    scaling.add_argument("--jobs", type=int, default=0, help="grades in all")
    killing = commands.add_parser("kills", help="results in spite of kills")
    killing.set_defaults(run=kills)
    killing.add_argument("--times", type=int, default=50)
    killing.add_argument(
        "--what", nargs="+", choices=("node", "worker", "driver"), default=["node", "worker", "driver"]
    )
    killing.add_argument("--every", type=float, nargs=2, default=(5.0, 25.0), help="seconds from one to the next")
    killing.add_argument("--only", nargs="+", default=[FIRST], help="as of grade.py")
    killing.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    return int(options.run(options))


if __name__ == "__main__":
    raise SystemExit(main())
