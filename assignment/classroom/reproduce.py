"""`reproduce REPORT …`: the verdict of a report once more, alone, from what it says, and whether it is the same.

A report says all that decides a verdict: the seed (of the inputs, and of the order of the cases), the submission's
hash, the checks, the device, the sandbox, the versions of PyTorch, Triton, NumPy and Python, and of the grader a digest
and its commit. Where the grader here is another one, that commit is checked out beside it for as long as it takes.
"""

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from assignment.classroom import COMMAND, cpu, scratch
from assignment.classroom.kept import KeptReport
from assignment.commands import run as grading
from assignment.commands.files import replace
from assignment.submission import Submission, UnusableSubmission, pack, read
from assignment.verdict import reporting

FOLDER = "cs336-reproduce-"  # of temporary files: the beginning of the name
ROOT = Path(__file__).resolve().parents[2]
SAME, DIFFERENT = 0, 1
COMPARED = ("status", "score", "max_score", "cases", "passed", "message", "hint", "margin", "notes")
MAX_SHOWN = 200  # characters of a value
DONE = "reproduced.json"  # beside the reports of a class: what came of each


@dataclass(frozen=True)
class Repetition:
    """What came of a repetition: what is not the same, and what both took."""

    name: str
    differences: list[str]
    cpu_s: float
    cpu_then_s: float | None = None  # unknown of a report that no class's grader wrote
    notes: list[str] = field(default_factory=list)
    key: str = ""  # of its report, where it is kept


def run(
    console: Console, reports: list[Path], submission: Path | None, check: str | None, sample: int | None, seed: int
) -> int:
    """Repeat grades; returns 0 where all came out the same."""
    if sample is not None:
        (folder,) = reports
        return _run_sample(console, folder, sample, seed)
    if submission and len(reports) > 1:
        raise UnusableSubmission("--submission belongs to one report")
    is_same = True
    for path in reports:
        report = _read(path)
        found = _submission_of(report, path, submission)
        again = repeated(path.stem, report, found)
        is_same &= not again.differences
        _tell(again, report, console)
        if check:
            evidence = path.with_name(f"{path.stem}.evidence.txt")
            replace(evidence, explained(report, found, check).encode())
            console.print(Text(f"  {evidence} shows {check}, with what its host code was recorded to do"))
    return SAME if is_same else DIFFERENT


def _run_sample(console: Console, folder: Path, sample: int, seed: int) -> int:
    """Repeat some reports of a class, those of an earlier run with the same seed not again."""
    paths = sorted((folder / "reports").glob("*.json"))
    graded = [path for path in paths if "failed" not in _read(path)]
    chosen = random.Random(seed).sample(graded, min(sample, len(graded)))
    known = _known(folder)
    for path in chosen:
        report = _read(path)
        key = report["classroom"]["key"]
        if path.stem not in known or known[path.stem].key != key:
            again = repeated(path.stem, report, _submission_of(report, path, None))
            _tell(again, report, console)
            known[path.stem] = dataclasses.replace(again, key=key)
            kept = {name: dataclasses.asdict(one) for name, one in known.items()}
            replace(folder / DONE, json.dumps(kept, indent=1).encode())
    found = [known[path.stem] for path in chosen]
    timed = [one for one in found if one.cpu_then_s]
    alone, together = sum(one.cpu_s for one in timed), sum(one.cpu_then_s or 0.0 for one in timed)
    different = sum(bool(one.differences) for one in found)
    console.print(f"{len(found)} reports, {len(found) - different} the same alone, {different} different")
    if timed:
        console.print(f"processor time: {together:.0f} s in the class, {alone:.0f} s alone: {together / alone:.2f}")
    return DIFFERENT if different else SAME


