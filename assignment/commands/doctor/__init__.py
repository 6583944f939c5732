"""`python grade.py --doctor`: what keeps this machine from grading, and what to do about it.

uv pins Python's packages, by pyproject.toml; what is looked at is what a pinned environment can still meet:

    __init__.py      packages from elsewhere, simulator, compiler, a GPU with what PyTorch and Triton make of it
    machine.py       the system, the sandbox, memory, room for temporary files
    first_kernel.py  the small kernel that simulator, compiler and GPU are tried with

Exit status: 0 grading works here, 2 it does not yet.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from assignment import text
from assignment.commands.doctor import machine
from assignment.commands.doctor.machine import FAIL, OK, WARN, MachineFinding
from assignment.simulator import kept_triton
from assignment.simulator.kept_triton import has_compiler, origin

READY, NOT_READY = 0, 2
BY_UV = "run it by uv, which brings the packages of pyproject.toml: uv run grade.py --doctor (first: pip install uv)"
ANEW = "install the packages again: uv sync --reinstall; if it stays, show this line to the staff"
GPU = "GPU"
NO_GPU = MachineFinding(OK, GPU, "none, and none is needed: kernels run in the simulator")
DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # as pool.pick_device looks for them
BFLOAT16 = (8, 0)  # the compute capability that has it
NVIDIA_SMI_TIMEOUT_S = 30
SIMULATE = "meanwhile take the simulator: uv run grade.py --device cpu"
CURE = (
    "nvidia-smi should list it: if not, install or update NVIDIA's driver (580 or newer) and restart, or start the "
    "container with --gpus all; until then kernels are simulated"
)
ASK_TORCH = """import torch
torch.cuda.init()
print(torch.cuda.get_device_name(), *torch.cuda.get_device_capability(), torch.version.cuda, sep="\\n")"""


def main() -> int:
    """Look at this machine, printing each finding as it is made, and last what can be graded here."""
    found = []
    for finding in findings():
        found.append(finding)
        print("\n".join(rows(finding)), flush=True)
    print(f"\n{sentence(found)}")
    return NOT_READY if any(finding.status == FAIL for finding in found) else READY


def findings() -> Iterator[MachineFinding]:
    """Yield item by item, no further than where the rest could only fail for the same cause."""
    for look in (machine.system, packages, machine.temporary):
        finding = look()
        yield finding
        if finding.status == FAIL:
            return
    yield from versions()
    yield from course_file()
    yield simulator()
    yield compiler()
    yield from (machine.sandbox(), machine.memory(), gpu())


def rows(finding: MachineFinding) -> Iterator[str]:
    """Yield the lines of a finding; what others' programs said is made safe to show."""
    yield f"  {finding.status:<6}{finding.item:<12}{text.line(finding.found)}"
    if finding.advice:
        yield f"{'':8}{text.line(finding.advice)}"


def sentence(found: list[MachineFinding]) -> str:
    """Return what can be done on this machine."""
    failed = [finding.item for finding in found if finding.status == FAIL]
    todo = f"do what stands under {', '.join(failed)}, then run this again."
    if set(failed) - {GPU}:
        return f"Nothing can be graded here yet: {todo}"
    from assignment.verdict import checks  # loads tests/, which may be broken

    here, linux, whole = gradable_points()
    if failed:
        return f"{here:g} of {whole:g} points can be graded here, with --device cpu; for the GPU {todo}"
    if here == whole:
        return f"All {whole:g} points can be graded here."
    if linux:
        told = checks.needed(linux, whole - here - linux)
        return f"{here:g} of {whole:g} points can be graded here; {told}."
    if found[-1] == NO_GPU:
        return f"{here:g} of {whole:g} points can be graded here; the last {whole - here:g} need a GPU."
    if found[-1].status != OK:
        return f"{here:g} of {whole:g} points can be graded here; the last {whole - here:g} need a GPU that works."
    return f"{whole:g} of {whole:g} points can be graded here, on the GPU."


def gradable_points() -> tuple[float, float, float]:
    """Return the points that can be graded without a GPU here, those that need Linux, and all."""
    from assignment.verdict import checks  # loads tests/, which may be broken

    graded = checks.without_practice(checks.declared())
    on_linux = checks.without_a_gpu(graded)
    here = on_linux if has_compiler() else checks.without_a_compiler(on_linux)
    points, more, whole = (sum(check.points for check in some) for some in (here, on_linux, graded))
    return points, more - points, whole


def named() -> list[str]:
    """Return the packages that pyproject.toml asks for, by the name that is imported."""
    return [re.sub(r"[^\w-].*", "", line).replace("-", "_") for line in kept_triton.dependencies()]


def wanted() -> dict[str, str]:
    """Return the same with the version that is pinned, or ""."""
    return dict(zip(named(), map(kept_triton.pinned, kept_triton.requirements()), strict=True))


