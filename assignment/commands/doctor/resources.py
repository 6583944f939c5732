"""What is to be said of the sandbox, memory, folders, and of what there is to grade."""

from __future__ import annotations

from collections.abc import Iterator

from assignment.commands.doctor.facts import Facts, Folder
from assignment.commands.doctor.finding import FAIL, OK, WARN, Finding
from assignment.sandbox import rungs

MB, GB = 10**6, 10**9
PACKAGES_GB = 6  # PyTorch's CUDA build, and room to unpack it
MEMORY_GB, MEMORY_OF_A_JOB_GB = 0.8, 0.45  # as measured on the reference


def sandbox(facts: Facts) -> Finding:
    best = next((rung for rung, problem in facts.rungs.items() if not problem), rungs.RLIMITS)
    worse = [f"not {rung}: {problem}" for rung, problem in facts.rungs.items() if problem]
    if best not in rungs.UNSAFE:
        return Finding(OK, "sandbox", "; ".join([best, *worse]))
    advice = "enough for your own code; for others', "
    if "not installed" in facts.rungs.get(rungs.BUBBLEWRAP, ""):
        advice += "apt install bubblewrap"
    elif facts.forbids_namespaces:
        advice += "allow user name spaces: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    else:
        advice += "take a machine, or start the container, with user name spaces or Landlock allowed"
    return Finding(WARN, "sandbox", f"none but limits ({'; '.join(worse)})", advice)


def memory(facts: Facts) -> Finding:
    free = facts.memory / GB
    found = f"{free:.1f} GB free"
    jobs = int((free - MEMORY_GB) / MEMORY_OF_A_JOB_GB)
    if jobs >= facts.jobs:
        return Finding(OK, "memory", found)
    if jobs < 1:
        need = f"{MEMORY_GB + MEMORY_OF_A_JOB_GB:.1f} GB"
        return Finding(FAIL, "memory", f"{found}; a grade takes {need}", "end other programs, or give the machine more")
    return Finding(
        WARN, "memory", f"{found}, little for {facts.jobs} jobs", f"take fewer: uv run grade.py --jobs {jobs}"
    )


def temporary(facts: Facts) -> Finding:
    there = facts.temporary
    if there.problem:
        return Finding(
            FAIL, "temporary", f"{there.path}: {there.problem}", "name a folder of yours: export TMPDIR=~/tmp"
        )
    return room(there, "temporary", fail=200 * MB, warn=2 * GB, advice="or name another: export TMPDIR=FOLDER")


def disk(facts: Facts) -> Finding:
    there, has_all = facts.here, has_packages(facts)
    if there.problem:
        advice = (
            "copy the folder to where you may write, or keep the packages elsewhere: export UV_PROJECT_ENVIRONMENT="
        )
        return Finding(WARN if has_all else FAIL, "disk", f"{there.path}: {there.problem}", f"{advice}FOLDER")
    if has_all:
        return room(there, "disk", fail=0, warn=GB, advice="a full disk loses your work")
    advice = f"PyTorch takes {PACKAGES_GB} GB, or put it elsewhere: export UV_PROJECT_ENVIRONMENT=FOLDER"
    return room(there, "disk", fail=PACKAGES_GB * GB, warn=PACKAGES_GB * GB, advice=advice)


def room(there: Folder, item: str, fail: int, warn: int, advice: str) -> Finding:
    """Whether a folder has enough of it."""
    found = f"{there.path}: {there.free / GB:.1f} GB free"
    if there.free >= warn:
        return Finding(OK, item, found)
    return Finding(FAIL if there.free < fail else WARN, item, found, f"make room there; {advice}")


def cache(facts: Facts) -> Finding:
    """Where uv keeps what it downloads, and PyTorch and Triton what they compile."""
    there = facts.cache
    if not there.problem:
        return Finding(OK, "cache", there.path)
    status = WARN if has_packages(facts) else FAIL
    return Finding(status, "cache", f"{there.path}: {there.problem}", "name another: export XDG_CACHE_HOME=FOLDER")


def has_packages(facts: Facts) -> bool:
    return bool(facts.libraries) and all(found.version for found in facts.libraries.values())


def submission(facts: Facts) -> Finding:
    if not facts.submission:
        return Finding(OK, "submission", f"cs336_kernels/ with {facts.files} files")
    advice = "go to the folder that holds cs336_kernels/, or name it: uv run grade.py FOLDER"
    return Finding(FAIL, "submission", facts.submission, advice)


def checks(facts: Facts) -> Iterator[Finding]:
    if not facts.points:
        why = facts.points_problem or "there are none"
        yield Finding(FAIL, "checks", f"tests/ cannot be read: {why}", "restore them: git checkout -- tests")
