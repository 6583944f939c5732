"""An NVIDIA GPU, its driver, and what PyTorch makes of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from assignment.commands.doctor.facts import Gpu
from assignment.commands.doctor.packages import ask

NVIDIA_SMI_TIMEOUT_S = 30
NVIDIA, DISPLAY = "0x10de", "0x03"  # a PCI device's vendor, and how the class of one that draws or computes begins
DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # as pool.pick_device looks for them


def nvidia(can_ask_torch: bool) -> Gpu:
    name, driver, driver_problem = nvidia_smi()
    has_device = any(Path(device).exists() for device in DEVICES)
    is_there = bool(name) or Path(DEVICES[0]).exists() or is_on_bus()
    driver = driver or driver_by_kernel(contents("/proc/driver/nvidia/version"))
    gpu = Gpu(is_there, has_device, name, driver, driver_problem)
    if not (has_device and can_ask_torch):
        return gpu
    told, end = ask("cuda")
    capability = told.get("capability")
    return replace(
        gpu,
        is_there=is_there or bool(capability),
        name=told.get("name") or name,
        cuda=told.get("cuda"),
        problem=told.get("problem") or end,
        capability=tuple(capability) if capability else None,
    )


def nvidia_smi() -> tuple[str, str, str]:
    """The first GPU's name, the driver's version, and why nvidia-smi tells neither."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "", "", "nvidia-smi is not installed"
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", "", f"nvidia-smi does not run: {error}"
    first = next(iter((done.stdout + done.stderr).splitlines()), "no answer")
    name, comma, driver = first.rpartition(", ")
    return (name, driver, "") if not done.returncode and comma else ("", "", first)


def driver_by_kernel(text: str) -> str:
    """The version in what the kernel's module says of itself."""
    found = re.search(r"Module.*?\s(\d+\.\d+(\.\d+)?)\s", text)
    return found[1] if found else ""


def is_on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether the machine has an NVIDIA GPU, driver or not."""
    return any(
        contents(device / "vendor").strip() == NVIDIA and contents(device / "class").startswith(DISPLAY)
        for device in devices.glob("*")
    )


def contents(path: str | Path) -> str:
    """A file's; nothing if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