def _known(folder: Path) -> dict[str, Repetition]:
    try:
        kept = json.loads((folder / DONE).read_text(encoding="utf-8"))
        return {name: Repetition(**{"name": name, **one}) for name, one in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _read(path: Path) -> KeptReport:
    """Return a report; raises UnusableSubmission."""
    try:
        report: KeptReport = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(report, dict) and ("failed" in report or {"seed", "device", "problems"} <= report.keys()):
            return report
    except (OSError, ValueError) as error:
        raise UnusableSubmission(f"{path} cannot be read: {error}; expected a report of grade.py --json") from error
    raise UnusableSubmission(f"{path}: expected a report of grade.py --json")


def _submission_of(report: KeptReport, path: Path, given: Path | None) -> Submission:
    """Return the files that a report is of, wherever they are; raises UnusableSubmission."""
    if "failed" in report:
        raise UnusableSubmission(f"{path}: this submission got no grade: {report['failed']}")
    wanted = report["submission_sha256"]
    kept = path.resolve().parents[1] / "sources" / f"{path.stem}.zip"
    places = [given] if given else [kept, Path(report.get("classroom", {}).get("source", ""))]
    for place in places:
        if place and place.exists():
            with contextlib.suppress(UnusableSubmission):
                submission = read(place)
                if submission.sha256 == wanted:
                    return submission
    looked = ", ".join(str(place) for place in places if place)
    raise UnusableSubmission(f"{path}: the submission {wanted[:12]}… is not in {looked}; give it with --submission")


def repeated(name: str, report: KeptReport, submission: Submission) -> Repetition:
    """Grade a submission in a process of its own, as its report says."""
    notes = differing_versions(report)
    with _grader_of(report, notes) as root, scratch.folder(FOLDER) as folder:
        to = folder / "report.json"
        command = _command(report, submission, root, folder)
        process = subprocess.Popen(
            [*command, "--json", str(to)],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            cpu_s = cpu.spent_s(process)
        finally:
            process.terminate()
        if not to.exists():
            said = f"the grader ended with exit status {process.returncode}"
            return Repetition(name, [said], cpu_s, report.get("cpu_s"), notes)
        return Repetition(name, differences(report, _read(to)), cpu_s, report.get("cpu_s"), notes)


def explained(report: KeptReport, submission: Submission, check: str) -> str:
    """Return what `grade.py --explain` says of a check under a report's seed."""
    with _grader_of(report, []) as root, scratch.folder(FOLDER) as folder:
        command = _command(report, submission, root, folder)
        done = subprocess.run(
            [*command[: command.index("--only")], "--explain", check],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder)},
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr


def _command(report: KeptReport, submission: Submission, root: Path, folder: Path) -> list[str]:
    """Return the command of a grade, up to where its report goes."""
    archive = folder / "submission.zip"
    archive.write_bytes(pack(submission))
    device = "cpu" if report["device"].startswith("cpu") else "cuda"
    command = [sys.executable, str(root / "grade.py"), str(archive), "--seed", str(report["seed"]), "--device", device]
    command += ["--sandbox", report["sandbox"]] if report["sandbox"] else []
    return [*command, "--jobs", str(report.get("jobs") or 1), "--only", *_checks(report)]


def _checks(report: KeptReport) -> list[str]:
    return [entry["name"] for entry in reporting.entries_of(report) if "::" in entry["name"]]


def differing_versions(report: KeptReport) -> list[str]:
    """Return what is of another version here than it was then, a sentence each; the grader apart."""
    here = grading.versions()
    then = {name: version for name, version in report["versions"].items() if name != "grader"}
    found = [f"{name} was {then[name]}, here it is {here[name]}" for name in then if then[name] != here.get(name)]
    packages = [f"--with {name}=={then[name]}" for name in ("torch", "triton", "numpy") if then[name] != here[name]]
    python = [f"--python {then['python']}"] if then.get("python", here["python"]) != here["python"] else []
    added = " ".join([*python, *packages])
    if found:
        found.append(f"the same ones: {COMMAND.replace(' python', f' {added} python', 1)} reproduce …")
    return found


@contextlib.contextmanager
def _grader_of(report: KeptReport, notes: list[str]) -> Iterator[Path]:
    """Give the checkout of a report's grader: this one, or its commit in a folder that goes again."""
    then = report["versions"].get("grader")
    commit = report.get("classroom", {}).get("grader", "")
    if then in (None, grading.versions()["grader"]):
        yield ROOT
        return
    if not commit or commit.endswith("+"):
        notes.append(f"the grader was another one ({then}), of no commit that is known; this one is {ROOT}")
        yield ROOT
        return
    with scratch.folder(FOLDER) as folder:
        place = folder / commit
        _git("worktree", "prune")  # of those that were killed
        _git("worktree", "add", "--detach", str(place), commit)
        try:
            notes.append(f"the grader is that of commit {commit}")
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def _git(*command: str) -> None:
    done = subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True)
    if done.returncode:
        raise UnusableSubmission(f"git {' '.join(command)}: {done.stderr.strip()[:300]}")


def differences(then: KeptReport, now: KeptReport) -> list[str]:
    """Return what two reports say differently of the checks of the first, a sentence each."""
    entries = {entry["name"]: entry for entry in reporting.entries_of(now)}
    found = []
    for before in reporting.entries_of(then):
        if "::" not in before["name"]:
            continue
        after = entries.get(before["name"])
        if after is None:
            found.append(f"{before['name']}: not graded")
            continue
        for key in COMPARED:
            if (was := before.get(key)) != (now_is := after.get(key)):
                found.append(f"{before['name']}: {key} was {_short(was)}, is {_short(now_is)}")
    return found


def _short(value: object) -> str:
    return repr(value) if len(repr(value)) <= MAX_SHOWN else f"{repr(value)[:MAX_SHOWN]}…"


def _tell(again: Repetition, report: KeptReport, console: Console) -> None:
    n_checks = len(_checks(report))
    said = "different" if again.differences else f"the same in {n_checks} checks, {report['score']:g} points"
    then = "" if again.cpu_then_s is None else f", {again.cpu_then_s:.0f} s in the class"
    console.print(Text(f"{again.name}: {said}; {again.cpu_s:.0f} s of processor time{then}"))
    for line in (*again.notes, *again.differences):
        console.print(Text(f"  {line}"))
