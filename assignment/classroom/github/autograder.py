"""Classroom 50 runs this in a student's checkout: grades it with the course's grader at a fixed commit."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY, COMMIT = "https://github.com/GRADER_REPOSITORY", "GRADER_COMMIT"
UNUSABLE = 2  # no cs336_kernels/ in it, which is for the student to mend


def main() -> int:
    """Write result.json and release-body.md here; returns an exit status, 0 also for a grade of 0 points."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        grader, report = Path(scratch, "grader"), Path(scratch, "report")
        for folder in (grader, report):
            folder.mkdir()
        for command in (["init", "--quiet"], ["fetch", "--quiet", "--depth=1", REPOSITORY, COMMIT]):
            subprocess.run(["git", *command], cwd=grader, check=True)
        subprocess.run(["git", "checkout", "--quiet", "FETCH_HEAD"], cwd=grader, check=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{scratch}/uv", "uv"]
        subprocess.run(install, check=True)
        environment = {**os.environ, "PYTHONPATH": f"{scratch}/uv"}
        sync = [sys.executable, "-m", "uv", "sync", "--quiet", "--no-default-groups", "--python", sys.executable]
        subprocess.run(sync, cwd=grader, env=environment, check=True)
        python = grader / ".venv/bin/python"
        forms = [f"--{form}={report / name}" for form, name in (("json", "report.json"), ("markdown", "report.md"))]
        with (report / "report.txt").open("wb") as said:  # never the log, which would take lines of it for commands
            status = subprocess.run([python, grader / "grade.py", *forms], stdout=said, stderr=said).returncode
        forms_of_github = [str(python), "-m", "assignment.commands.github", str(report), str(status)]
        subprocess.run(forms_of_github, cwd=grader, check=True, stdout=subprocess.DEVNULL)
        shutil.copy(report / "report.md", here / "release-body.md")
        if (report / "result.json").exists():
            shutil.copy(report / "result.json", here / "result.json")
    return 0 if status == UNUSABLE else status


if __name__ == "__main__":
    raise SystemExit(main())
