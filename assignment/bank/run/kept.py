"""Grade known submissions by grade.py and compare with kept verdicts: `python -m assignment.bank kept`.

bank/kept.json has what Linux said of the reference, of right variants and of bugs on one seed: each check's status,
points, passed cases, hint and findings with their lines. Where Triton's compiler is missing, what compiles is left out.
With --write they are graded anew and kept. Exit status 1 where anything differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from assignment.bank.corpus import Entry, entries
from assignment.digest import ROOT
from assignment.simulator.kept_triton import has_compiler
from assignment.submission import REFERENCE
from assignment.verdict import checks, reporting
from assignment.verdict.entries import Report

KEPT = Path(__file__).resolve().parents[1] / "kept.json"
Verdicts = dict[str, list[float | str]]  # by the check


def main(write: bool, jobs: int) -> int:
    """Grade what is kept, and compare or keep it."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = {}
    for name in kept["verdicts"]:
        found[name] = graded(name, kept["seed"], jobs)
        if write:  # at once: it takes minutes
            text = json.dumps({**kept, "verdicts": kept["verdicts"] | found}, indent=1, ensure_ascii=False)
            KEPT.write_text(f"{text}\n", encoding="utf-8")
    if write:
        return 0
    left_out = set() if has_compiler() else {check.name for check in checks.declared() if check.is_compiled}
    differences, count = [], 0
    for name, verdicts in kept["verdicts"].items():
        for check in (check for check in verdicts | found[name] if check not in left_out):
            count += 1
            if (was := verdicts.get(check)) != (came := found[name].get(check)):
                differences.append(f"{name}, {check}:\n  kept  {was}\n  here  {came}")
    print(*differences, f"{count} verdicts on {sys.platform}, {len(differences)} not as kept", sep="\n")
    return 1 if differences or not count else 0


def graded(name: str, seed: int, jobs: int) -> Verdicts:
    """Return what grade.py says of a submission; of nothing where it fails."""
    entry = next((entry for entry in entries() if entry.name == name), None)  # none for the reference
    with tempfile.TemporaryDirectory(prefix="kept-") as folder:
        where, report = REFERENCE, Path(folder, "report.json")
        if entry:
            where = Path(folder, "submission")
            for path, content in entry.submission.files.items():
                (where / path).parent.mkdir(parents=True, exist_ok=True)
                (where / path).write_bytes(content)
        command = [sys.executable, "grade.py", str(where), "--seed", str(seed), "--jobs", str(jobs), "--device", "cpu"]
        command += ["--json", str(report), *(("--only", *_problems(entry)) if entry else ())]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        if not report.exists():
            return {}
        told: Report = json.loads(report.read_text(encoding="utf-8"))
    return {
        check["name"]: [
            check["status"], check["score"], check["passed"], check["hint"],
            *(f"{one['kind']} {' '.join(one['places'])}" for one in check["findings"]),
        ]
        for check in reporting.entries_of(told)
    }  # fmt: skip


def _problems(entry: Entry) -> tuple[str, ...]:
    return (entry.problem,) if entry.problem else entry.problems


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="keep what is said here")
    parser.add_argument("--jobs", type=int, default=1, help="processes that judge (1)")
