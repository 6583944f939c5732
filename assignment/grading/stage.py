"""The folder that a run's workers live in, from their start until the last of them is gone."""

import compileall
import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assignment.grading.submission import Submission

OURS = Path(__file__).resolve().parents[1]
RUNTIME = (  # all that a worker may import, and itself
    *("__init__.py", "simulator", "compiling", "grading/__init__.py", "grading/protocol.py"),
    *("grading/probes.py", "grading/requests.py", "grading/compilations.py"),
    *("grading/timed.py", "grading/start.py"),
    *("grading/worker.py", "grading/supervisor.py", "grading/confinement.py", "grading/landlock.py"),
    *("grading/seccomp.py", "grading/leftovers.py"),
)
SUBMISSION_TIMEOUT_S = {"cpu": 600.0, "cuda": 1800.0}  # the reference takes 30 s on two cores
WORKERS_END_S = 10.0


class Stage:
    """A temporary folder with one submission, copies of what a worker may import beside it, and scratch space.

    It keeps the submission's time too, which all workers share.
    """

    def __init__(self, submission: Submission, device: str = "cpu") -> None:
        self._root, self._device = Path(tempfile.mkdtemp(prefix="grade-")).resolve(), device
        self.submission, self.runtime, self._scratch = (
            self._root / name for name in ("submission", "runtime", "scratch")
        )
        self._scratch.mkdir()
        for name in RUNTIME:
            copy(OURS / name, self.runtime / OURS.name / name)
        self._all_gone, self.living = os.pipe()  # a worker holds `living` as long as it, or its supervisor, lives
        self._hold(submission)

    def _hold(self, submission: Submission) -> None:
        submission.stage(self.submission)
        self.caches = submission.sha256[:16]  # a name for what is compiled
        self.deadline = time.monotonic() + SUBMISSION_TIMEOUT_S[self._device]

    def new_scratch(self) -> Path:
        """An empty folder for one worker."""
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def replace(self, submission: Submission) -> None:
        """Hold this submission and no other."""
        for path in self.submission.iterdir():  # the folder itself stays: it may be bound into a sandbox
            remove(path)
        self._hold(submission)

    def close(self) -> None:
        """Remove everything, as soon as no worker is left that could still write."""
        os.close(self.living)
        select.select([self._all_gone], [], [], WORKERS_END_S)
        os.close(self._all_gone)
        remove(self._root)


def copy(source: Path, target: Path) -> None:
    """A file or a folder of modules, each with its compiled form, which is made where it can be kept."""
    modules = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    for module in modules:
        compileall.compile_file(module, quiet=2)  # where the checkout can be written to; nothing if it is done already
        copied = target / module.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, copied)  # with its time, which the compiled form remembers
        compiled = Path(module.parent, "__pycache__", f"{module.stem}.{sys.implementation.cache_tag}.pyc")
        if compiled.exists():
            (copied.parent / "__pycache__").mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # replaced by another run at this moment
                shutil.copy2(compiled, copied.parent / "__pycache__")


def remove(folder: Path) -> None:
    """Delete a folder, however deep, and whatever its permissions."""
    for program in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*program, "--", str(folder)], stderr=subprocess.DEVNULL)
