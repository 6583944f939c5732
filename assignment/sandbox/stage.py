"""The folder that a run's workers live in, from their start until the last of them is gone."""

import compileall
import contextlib
import fcntl
import multiprocessing
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from assignment.submission import Submission

OURS = Path(__file__).resolve().parents[1]
COMMON = ("__init__.py", "worker.py", "confined", "protocol")  # what every process may import
RUNTIME = {  # and what it may in its role
    "record": ("host", "recorder", "simulator", "compiling"),
    "play": ("player", "simulator", "compiling"),
    "compile": ("player", "simulator", "compiling"),
    "gpu": ("player", "simulator", "compiling"),
    "cuda": ("host",),
}
SUBMISSION_TIMEOUT_S = {"cpu": 600.0, "cuda": 1800.0}  # in its processes; the reference takes 40 s
WORKERS_END_S = 10.0


class Stage:
    """A temporary folder with one submission, copies of what each role may import beside it, and scratch space.

    It keeps the submission's time too, which all workers share.
    """

    is_endless = False  # whether time does not count

    def __init__(self, submission: Submission, device: str = "cpu") -> None:
        """Raises UnusableSubmission where its files cannot be written; nothing is left then."""
        self._root, self._device = Path(tempfile.mkdtemp(prefix="grade-")).resolve(), device
        self.submission, self._runtime, self._scratch = (
            self._root / name for name in ("submission", "runtime", "scratch")
        )
        self._nothing, self._compiled = self._root / "nothing", self._root / "compiled"
        self._spent_s = multiprocessing.get_context("fork").Value("d", 0.0)
        try:
            for role in ("record", "play", "compile", *(["gpu", "cuda"] if device == "cuda" else [])):
                for name in (*COMMON, *RUNTIME[role]):
                    copy(OURS / name, self.runtime(role) / OURS.name / name)
            for folder in (self._scratch, self._nothing, self._compiled):
                folder.mkdir()
            self._hold(submission)
        except BaseException:
            remove(self._root)
            raise
        self._all_gone, self.living = os.pipe()  # a worker holds `living` as long as it, or its supervisor, lives

    def _hold(self, submission: Submission) -> None:
        submission.stage(self.submission)
        self.caches = submission.sha256[:16]  # a name for what is compiled
        self.sources = submission.sources
        self._spent_s.value = 0.0

    def spend(self, seconds: float) -> None:
        """Count time that the submission has taken."""
        with self._spent_s.get_lock():
            self._spent_s.value += seconds

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return self._spent_s.value > SUBMISSION_TIMEOUT_S[self._device] and not self.is_endless

    def runtime(self, role: str) -> Path:
        """The folder of what a role may import."""
        return self._runtime / role

    def seen_by(self, role: str) -> Path:
        """The folder of the submission, or an empty one for a role that must not have it."""
        return self.submission if role in ("record", "cuda") else self._nothing

    def compiled(self, role: str) -> str:
        """The folder where workers of a role share what they compile, none of which holds host code; "" for others."""
        return str(self._compiled) if role == "gpu" else ""

    @contextlib.contextmanager
    def alone_on_gpu(self) -> Iterator[None]:
        """While nobody else of this run has a large call there; whoever dies lets go."""
        with (self._root / "alone").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

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
