"""Results of compilations, cached in the user's cache folder.

Keys cover everything that a result depends on, including the versions of Triton and of our own
code. Failures are not cached: they may come from a lack of memory. A damaged file counts as
missing.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from pathlib import Path

from assignment.digest import grader_digest
from assignment.protocol.messages import Value, Writable

# the kind of what is remembered, and its folder; the grader remembers a student's progress too
COMPILED = "compiled"
MAX_FILES = 4096  # of a kind
MAX_FILE = 1 << 20  # bytes


def folder(kind: str = COMPILED) -> Path | None:
    """Return the cache folder of a kind of results; None if no folder can be written to."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        found = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "cs336-kernels" / kind
        found.mkdir(parents=True, exist_ok=True, mode=0o700)
        return found if os.access(found, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # no home
        return None


def key(what: Writable) -> str:
    """Return the cache key of JSON."""
    text = json.dumps([versions(), what], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def versions() -> list[str]:
    """Return the versions of everything that compiles, and judges what is compiled."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton")]
    return [*packages, platform.python_version(), grader_digest()]


def recall(name: str, kind: str = COMPILED) -> Value:
    """Return what is cached under a key; None if there is nothing."""
    place = folder(kind)
    try:
        path = place / f"{name}.json" if place else None
        if path is None or not path.is_file() or path.stat().st_size > MAX_FILE:
            return None
        with contextlib.suppress(OSError):  # another user's
            os.utime(path)  # what is in use is not the oldest
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def remember(name: str, value: Writable, kind: str = COMPILED) -> None:
    """Cache a value, by renaming a file, so that a reader never sees half of one."""
    place = folder(kind)
    if place is None:
        return
    with contextlib.suppress(OSError):
        number, part = tempfile.mkstemp(dir=place, suffix=".part")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(value, file)
        Path(part).replace(place / f"{name}.json")
        _forget(place)


def _forget(place: Path) -> None:
    """Remove the oldest files if there are too many."""
    files = sorted(place.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - MAX_FILES)]:
        file.unlink(missing_ok=True)
