"""What works here, and the command lines of workers in bubblewrap, or in no name spaces of their own."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from assignment.system.interface import BUBBLEWRAP, LANDLOCK, ON_GPU, RLIMITS, Folders, setup
from assignment.system.linux import landlock, seccomp
from assignment.system.linux.processes import contents

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache",
    "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/alternatives", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
    "/etc/localtime", "/etc/nvidia",
)  # fmt: skip
# root may write there
ROOTS_OWN = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs"))
# where memory runs out
FIRST_TO_GO = ("/bin/sh", "-c", 'echo 1000 >/proc/self/oom_score_adj; exec "$0" "$@"')
PROBE_TIMEOUT_S = 10
UBUNTUS_SETTING = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
# not dumpable, so that nothing inside can trace it or write to its memory
KEEPER = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os.write(1, b'.'); os.read(0, 1)"
JOINABLE = (5, 8)  # the version of Linux from which on a process joins all name spaces of another one at once
IN_BUBBLEWRAP = Folders("/grade/runtime", "/grade/submission", "/grade/scratch")


@functools.cache
def problem(rung: str, device: str) -> str:
    """Return why a rung does not work here; "" if it does."""
    if rung == RLIMITS:
        return ""
    if not seccomp.is_supported():
        return "the kernel takes no system-call filters, or this kind of processor is unknown"
    if rung == LANDLOCK:
        return "" if landlock.version() else "the kernel has no Landlock (Linux 5.13), or a container forbids it"
    if not shutil.which("bwrap"):
        return "bwrap is not installed (apt install bubblewrap)"
    if tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2]) < JOINABLE:
        return f"Linux is older than {'.'.join(map(str, JOINABLE))}"
    try:
        done = subprocess.run(
            [*bubblewrap(device), "true"], env={}, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run: {error}"
    return f"bwrap does not work: {done.stderr.strip()[-200:]}" if done.returncode else ""


def remedy(problem: str) -> str:
    if "not installed" in problem:
        return "apt install bubblewrap"
    if contents(str(UBUNTUS_SETTING)).strip() == "1":
        return f"allow user name spaces: sudo sysctl kernel.{UBUNTUS_SETTING.name}=0"
    return "take a machine, or start the container, with user name spaces or Landlock allowed"


def seen(rung: str, folders: Folders) -> Folders:
    """Return the folders by the names that they have for the worker."""
    if rung != BUBBLEWRAP:
        return folders
    compiled = "/grade/compiled" if folders.compiled else ""
    return replace(IN_BUBBLEWRAP, compiled=compiled, packages=folders.packages)


def command(rung: str, device: str, folders: Folders, control: int, env: dict[str, str]) -> list[str]:
    """Return the command line of a worker in a rung, which loads PyTorch itself."""
    names = seen(rung, folders)
    told = {**setup(rung, device, names, readable(device)), "control": control}
    worker = [sys.executable, "-I", f"{names.runtime}/assignment/worker.py", json.dumps(told)]
    return [*FIRST_TO_GO, *worker] if rung != BUBBLEWRAP else bubblewrapped(device, folders, worker, env)


def keeper(device: str, folders: Folders) -> list[str]:
    """Return the command line of bubblewrap with a first process that keeps its name spaces for others to join.

    It answers once they are made, and all in them end when its input does.
    """
    return bubblewrapped(device, folders, [sys.executable, "-I", "-S", "-c", KEEPER], {})


def bubblewrapped(device: str, folders: Folders, program: list[str], env: dict[str, str]) -> list[str]:
    """Return the command line of a program in bubblewrap, with the folders of a worker."""
    names, can_read = seen(BUBBLEWRAP, folders), [*readable(device), *folders.packages]
    stage = ["--ro-bind", folders.runtime, names.runtime, "--ro-bind", folders.submission, names.submission]
    stage += ["--bind", folders.scratch, names.scratch, "--chdir", names.scratch]
    stage += [word for folder in folders.packages for word in ("--ro-bind", folder, folder)]
    if folders.compiled:
        stage += ["--bind", folders.compiled, names.compiled]
    if not any(Path("/tmp") in Path(file).parents for file in can_read):  # a checkout there: its Python is below
        stage += ["--symlink", names.scratch, "/tmp"]
    variables = [word for item in env.items() for word in ("--setenv", *item)]
    return [*FIRST_TO_GO, *bubblewrap(device), *stage, *variables, "--remount-ro", "/", *program]


def bubblewrap(device: str) -> list[str]:
    """Return a bwrap command with separate name spaces and file system, to be extended.

    Everything writable, /tmp included, must be the scratch space, which the supervisor watches.
    """
    spaces = ["--unshare-user-try", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    mounts = ["--proc", "/proc", "--dev", "/dev", "--ro-bind-try", "/sys/devices/system", "/sys/devices/system"]
    for path in map(Path, readable(device)):
        # /lib is usr/lib
        is_link = path.is_symlink() and (path.parent == Path("/") or not path.is_dir())
        mounts += ["--symlink", str(path.readlink()), str(path)] if is_link else ["--ro-bind", str(path), str(path)]
    if device in ON_GPU:
        devices = [*map(str, Path("/dev").glob("nvidia*")), "/dev/dxg"]
        mounts += ["--ro-bind", "/sys", "/sys", *(word for name in devices for word in ("--dev-bind-try", name, name))]
        # CUDA writes below /proc
        mounts += [word for name in ROOTS_OWN for word in ("--ro-bind-try", name, name)]
    else:
        spaces += ["--unshare-ipc"]
        mounts += ["--remount-ro", "/dev", "--remount-ro", "/proc"]
    return [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--as-pid-1", *spaces, *mounts]


def readable(device: str) -> list[str]:
    """Return what a worker may read beside its stage: system libraries, Python, packages."""
    wanted = [*map(Path, SYSTEM), *interpreter(), *named_by("LD_LIBRARY_PATH")]
    if device in ON_GPU:
        wanted += [*named_by("CUDA_HOME"), *compilers()]
    parts = [part for path in dict.fromkeys(wanted) if path.exists() for part in without(ROOT, path)]
    return [str(path) for path in parts if not any(other in path.parents for other in parts)]


def interpreter() -> Iterator[Path]:
    """Yield where Python and its packages lie, and the links on the way to the program."""
    yield from map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix))
    yield Path(sys.base_prefix).resolve()
    yield from (Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages"))
    program = Path(sys.executable)
    while program.is_symlink():
        program = Path(os.path.normpath(program.parent / program.readlink()))
        yield program


def compilers() -> Iterator[Path]:
    """Yield where a C compiler may lie, which Triton needs on a GPU."""
    yield Path("/opt")
    for program in filter(None, map(shutil.which, (os.environ.get("CC", ""), "gcc", "clang", "cc"))):
        prefix = Path(program).resolve().parents[1]
        if prefix not in (Path("/"), Path.home()) and prefix not in Path.home().parents:
            yield prefix


def named_by(variable: str) -> list[Path]:
    return [Path(entry) for entry in os.environ.get(variable, "").split(":") if entry.startswith("/")]


def without(hidden: Path, path: Path) -> Iterator[Path]:
    """Yield path, or if it holds the hidden folder, everything else in it."""
    real = path.resolve()
    if real not in hidden.parents:
        yield from () if real == hidden else (path,)
    else:
        for child in real.iterdir():
            yield from without(hidden, child)
