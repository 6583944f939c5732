"""What the doctor says of the system, the sandbox and what is free; and how it runs programs of ours that may crash."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assignment.sandbox import rungs
from assignment.system import here

OK, WARN, FAIL = "ok", "warn", "FAIL"
MB, GB = 10**6, 10**9
MEMORY_GB, MEMORY_OF_A_JOB_GB = 0.8, 0.45  # as measured on the reference
CONTAINER = "open this folder in its dev container, .devcontainer/ (VS Code offers it), and run this there"
ROOT = Path(__file__).resolve().parents[3]
FIRST_KERNEL = Path(__file__).with_name("first_kernel.py")
OLDEST_MACOS = 14  # PyTorch's wheels
TIMEOUT_S = 180  # PyTorch from a cold disk


@dataclass(frozen=True)
class MachineFinding:
    """What was found of one item and, where it is not ok, what to do."""

    status: str
    item: str
    found: str
    advice: str = ""


def system() -> MachineFinding:
    name, python = platform.system(), platform.python_version()
    if name == "Linux":
        return MachineFinding(OK, "system", f"Linux, Python {python}")
    if name == "Darwin":
        release, kind = platform.mac_ver()[0], platform.machine()
        found = f"macOS {release} on {kind}"
        if kind == "arm64" and int(release.partition(".")[0]) >= OLDEST_MACOS:
            return MachineFinding(OK, "system", f"{found}, Python {python}")
        needed = f"macOS {OLDEST_MACOS} on Apple silicon"
        return MachineFinding(FAIL, "system", f"{found}, for which there is no PyTorch: it needs {needed}", CONTAINER)
    advice = f"{CONTAINER}; WSL 2 works too" if name == "Windows" else CONTAINER
    return MachineFinding(FAIL, "system", f"{name}, for which there is no Triton", advice)


def temporary() -> MachineFinding:
    """Examine the room for what is compiled, and for the submission's processes."""
    advice = "name a folder of yours: export TMPDIR=FOLDER"
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as error:  # it tries several, by writing to them
        return MachineFinding(FAIL, "temporary", f"no folder for temporary files: {error.strerror}", advice)
    free = shutil.disk_usage(folder).free
    found = f"{folder}: {free / GB:.1f} GB free"
    if free >= 2 * GB:
        return MachineFinding(OK, "temporary", found)
    return MachineFinding(WARN if free >= 200 * MB else FAIL, "temporary", found, f"make room there, or {advice}")


def sandbox() -> MachineFinding:
    problems = {rung: rungs.problem(rung, "cpu") for rung in rungs.order("cpu")}
    best = next(rung for rung, problem in problems.items() if not problem)
    worse = "; ".join(f"not {rung}: {problem}" for rung, problem in problems.items() if problem)
    if best not in rungs.UNSAFE:
        return MachineFinding(OK, "sandbox", f"{best}; {worse}" if worse else best)
    advice = here.remedy(problems[rungs.BUBBLEWRAP])
    return MachineFinding(
        WARN, "sandbox", f"none but limits ({worse})", f"enough for your own code; for others', {advice}"
    )


def memory() -> MachineFinding:
    """Return whether what is free is enough for a process that judges on each core."""
    from assignment.judge.pool import default_jobs  # loads tests/, which may be broken

    free, wanted = here.free_memory() / GB, default_jobs("cpu")
    found = f"{free:.1f} GB free, for {'1 core' if wanted == 1 else f'{wanted} cores'}"
    jobs = int((free - MEMORY_GB) / MEMORY_OF_A_JOB_GB)
    if jobs >= wanted:
        return MachineFinding(OK, "memory", found)
    if jobs < 1:
        needed = f"{MEMORY_GB + MEMORY_OF_A_JOB_GB:.1f} GB"
        return MachineFinding(FAIL, "memory", f"{found}; a grade takes {needed}", "end other programs")
    return MachineFinding(WARN, "memory", f"{found} is little", f"take fewer processes: uv run grade.py --jobs {jobs}")


def python(*arguments: str) -> tuple[str, str]:
    """Return what Python prints, with the repository first on its path as for grade.py; and why it failed, or ""."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as compiled:
        env = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": compiled}
        command = [sys.executable, *arguments]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return "", f"no answer within {TIMEOUT_S} s"
    printed, said = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode < 0:
        return printed, f"Python died of {signal.Signals(-done.returncode).name}"
    lines = [line for line in (printed + said).splitlines() if line.strip() and not line.startswith("note: ")]
    end = lines[-1] if lines else f"Python ended with status {done.returncode}"
    return printed, end if done.returncode else ""


def first_kernel(*by: str) -> str:
    """Return why a small kernel fails, on the GPU or under the module before it in the command; "" if it works."""
    return python(*by, str(FIRST_KERNEL))[1]
