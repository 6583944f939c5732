"""`python -m assignment.tests.courses [NAME ...]`: three other courses, cut and graded as their staff would.

Each is a clone of the last commit with another course.toml. Of all of them, and of the course here, it is said whether
releases can be cut. Those that are named are cut, their reference graded and the tests run that read the course.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from assignment.release import ROOT

OTHERS = {
    "fewer": {"flash_backward_pytorch": '"off"', "speed": "0"},
    "promoted": {"weighted_sum": "6", "softmax": "14.5", "rmsnorm": '"practice"'},
    "renamed": {
        "title": '"GPU kernels"',
        "institution": '"ETH"',
        "due": "2026-11-30T23:59:00+01:00",
        "rmsnorm": "33.33",
    },
}
TESTS = [
    f"assignment/tests/test_{name}.py" for name in ("reference", "release", "in_course", "course", "checks", "maps")
]


def main(arguments: list[str]) -> int:
    """Try the courses; returns 0 where nothing is in the way."""
    parser = argparse.ArgumentParser(
        prog="python -m assignment.tests.courses", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(OTHERS)}: graded and tested, too")
    names = parser.parse_args(arguments).names
    if unknown := {*names} - {*OTHERS}:
        parser.error(f"expected names of {', '.join(OTHERS)}, got {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("this", *OTHERS):
            try:
                _try(Path(scratch, name), OTHERS.get(name, {}), is_graded=name in names)
            except subprocess.CalledProcessError as error:
                print(f"{name}: {' '.join(map(str, error.cmd))} ended with {error.returncode}")
                print(error.stdout, error.stderr, sep="\n")
                return 1
            print(f"{name}: {'cut, graded and tested' if name in names else 'can be cut'}", flush=True)
    return 0


def _try(folder: Path, points: dict[str, str], is_graded: bool) -> None:
    run("git", "clone", "--quiet", str(ROOT), str(folder), at=ROOT)
    file = folder / "course.toml"
    text = file.read_text(encoding="utf-8")
    for key, value in points.items():
        text, n = re.subn(rf"^(?:# )?{key} = \S.*?(?=  |$)", f"{key} = {value}", text, flags=re.MULTILINE)
        text += "" if n else f"{key} = {value}\n"
    file.write_text(text, encoding="utf-8")
    python("-m", "assignment.release", "stubs", at=folder)
    if points:
        run(
            "git",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "--quiet",
            "--allow-empty",
            "-am",
            "Course",
            at=folder,
        )
    for release in ("student", "solution"):
        python("-m", "assignment.release", release, "--check", at=folder)
    if is_graded:
        _grade(folder)


def _grade(folder: Path) -> None:
    """Grade the stubs and the solution, as they are cut; run the tests that read the course."""
    for release in ("student", "solution"):
        cut = folder.with_name(f"{folder.name}-{release}")
        python("-m", "assignment.release", release, "--to", cut, at=folder)
        python("grade.py", "--json", "report.json", at=cut)
        report = json.loads((cut / "report.json").read_text())
        expected = 0.0 if release == "student" else report["gradable"]
        assert report["score"] == expected > -1, f"{release}: {report['score']} of {report['gradable']} points"
        shutil.rmtree(cut)
    python("-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, at=folder)


def python(*arguments: object, at: Path) -> None:
    run(sys.executable, *map(str, arguments), at=at)


def run(*command: str, at: Path) -> None:
    subprocess.run(command, cwd=at, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
