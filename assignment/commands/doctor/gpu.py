"""What is to be said of an NVIDIA GPU, its driver, and what PyTorch and Triton make of them."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from assignment.commands.doctor import processes
from assignment.commands.doctor.finding import FAIL, OK, WARN, MachineFinding

ITEM = "GPU"
NONE = MachineFinding(OK, ITEM, "none, and none is needed: kernels run in the simulator")
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


def gpu() -> MachineFinding:
    """Examine the GPU: one that the grader would choose, and on which a kernel fails, keeps it from working."""
    name, problem = nvidia_smi()
    if not any(Path(device).exists() for device in DEVICES):
        return MachineFinding(WARN, ITEM, f"{name}, but no {DEVICES[0]}", CURE) if name else NONE
    told, why_not = processes.python("-c", ASK_TORCH)
    if why_not:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        advice = CURE if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden} may hide it: unset it; {CURE}"
        found = f"{name or 'a driver'}, but PyTorch cannot use it: {why_not}"
        return MachineFinding(WARN, ITEM, f"{found}; {problem}" if problem else found, advice)
    name, major, minor, cuda = told.splitlines()[-4:]
    if (int(major), int(minor)) < BFLOAT16:
        found = f"{name} has no bf16: its compute capability is {major}.{minor}; expected 8.0 or more"
        return MachineFinding(WARN, ITEM, found, "take the simulator: uv run grade.py --device cpu")
    if problem := processes.first_kernel():
        return MachineFinding(FAIL, ITEM, f"{name}, but a small kernel fails on it: {problem}", f"{cure()}; {SIMULATE}")
    return MachineFinding(OK, ITEM, f"{name}, compute capability {major}.{minor}, CUDA {cuda}")


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
