"""Gathers the facts, on any machine.

What is imported at the top of these modules needs no package, and no more than Python 3.9.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from assignment.commands.doctor.facts import LIBRARIES, Facts, Folder, fits
from assignment.commands.doctor.nvidia import contents, nvidia
from assignment.commands.doctor.packages import ROOT, in_words, library, run_first_kernel
from assignment.sandbox import rungs

TELLING = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")


def gather(path: Path) -> Facts:
    """The facts, for a submission at path. Takes the seconds that PyTorch takes to load."""
    facts = basics()
    if not fits(facts):
        return facts
    with ThreadPoolExecutor(os.cpu_count()) as several:
        libraries = dict(zip(LIBRARIES, several.map(library, LIBRARIES)))  # noqa: B905
    gpu = nvidia(can_ask_torch=not libraries["torch"].problem)
    device = "cuda" if gpu.works else "cpu"
    can_run = not facts.temporary.problem and not any(libraries[name].problem for name in LIBRARIES[:3])
    facts = replace(
        facts,
        libraries=libraries,
        simulator=run_first_kernel("-m", "assignment.simulator") if can_run else None,
        gpu=replace(gpu, kernel_problem=run_first_kernel()) if gpu.works and can_run else gpu,
        compiler=next(filter(None, map(shutil.which, (os.environ.get("CC", ""), "gcc", "clang"))), ""),
        has_headers=Path(sysconfig.get_paths()["include"], "Python.h").exists(),
        rungs={rung: rungs.problem(rung, device) for rung in rungs.order(device)},
        forbids_namespaces=contents("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1",
        memory=free_memory(),
    )
    return with_points(with_submission(facts, path))


def basics() -> Facts:
    """What can be found out on any system and by any Python."""
    project = Path(os.environ.get("UV_PROJECT_ENVIRONMENT") or ".venv")
    return Facts(
        python=sys.version_info[:3],
        implementation=platform.python_implementation(),
        executable=sys.executable,
        is_projects=Path(sys.prefix).resolve() == (ROOT / project).resolve(),
        is_managed=Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists() and sys.prefix == sys.base_prefix,
        has_uv=bool(shutil.which("uv")),
        system=platform.system(),
        machine=platform.machine(),
        libc=platform.libc_ver(),
        temporary=temporary_folder(),
        cache=cache_folder(),
        here=folder(ROOT),
        environment={name: os.environ[name] for name in TELLING if name in os.environ},
    )


# Folders and memory.


def temporary_folder() -> Folder:
    try:
        return folder(Path(tempfile.gettempdir()))
    except FileNotFoundError as error:  # it tries several, by writing to them
        return Folder(os.environ.get("TMPDIR", "/tmp"), problem=str(error.strerror or error))


def cache_folder() -> Folder:
    try:
        return folder(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    except RuntimeError as error:  # a user whom the system does not know, as in some containers
        return Folder("~/.cache", problem=str(error))


def folder(path: Path) -> Folder:
    """What is true of path, or of the nearest folder above it that can be seen."""
    there = next((there for there in (path, *path.parents) if os.access(there, os.F_OK)), Path("/"))
    if not there.is_dir():
        return Folder(str(path), problem=f"{there} is no folder")
    problem = "" if os.access(there, os.W_OK | os.X_OK) else "it cannot be written to"
    return Folder(str(path), shutil.disk_usage(there).free, problem)


def free_memory() -> int:
    """The bytes that the machine, or the container around us, has left."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", contents("/proc/meminfo"))
    free = [int(found[1]) << 10] if found else []
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = contents(limit).strip(), contents(used).strip()
        if most.isdecimal() and now.isdecimal():
            free.append(max(0, int(most) - int(now)))
    return min(free, default=0)


# What is graded. These modules need the Python that fits() asks for.


def with_submission(facts: Facts, path: Path) -> Facts:
    from assignment.submission import UnusableSubmission, read

    try:
        return replace(facts, files=len(read(path.absolute()).files))
    except UnusableSubmission as error:
        return replace(facts, submission=str(error))


def with_points(facts: Facts) -> Facts:
    from assignment.judge import checks, pool

    facts = replace(facts, jobs=pool.default_jobs("cpu"))
    try:
        declared = checks.without_practice(checks.declared())
    except (OSError, SyntaxError, LookupError, AssertionError) as error:
        return replace(facts, points_problem=in_words(error))
    speed = sum(check.points for check in declared if check.problem == checks.SPEED)
    return replace(facts, points=sum(check.points for check in declared) - speed, speed=speed)
