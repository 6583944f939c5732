"""Run other people's kernels and tests in the simulator, and beside it in Triton's interpreter.

`python -m assignment.bank suites --triton DIR --liger DIR ...` takes checkouts that you have: Triton's tests marked
for its interpreter, its tutorials, triton_kernels' and Liger-Kernel's tests, answers to Triton-Puzzles, TritonBench-G's
files. Of a test's cases a few are run, each with a time limit. Every case gets a line in --kept, which a later run
resumes: its kind, what was raised and where. Tests of scripts are the tensors that they leave, which both engines must
have alike. What a suite imports has to be installed; a folder of it may be named by PYTHONPATH.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from assignment.bank.run import results_page
from assignment.bank.run.suite_cases import (
    FAULT,
    FOUND,
    INTERPRETER,
    OTHER,
    REFUSED,
    RIGHT,
    SIMULATOR,
    SKIPPED,
    SLOW,
    TASK,
    WALL,
    WRONG,
    SuiteTask,
)
from assignment.digest import ROOT

TITLE = "Other people's kernels"
ENGINES = (SIMULATOR, INTERPRETER)
KINDS = (RIGHT, REFUSED, FAULT, OTHER, WRONG, FOUND, SLOW)
HEADER = f"suite | engine | cases | {' | '.join(KINDS)} | CPU s"
MARK = "pytest.mark.interpreter"
GRACE_S = 60.0  # beyond a case's limit, after which its process is ended
CLOSE = 1e-2  # of the largest element: what TF32, and sums in another order, may come to
ENDED = "crashed"  # the engine's process has


@dataclass(frozen=True)
class Suite:
    """Cases in a checkout."""

    name: str
    option: str  # that names the checkout
    files: str
    is_tests: bool = True  # of pytest; else scripts
    folder: str = "."  # in which they are run, and which they import from
    marked: bool = False  # only what has MARK


SUITES = (
    Suite("Triton's unit tests for its interpreter", "triton", "**/test_*.py", folder="python/test/unit", marked=True),
    Suite("Triton's tutorials", "triton", "[0-9]*.py", is_tests=False, folder="python/tutorials"),
    Suite("triton_kernels' tests", "triton", "tests/**/test_*.py", folder="python/triton_kernels"),
    Suite("Triton-Puzzles' answers", "puzzles", "*ans*.py", is_tests=False),
    Suite("Liger-Kernel's tests", "liger", "test/transformers/test_*.py"),
    Suite("TritonBench-G", "tritonbench", "*.py", is_tests=False, folder="data/TritonBench_G_v1"),
)


@dataclass
class EngineRun:
    """One engine on one suite."""

    suite: Suite
    engine: str
    folder: Path
    kept: Path
    limit_s: float
    per_function: int

    def lines(self) -> list[dict]:
        """Return the lines about cases of this run."""
        return [line for line in lines(self.kept) if (line["suite"], line["engine"]) == (self.suite.name, self.engine)]

    def add(self, found: list[dict]) -> None:
        with self.kept.open("a", encoding="utf-8") as file:
            for line in found:
                file.write(json.dumps({"suite": self.suite.name, "engine": self.engine, **line}) + "\n")

    def files(self, only: str) -> list[Path]:
        found = [path for path in sorted(self.folder.glob(self.suite.files)) if only in path.name]
        return [path for path in found if not self.suite.marked or MARK in path.read_text(encoding="utf-8")]

    def environment(self, job: SuiteTask) -> dict[str, str]:
        path = [str(ROOT), str(self.folder), str(self.folder / "src"), os.environ.get("PYTHONPATH", "")]
        given = {"PYTHONPATH": os.pathsep.join(filter(None, path)), TASK: json.dumps(asdict(job)), "MPLBACKEND": "Agg"}
        return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **given}

    def tests(self, path: Path) -> None:
        """Run a file of tests, in a further process where one has ended at a case that crashed or was too slow."""
        name = str(path.relative_to(self.folder))
        is_over = False
        while not is_over:
            with tempfile.TemporaryDirectory() as scratch:
                kept = Path(scratch) / "cases.jsonl"
                kept.touch()
                done = tuple(line["case"] for line in self.lines() if line["case"].startswith(name))
                job = SuiteTask(self.engine, str(kept), self.limit_s, self.per_function, done)
                plugins = ["assignment.simulator.pytest_plugin"] if self.engine == SIMULATOR else []
                loaded = [part for one in (*plugins, "assignment.bank.run.suite_cases") for part in ("-p", one)]
                rest = ["-q", "--tb=no", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", "-W", "ignore"]
                marked = ["-m", MARK.rpartition(".")[2]] if self.suite.marked else []
                command = [sys.executable, "-m", "pytest", *loaded, *rest, *marked, name]
                self._watched(command, job, kept)
                found = list(lines(kept))
            finished = [line for line in found if "case" in line]
            begun = [line["began"] for line in found if "began" in line]
            unfinished = [case for case in begun[-1:] if case not in {line["case"] for line in finished}]
            self.add(
                [*finished, *({"case": case, "kind": OTHER, "error": ENDED, "seconds": 0.0} for case in unfinished)]
            )
            is_over = not unfinished and not any("left" in line for line in found)

    def _watched(self, command: list[str], job: SuiteTask, kept: Path) -> None:
        """Run a command until it ends, or nothing is written any more."""
        devnull = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment(job), stdout=devnull, stderr=devnull)
        size = -1
        while process.poll() is None:
            try:
                process.wait(WALL * self.limit_s + GRACE_S)
            except subprocess.TimeoutExpired:
                if kept.stat().st_size == size:
                    process.kill()
                size = kept.stat().st_size

    def script(self, path: Path, values: Path) -> None:
        """Run a script, whose tensors go to a file."""
        name = str(path.relative_to(self.folder))
        job = SuiteTask(self.engine, "", self.limit_s, 0, ())
        command = [sys.executable, "-m", "assignment.bank.run.suite_cases", name, str(values)]
        line = {"case": name, "kind": SLOW, "error": "", "seconds": self.limit_s}
        try:
            until = WALL * self.limit_s + GRACE_S
            environment = self.environment(job)
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, timeout=until)
            last = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
            line = json.loads(last) if last.startswith('{"case"') else {**line, "kind": OTHER, "error": ENDED}
        except subprocess.TimeoutExpired:
            pass
        self.add([line])


def lines(kept: Path) -> Iterator[dict]:
    if kept.exists():
        yield from map(json.loads, kept.read_text(encoding="utf-8").splitlines())


def differing(ours: Path, theirs: Path) -> str:
    """Return which tensor of a script the engines have not alike; "" where there is none, or one has no tensors."""
    import torch

    if not (ours.exists() and theirs.exists()):
        return ""
    (mine, unwritten), (other, _) = torch.load(ours), torch.load(theirs)
    for name in mine.keys() & other.keys():
        one, two = mine[name].double(), other[name].double()
        if unwritten.get(name) is not None and one.shape == two.shape:  # anything may stand there
            one, two = one[~unwritten[name]], two[~unwritten[name]]
        scale = two.nan_to_num(0, 0, 0).abs().max().item() if two.numel() else 0.0
        if one.shape != two.shape or not torch.allclose(one, two, CLOSE, CLOSE * scale, equal_nan=True):
            return f"{name} differs from the interpreter's"
    return ""


def table(kept: Path) -> list[str]:
    """Return the rows of what was run."""
    found = list(lines(kept))
    rows = []
    for suite in SUITES:
        for engine in ENGINES:
            own = [line for line in found if (line["suite"], line["engine"]) == (suite.name, engine)]
            latest = {line["case"]: line for line in own}.values()
            counts = Counter(line["kind"] for line in latest)
            if n := len(latest) - counts[SKIPPED]:
                figures = [n, *(counts[kind] for kind in KINDS), round(sum(line["seconds"] for line in latest))]
                rows.append([suite.name, engine, *map(str, figures)])
    return results_page.table(HEADER, rows)


def arguments(parser: argparse.ArgumentParser) -> None:
    for option in dict.fromkeys(suite.option for suite in SUITES):
        names = ", ".join(suite.name for suite in SUITES if suite.option == option)
        parser.add_argument(f"--{option}", type=Path, metavar="DIR", help=f"a checkout, for {names}")
    parser.add_argument("--kept", type=Path, default=Path("suites.jsonl"), help="a line for each case (suites.jsonl)")
    parser.add_argument("--only", default="", metavar="TEXT", help="files that have this in their name")
    parser.add_argument("--shard", type=shard_of, default=(1, 1), metavar="I/N", help="a part of each suite's files")
    parser.add_argument("--per-function", type=int, default=5, metavar="N", help="cases of each test (5)")
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="CPU seconds that a case may take (60)")
    parser.add_argument("--write", action="store_true", help="write the section of results.md")


def shard_of(text: str) -> tuple[int, int]:
    """Return the parts of I/N."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"expected I/N, got {text}")
    return int(number), int(of)


