"""Temporary folders that outlive no run: one whose process was killed is removed by the next run.

A folder is locked for as long as its process lives. It has its final name only once it is locked, so that nobody takes
a new one for a dead process's.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from assignment.sandbox.stage import remove


@dataclass(frozen=True)
class Folder:
    """A folder of this process's, and what holds its lock."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Let go of the lock: the folder is anybody's to remove."""
        os.close(self.descriptor)


def new(prefix: str) -> Folder:
    """Return a new folder of this process's, after those of dead ones have been removed."""
    sweep(prefix)
    begun = Path(tempfile.mkdtemp(prefix=f"new-{prefix}"))
    descriptor = os.open(begun, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return Folder(begun.rename(begun.with_name(begun.name.removeprefix("new-"))), descriptor)


def sweep(prefix: str) -> None:
    """Remove the folders of this user's processes that have died."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # somebody else removes it, or it is another user's
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(folder)
            finally:
                os.close(descriptor)


@contextmanager
def folder(prefix: str) -> Iterator[Path]:
    """Yield a folder, and remove it."""
    made = new(prefix)
    try:
        yield made.path
    finally:
        remove(made.path)
        made.release()
