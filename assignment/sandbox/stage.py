"""The folder that a run's workers live in, from their start until the last of them has ended."""

import compileall
import contextlib
import fcntl
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import reduction
from pathlib import Path

from assignment.submission import Submission
from assignment.system import here

OURS = Path(__file__).resolve().parents[1]
# What every process may import, and what it may in its role.
COMMON = (
    "__init__.py", "worker.py", "system", "confined", "protocol", "calling", "digest.py", "pytorch_private.py",
    "whose.py",
)  # fmt: skip
RUNTIME = {
    "record": ("host", "recorder", "simulator", "compiling"),
    "play": ("player", "simulator", "compiling"),
    "compile": ("player", "simulator", "compiling"),
    "script": ("host", "recorder", "simulator", "compiling"),
    "gpu": ("player", "simulator", "compiling"),
    "cuda": ("host",),
}
SUBMISSION_TIMEOUT_S = {"cpu": 600.0, "cuda": 1800.0}  # in its processes; the reference takes 40 s
WORKERS_END_S = 10.0
GO_ON, WAIT, GIVE_UP = "go on", "wait", "give up"  # what becomes of a call that has not answered yet
_made: set[Path] = set()  # folders of this process that have to be removed


class Stage:
    """A temporary folder with one submission, copies of what each role may import, and scratch.

    It also counts the submission's time, which all workers share.
    """

    is_endless = False  # whether time does not count
    ranks_on_gpu = 0  # that a call may have which is played on GPUs too, a process for each rank
    # for a worker that waits for an answer, by the seconds that the call has taken: GO_ON, WAIT or GIVE_UP
    # what of its limit a recorder's call may take; hears in what loop, if any, one was stopped
    patience: Callable[[], float] = staticmethod(lambda: 1.0)
    hung: Callable[[str], None] = staticmethod(lambda place: None)
    turn: Callable[[float], str] = staticmethod(lambda spent_s: GO_ON)

    def __init__(self, submission: Submission, device: str = "cpu") -> None:
        """Write the files of the submission; raises UnusableSubmission if that fails.

        Nothing is left behind in that case.
        """
        self._root, self._device = Path(tempfile.mkdtemp(prefix="grade-")).resolve(), device
        _made.add(self._root)
        self.submission, self._runtime, self._scratch = (
            self._root / name for name in ("submission", "runtime", "scratch")
        )
        self._nothing, self._compiled = self._root / "nothing", self._root / "compiled"
        self._spent_s = here.CONTEXT.Value("d", 0.0)
        try:
            for role in ("record", "play", "compile", "script", *(["gpu", "cuda"] if device == "cuda" else [])):
                for name in (*COMMON, *RUNTIME[role]):
                    copy(OURS / name, self.runtime(role) / OURS.name / name)
            for folder in (self._scratch, self._nothing, self._compiled):
                folder.mkdir()
            self._hold(submission)
        except BaseException:
            remove(self._root)
            raise
        # a worker holds `living` as long as it, or its supervisor, lives
        self._all_gone, self.living = os.pipe()

    def __getstate__(self) -> dict:
        """Return what another process needs that is being started: it holds `living` too, and does not close this."""
        return {**vars(self), "living": reduction.DupFd(self.living), "_all_gone": None}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self.living = state["living"].detach()

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
        """Whether the submission's time is over."""
        return self._spent_s.value > SUBMISSION_TIMEOUT_S[self._device] and not self.is_endless

    def runtime(self, role: str) -> Path:
        """Return the folder of what a role may import."""
        return self._runtime / role

    def seen_by(self, role: str) -> Path:
        """Return the folder of the submission, or an empty one for a role that must not see it."""
        return self.submission if role in ("record", "script", "cuda") else self._nothing

    def compiled(self, role: str) -> str:
        """Return the folder for compiled kernels that workers of a role share; "" for other roles.

        None of these workers runs host code.
        """
        return str(self._compiled) if role == "gpu" else ""

    @contextlib.contextmanager
    def alone_on_gpu(self) -> Iterator[None]:
        """Lock the GPU for a large call; a process that dies releases the lock."""
        with (self._root / "alone").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def new_scratch(self) -> Path:
        """Return an empty folder for one worker."""
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def replace(self, submission: Submission) -> None:
        """Replace the submission by this one."""
        # the folder itself stays: it may be bound into a sandbox
        for path in self.submission.iterdir():
            remove(path)
        self._hold(submission)

    def close(self) -> None:
        """Remove everything, once no worker is left that could still write."""
        os.close(self.living)
        select.select([self._all_gone], [], [], WORKERS_END_S)
        os.close(self._all_gone)
        remove(self._root)


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder of modules, with compiled forms where they can be stored."""
    modules = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    for module in modules:
        # where the checkout can be written to; nothing if it is done already
        compileall.compile_file(module, quiet=2)
        copied = target / module.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, copied)  # with its time, which the compiled form remembers
        compiled = Path(module.parent, "__pycache__", f"{module.stem}.{sys.implementation.cache_tag}.pyc")
        if compiled.exists():
            (copied.parent / "__pycache__").mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # replaced by another run at this moment
                shutil.copy2(compiled, copied.parent / "__pycache__")


def remove_all() -> None:
    """Remove the folders of all stages, once their workers have ended."""
    for folder in tuple(_made):
        remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder, whatever its depth and permissions."""
    for program in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*program, "--", str(folder)], stderr=subprocess.DEVNULL)
    _made.discard(folder)
