"""`gradescope --to autograder.zip`: what Gradescope makes its image of, and runs for each submission.

setup.sh, run_autograder    Gradescope's two scripts
settings.json               the grader's commit, and what was chosen here
grader/                     the student release, and what writes results.json; no attacks, no reference
"""

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from assignment import release
from assignment.classroom.autograder.harness import HarnessSettings
from assignment.commands.files import replace
from assignment.submission import UnusableSubmission

OURS = "assignment/classroom/autograder/"
SCRIPTS = ("setup.sh", "run_autograder")
TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip knows: the same commit gives the same bytes
VISIBILITIES = ("visible", "after_due_date", "after_published", "hidden")


def run(console: Console, to: Path, seed: int | None, visibility: str, minutes: float) -> int:
    """Write the zip; returns the exit status."""
    try:
        commit = release.head_commit(release.ROOT)
        tree = release.read_commit(release.ROOT, commit)
        files = packed(tree, HarnessSettings(commit, seed, visibility, minutes))
        replace(to, zipped(files))
    except (release.ReleaseError, OSError) as error:
        raise UnusableSubmission(str(error)) from error
    console.print(f"{to}: {len(files)} files of {commit[:12]}; upload it under Configure Autograder")
    console.print("and choose there: Container Specifications 4 CPU, 6 GB RAM; Autograder Timeout 40 minutes")
    return 0


def packed(tree: release.Tree, settings: HarnessSettings) -> release.Tree:
    """Return the files of an autograder, of a commit's."""
    graded = release.student_tree(tree)
    graded |= {path: tree[path] for path in ("assignment/classroom/__init__.py", *_modules(tree))}
    scripts = {name: release.File(tree[OURS + name].data, "100755") for name in SCRIPTS}
    chosen = release.File(json.dumps(asdict(settings), indent=1).encode())
    return {**scripts, "settings.json": chosen, **{f"grader/{path}": file for path, file in graded.items()}}


def _modules(tree: release.Tree) -> list[str]:
    return [path for path in tree if path.startswith(OURS) and path.endswith(".py")]


def zipped(files: release.Tree) -> bytes:
    """Return files as a zip, in which programs can be executed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, file in sorted(files.items()):
            entry = zipfile.ZipInfo(path, TIME)
            entry.external_attr = int(file.mode, 8) << 16
            archive.writestr(entry, file.data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
