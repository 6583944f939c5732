"""Has a submission's kernels compiled for GPUs that are not there, and remembers what came of them.

What is remembered lies in the user's cache folder, by everything that it depends on: the submission, the call, the
versions of Triton and of our own compiling code. Workers neither read nor write it. A damaged file is no file.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from assignment.compiling import advice
from assignment.compiling.targets import TARGETS
from assignment.grading import protocol, replies

if TYPE_CHECKING:
    from assignment.grading.pool import Pool

OURS = Path(__file__).resolve().parents[1]
CODE = (*sorted((OURS / "compiling").glob("*.py")), *(OURS / "grading" / name for name in ("compilations.py",)))
REFUSED = "LaunchRefused: "
MAX_FILES = 4096
MAX_FILE = 1 << 20  # bytes


def ask(pool: "Pool", function: str, tensors: Sequence[Tensor], options: dict[str, Any]) -> dict[str, Any] | None:
    """The reply of a worker that compiles, or one like it from before; None where there is none to be read.

    Raises WorkerDied.
    """
    request = {"kind": "compile", "function": function, "options": options, "targets": list(TARGETS)}
    memory = remembered_in()
    path = memory / f"{_key(pool.submission.sha256, request, tensors)}.json" if memory else None
    if path and (reply := _recall(path)):
        return reply
    share = max(1, len(os.sched_getaffinity(0)) // pool.jobs)
    came, results = pool.compiler().ask({**request, "processes": share}, list(tensors))
    reply = replies.read(came, len(results))
    if path and reply and reply["status"] == "compiled":
        _remember(path, came)
    return reply


def remembered_in() -> Path | None:
    """The folder for what is remembered; None where there is none that can be written to."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        folder = (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "cs336-kernels" / "compiled"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except (OSError, RuntimeError):  # no home
        return None


def _key(submission: str, request: dict[str, Any], tensors: Sequence[Tensor]) -> str:
    specs, storages, payload = protocol.encode(list(tensors))
    what = json.dumps([_versions(), submission, request, specs, storages], sort_keys=True)
    return hashlib.sha256(what.encode() + payload).hexdigest()


@functools.cache
def _versions() -> list[str]:
    """Of everything that compiles."""
    packages = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "triton")]
    code = hashlib.sha256(b"\0".join(path.read_bytes() for path in CODE)).hexdigest()
    return [*packages, platform.python_version(), code]


def _recall(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > MAX_FILE:
            return None
        reply = replies.read(json.loads(path.read_text(encoding="utf-8")), 0)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return reply if reply and reply["status"] == "compiled" else None


def _remember(path: Path, came: dict[str, Any]) -> None:
    """By rename, so that a reader never sees half a file."""
    content = json.dumps({name: came[name] for name in ("status", "kernels", "stopped")})
    with contextlib.suppress(OSError):
        number, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(content)
        Path(part).replace(path)
        _forget(path.parent)


def _forget(folder: Path) -> None:
    """Remove the oldest files where there are too many."""
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)
    for file in files[: max(0, len(files) - MAX_FILES)]:
        file.unlink(missing_ok=True)


def problems(reply: dict[str, Any]) -> list[str]:
    """What keeps the kernels of a call from running on the targets; a text each."""
    found = advice.problems(reply["kernels"])
    for why in dict.fromkeys(reply["stopped"].values()):
        where = advice.listed([name for name, text in reply["stopped"].items() if text == why])
        if why.startswith(REFUSED):
            found.append(f"Triton refuses a launch for {where}: {why.removeprefix(REFUSED)}")
        else:
            found.append(
                f"the call stopped before its last launch, compiled for {where}: {why}\n"
                "  kernels are compiled there and not run: what they would store is NaN"
            )
    if not reply["kernels"] and not found:
        found.append("the call launches no kernel, so there is none to compile")
    return found


def doubts(function: str, launched: Sequence[str], reply: dict[str, Any]) -> list[str]:
    """What is compiled must be what runs: a line where the simulator saw a kernel that was not compiled."""
    compiled = {kernel.name for kernel in reply["kernels"]}
    missing = sorted(set(launched) - compiled)
    if not missing or reply["stopped"]:
        return []
    return [f"{function} launches {', '.join(missing)} in the simulator, and not where its kernels are compiled"]