def packages() -> MachineFinding:
    """Return whether all are installed, and none is hidden by a file of its name."""
    try:
        kept_triton.fetch_if_missing()
    except kept_triton.NotFetched as error:
        return MachineFinding(FAIL, "packages", error.why, error.todo)
    except ImportError:  # of what reads pyproject.toml, which is missing like the others
        pass
    missing = [name for name in named() if origin(name) is None]
    if missing:
        return MachineFinding(FAIL, "packages", f"not installed: {', '.join(missing)}", BY_UV)
    for name in named():
        file = origin(name)
        if file and not {"site-packages", "dist-packages", kept_triton.FOLDER} & {*file.parts}:
            found = f"{file} stands in the way of the package {name}"
            return MachineFinding(FAIL, "packages", found, "rename it, or take its folder off PYTHONPATH")
    return MachineFinding(OK, "packages", ", ".join(named()))


def course_file() -> Iterator[MachineFinding]:
    """Yield what is wrong in course.toml, if anything."""
    from assignment.course import CourseError  # loads tests/, which may be broken

    try:
        gradable_points()
    except CourseError as error:
        yield MachineFinding(FAIL, "course", str(error), "mend that line, or take it out")


def versions() -> Iterator[MachineFinding]:
    """Compare the versions that pyproject.toml pins, and the class uses, with this environment's."""
    for name, pinned in wanted().items():
        if not pinned:
            continue
        version, file = importlib.metadata.version(name), origin(name)
        if file and not file.is_relative_to(sys.prefix):
            found = f"{version}, of another Python: {file.parent}"
            yield MachineFinding(WARN, name, found, f"unset PYTHONPATH, or {BY_UV}")
        elif version.partition("+")[0] != pinned:
            yield MachineFinding(WARN, name, f"{version}; the class uses {pinned}", BY_UV)
        else:
            yield MachineFinding(OK, name, version)


def simulator() -> MachineFinding:
    """Return whether it runs a kernel: for that torch, triton and numpy must load, too."""
    return _runs("simulator", "a small kernel gives the right result", "assignment.simulator")


def compiler() -> MachineFinding:
    """Return whether Triton and NVIDIA's assembler, which comes with it, make machine code; no GPU is needed."""
    if not has_compiler():
        return MachineFinding(OK, "compiler", "needs Linux: whether kernels compile for GPUs is not graded here")
    return _runs("compiler", "Triton compiles a small kernel for GPUs", "assignment.compiling")


def _runs(item: str, good: str, module: str) -> MachineFinding:
    problem = machine.first_kernel("-m", module)
    if not problem:
        return MachineFinding(OK, item, good)
    advice = ANEW
    if "LD_LIBRARY_PATH" in os.environ:
        advice = f"other libraries may come first: unset LD_LIBRARY_PATH; if that does not help, {ANEW}"
    return MachineFinding(FAIL, item, f"a small kernel fails: {problem}", advice)


def gpu() -> MachineFinding:
    """Examine the GPU: one that the grader would choose, and on which a kernel fails, keeps it from working."""
    name, problem = nvidia_smi()
    if not any(Path(device).exists() for device in DEVICES):
        return MachineFinding(WARN, GPU, f"{name}, but no {DEVICES[0]}", CURE) if name else NO_GPU
    told, why_not = machine.python("-c", ASK_TORCH)
    if why_not:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        advice = CURE if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden} may hide it: unset it; {CURE}"
        found = f"{name or 'a driver'}, but PyTorch cannot use it: {why_not}"
        return MachineFinding(WARN, GPU, f"{found}; {problem}" if problem else found, advice)
    name, major, minor, cuda = told.splitlines()[-4:]
    if (int(major), int(minor)) < BFLOAT16:
        found = f"{name} has no bf16: its compute capability is {major}.{minor}; expected 8.0 or more"
        return MachineFinding(WARN, GPU, found, "take the simulator: uv run grade.py --device cpu")
    if problem := machine.first_kernel():
        return MachineFinding(FAIL, GPU, f"{name}, but a small kernel fails on it: {problem}", f"{cure()}; {SIMULATE}")
    return MachineFinding(OK, GPU, f"{name}, compute capability {major}.{minor}, CUDA {cuda}")


def nvidia_smi() -> tuple[str, str]:
    """Return the first GPU with its driver, "" for none; and why nvidia-smi tells of none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "", "nvidia-smi is not installed"
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi does not run: {error}"
    first = next(iter((done.stdout + done.stderr).splitlines()), "no answer")
    name, comma, driver = first.rpartition(", ")
    return (f"{name}, driver {driver}", "") if not done.returncode and comma else ("", first)


def cure() -> str:
    """Return what to install: Triton builds its launcher on a GPU with a C compiler and Python's headers."""
    if not any(map(shutil.which, filter(None, (os.environ.get("CC"), "gcc", "clang")))):
        return "Triton needs a C compiler there: apt install gcc"
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        return "Triton needs Python.h there: apt install python3-dev, or uv sync --managed-python"
    return "show this line to the staff"
