"""Whether packages can be imported, and a kernel be run: by processes of their own, with a time limit."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from assignment.commands.doctor.facts import Library

ROOT = Path(__file__).resolve().parents[3]
FIRST_KERNEL = Path(__file__).with_name("first_kernel.py")
IMPORT_TIMEOUT_S = 180  # PyTorch from a cold disk


def library(name: str) -> Library:
    spec = importlib.machinery.PathFinder.find_spec(name)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if spec is None or (not version and spec.origin is None):  # an empty folder of that name is no package
        return Library(version, "there is no such module" if version else "not installed")
    told, end = ask(name)
    problem = told.get("problem", "") if "problem" in told else end or "it ended Python"
    return Library(version or told.get("version", ""), problem, spec.origin or "")


def ask(what: str) -> tuple[dict[str, Any], str]:
    """What answer() tells in a process of its own, and how that ended if not well."""
    printed, end = run("-m", "assignment.commands.doctor.probe", what)
    lines = [line for line in printed.splitlines() if line.startswith('{"')]
    try:
        return (json.loads(lines[-1]) if lines else {}), end
    except ValueError:
        return {}, end


def run(*arguments: str, **variables: str) -> tuple[str, str]:
    """What Python prints, with the repository first on its path as grade.py has it; and a bad end in words."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, **variables}
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=IMPORT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        is_late = isinstance(error, subprocess.TimeoutExpired)
        return "", f"no answer within {IMPORT_TIMEOUT_S} s" if is_late else str(error)
    return done.stdout.decode(errors="replace"), end_of(done.returncode, done.stderr.decode(errors="replace"))


def end_of(status: int, said: str) -> str:
    """How a process ended, in words; "" if well."""
    if status < 0:
        return f"Python died of {signal.Signals(-status).name}"
    lines = [line for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else f"Python ended with status {status}") if status else ""


def in_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def run_first_kernel(*by: str) -> str:
    """Why a small kernel does not give the right result, on the GPU or by what stands before it in the command."""
    try:
        with tempfile.TemporaryDirectory() as caches:
            return run(*by, str(FIRST_KERNEL), TRITON_CACHE_DIR=caches)[1]
    except OSError as error:
        return f"no folder for what it compiles: {error}"