def main(
    kept: Path,
    only: str,
    shard: tuple[int, int],
    per_function: int,
    limit: float,
    write: bool,
    **checkouts: Path | None,
) -> int:
    """Run what is left to do, and print the table."""
    values = kept.resolve().with_suffix(".values")
    values.mkdir(exist_ok=True)
    for suite in SUITES:
        checkout = checkouts[suite.option]
        if checkout is None:
            continue
        runs = [
            EngineRun(suite, e, (checkout / suite.folder).resolve(), kept.resolve(), limit, per_function)
            for e in ENGINES
        ]
        for path in runs[0].files(only)[shard[0] - 1 :: shard[1]]:
            print(f"{suite.name}: {path.name}", flush=True)
            for run in runs:
                if suite.is_tests:
                    run.tests(path)
                elif str(path.relative_to(run.folder)) not in {line["case"] for line in run.lines()}:
                    run.script(path, values / f"{path.stem}.{run.engine}")
            if not suite.is_tests:
                mine, other = ({line["case"]: line for line in run.lines()}[path.name] for run in runs)
                said = differing(*(values / f"{path.stem}.{e}" for e in ENGINES))
                if said and mine["kind"] == other["kind"] == RIGHT:
                    runs[0].add([{**mine, "kind": WRONG, "error": said}])
    print("\n".join(table(kept)))
    if write:
        part = "" if shard == (1, 1) else f" Of each suite's files a part, {shard[0]}/{shard[1]}."
        limits = f"At most {per_function} cases of a test, each of at most {limit:g} s of CPU time.{part}"
        results_page.write(TITLE, "python -m assignment.bank suites --write", "\n".join([limits, "", *table(kept)]))
    return 0
