"""Compare verdicts with those where Triton's compiler is missing: `python -m assignment.bank native [NAME ...]`.

What a Mac has of Triton, its Python files and what stands in for its compiled part, is laid out beside this Python's
other packages, in an environment of its own. There and here are graded the reference and the stubs, the table of
constructs, and the bugs, variants and cheats by `python -m assignment.bank grade`, on the same seeds. Each verdict that
differs is printed, but for those of checks that compile; without one the exit status is 0. With names only these
submissions are graded. It goes on where it was interrupted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assignment.bank.corpus import entries
from assignment.bank.run.grade import KEPT, BankGrade, jobs_of, read, selected
from assignment.bank.run.judging import digest, key
from assignment.digest import ROOT
from assignment.simulator import kept_triton
from assignment.verdict import checks, reporting

Told = dict[str, str]  # by a name: what was said of a check, or of a construct
PATH_FILE = "zz-packages.pth"  # after Triton's
CONSTRUCTS = "assignment/tests/test_simulator_constructs.py"
UNTOLD = ("rerun", "debug", "compiled")  # of a report: what tells of the run


@dataclass(frozen=True)
class Comparison:
    """A command that is run in both environments, which writes a file, and what that tells."""

    name: str
    command: Callable[[Path], list[str]]
    read: Callable[[Path], Told]


def main(names: Sequence[str], quick: bool, seeds: int | None, first: int, shard: str, jobs: int) -> int:
    """Grade in both environments, print what differs and return 1 if anything does."""
    without = checks.COMPILES if quick else ""
    asked = BankGrade(names, seeds=seeds, first=first, quick=quick, without=without, jobs=jobs, shard=shard)
    wholes = [] if names else [constructs(), *(graded(path, first) for path in ("assignment/reference", "."))]
    n_all, n_different = 0, 0
    with tempfile.TemporaryDirectory(prefix="native-") as folder:
        pythons = Path(sys.executable), environment(Path(folder, "environment"))
        for one in [*wholes, submissions(asked)]:
            files = [KEPT.with_name("native.jsonl"), KEPT.with_name("native-without.jsonl")]
            if one.name:
                files = [Path(folder, f"{one.name.replace('/', '-')}-{i}") for i in range(2)]
            different, count = compared(one, pythons, files)
            print(*different, f"{one.name or 'submissions'}: {count} verdicts, {len(different)} differ", sep="\n")
            n_all, n_different = n_all + count, n_different + len(different)
    print(f"{n_all} verdicts, {n_different} of them different without Triton's compiler")
    return 1 if n_different or not n_all else 0


def environment(folder: Path) -> Path:
    """Make one with this Python's packages and, in front of its Triton, that without a compiler; returns its Python."""
    venv.EnvBuilder(symlinks=True).create(folder)
    triton = kept_triton.origin("triton")
    assert triton is not None
    home = folder / kept_triton.FOLDER / "copied"
    kept_triton.keep(triton.parents[1], home)
    kept_triton.find(folder, home)
    packages = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    kept_triton.packages_of(folder).joinpath(PATH_FILE).write_text("".join(f"{entry}\n" for entry in packages))
    return folder / "bin" / "python"


def compared(one: Comparison, pythons: Sequence[Path], files: Sequence[Path]) -> tuple[list[str], int]:
    """Run a command in both environments at once; returns what differs, and how much was compared."""
    commands = [[str(python), *one.command(file)] for python, file in zip(pythons, files, strict=True)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for command in commands]
    for process in running:
        process.wait()
    here, there = map(one.read, files)
    pairs = {name: (here.get(name, "nothing"), there.get(name, "nothing")) for name in here | there}
    different = [f"{name}:\n  compiler  {a}\n  without   {b}" for name, (a, b) in pairs.items() if a != b]
    return different, len(pairs)


def submissions(asked: BankGrade) -> Comparison:
    """Return the gradings of what was asked for."""
    part, n_parts = map(int, asked.shard.split("/"))
    chosen = [entry for entry in entries() if selected(entry, asked.names)][part - 1 :: n_parts]
    judged_by, unknown = digest("cpu"), compiling()
    wanted = {key(job, judged_by) for entry in chosen for job in jobs_of(entry, asked)}
    command = ["-m", "assignment.bank", "grade", *asked.names, "--device", "cpu", "--jobs", str(asked.jobs)]
    command += [
        "--first",
        str(asked.first),
        "--shard",
        asked.shard,
        *(["--quick", "--without", asked.without] if asked.quick else []),
    ]
    command += ["--seeds", str(asked.seeds)] if asked.seeds else []

    def told(file: Path) -> Told:
        return {
            f"{result.name}, seed {result.seed}, {name}": repr(verdict)
            for result in read(file, wanted).values()
            for name, verdict in [*result.verdicts.items(), ("the run", (result.status, result.trouble))]
            if name not in unknown
        }

    return Comparison("", lambda file: [*command, "--kept", str(file), "--write", f"{file}.md"], told)


def graded(path: str, seed: int) -> Comparison:
    """Return a grade of what lies in a folder."""
    command = ["grade.py", path, "--practice", "--jobs", "1", "--device", "cpu", "--seed", str(seed)]

    def told(file: Path) -> Told:
        entries = reporting.entries_of(json.loads(file.read_text(encoding="utf-8")))
        own = [entry for entry in entries if entry["name"] not in compiling()]
        return {entry["name"]: repr({k: v for k, v in entry.items() if k not in UNTOLD}) for entry in own}

    return Comparison(path, lambda file: [*command, "--json", str(file)], told)


def constructs() -> Comparison:
    """Return the tests of the table of constructs."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", CONSTRUCTS]

    def told(file: Path) -> Told:
        tests = ElementTree.parse(file).iter("testcase")
        return {str(test.get("name")): " ".join(said.tag for said in test) or "passed" for test in tests}

    return Comparison("constructs", lambda file: [*command, f"--junit-xml={file}"], told)


def compiling() -> set[str]:
    """Return the checks that are not graded without a compiler."""
    return {check.name for check in checks.declared() if check.is_compiled}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="as of python -m assignment.bank grade")
    parser.add_argument("--quick", action="store_true", help="likewise, as the following ones")
    parser.add_argument("--seeds", type=int, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="K")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--jobs", type=int, default=1, help="processes that judge, in each environment (1)")
