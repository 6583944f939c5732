"""What is to be said of the GPU, and of the C compiler that Triton needs for it."""

from __future__ import annotations

from assignment.commands.doctor.facts import Facts, Library
from assignment.commands.doctor.finding import FAIL, OK, WARN, Finding
from assignment.commands.doctor.installed import again, by_uv, numbers

BFLOAT16 = (8, 0)  # the compute capability that has it
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}  # by the CUDA that PyTorch is built for
SIMULATE = "uv run grade.py --device cpu"


def is_usable(facts: Facts) -> bool:
    return facts.gpu.capability is not None and facts.gpu.capability >= BFLOAT16


def gpu(facts: Facts) -> Finding:
    """Only one that the grader would choose, and that then fails, keeps it from working."""
    gpu = facts.gpu
    name = gpu.name or "an NVIDIA GPU"
    if not gpu.is_there:
        return Finding(OK, "GPU", "none, and none is needed: kernels run in the simulator")
    if gpu.capability is None:
        return Finding(
            WARN, "GPU", f"{name}, but {why_unusable(facts)}", f"{cure(facts)}; until then kernels are simulated"
        )
    version = ".".join(map(str, gpu.capability))
    if gpu.capability < BFLOAT16:
        found = f"{name} has no bf16: its compute capability is {version}; expected 8.0 or more"
        return Finding(WARN, "GPU", found, f"take the simulator: {SIMULATE}")
    if gpu.kernel_problem and compiler(facts).status == OK:
        found = f"{name}, but a small kernel does not run on it: {gpu.kernel_problem}"
        return Finding(FAIL, "GPU", found, f"show this line to the staff; meanwhile take the simulator: {SIMULATE}")
    return Finding(
        OK, "GPU", f"{name}, compute capability {version}, driver {gpu.driver or 'unknown'}, CUDA {gpu.cuda}"
    )


def is_old_driver(facts: Facts) -> bool:
    driver, needed = numbers(facts.gpu.driver), oldest_driver(facts)
    return bool(driver) and bool(needed) and driver[0] < needed


def oldest_driver(facts: Facts) -> int:
    """The driver that PyTorch's CUDA needs; 0 if that is not known."""
    return OLDEST_DRIVERS.get(next(iter(numbers(facts.gpu.cuda or "")), 0), 0)


def why_unusable(facts: Facts) -> str:
    gpu = facts.gpu
    if not gpu.has_device and gpu.driver:
        return f"not to be reached from here, though its driver {gpu.driver} is loaded"
    if not gpu.has_device:
        return f"no driver for it ({gpu.driver_problem or 'no /dev/nvidiactl'})"
    if facts.libraries.get("torch", Library(problem="not installed")).problem:
        return "torch, which would use it, does not work"
    if gpu.cuda == "":
        return "this torch is built without CUDA"
    if is_old_driver(facts):
        return f"its driver is {gpu.driver}; torch's CUDA {gpu.cuda} needs {oldest_driver(facts)} or newer"
    said = gpu.problem or "torch does not see it"
    return f"{said}; {gpu.driver_problem}" if gpu.driver_problem else said


def cure(facts: Facts) -> str:
    """What to do about a GPU that cannot be used."""
    gpu = facts.gpu
    if not gpu.has_device and gpu.driver:
        return "in a container: start it with --gpus all"
    if not gpu.has_device:
        newest = max(OLDEST_DRIVERS.values())
        return f"install NVIDIA's driver, {newest} or newer (Ubuntu: sudo ubuntu-drivers install), and restart"
    if facts.libraries.get("torch", Library(problem="not installed")).problem:
        return "first see to torch"
    if gpu.cuda == "":
        return again(facts, "torch")
    if is_old_driver(facts):
        needed = oldest_driver(facts)
        return f"update NVIDIA's driver (Ubuntu: sudo apt install nvidia-driver-{needed}), and restart"
    if "CUDA_VISIBLE_DEVICES" in facts.environment:
        return f"it may be hidden by CUDA_VISIBLE_DEVICES={facts.environment['CUDA_VISIBLE_DEVICES']}: unset it"
    if "mismatch" in gpu.driver_problem:
        return "the driver was updated while it ran: restart the machine"
    return "restart the machine; in a container, start it with --gpus all"


def compiler(facts: Facts) -> Finding:
    """Triton builds its launcher on a GPU with a C compiler and Python's headers."""
    if not facts.gpu.works:
        return Finding(OK, "C compiler", f"{facts.compiler or 'none'}; needed only with a GPU")
    meanwhile = f"until then take the simulator: {SIMULATE}"
    if not facts.compiler:
        return Finding(FAIL, "C compiler", "none, and Triton needs one on a GPU", f"apt install gcc; {meanwhile}")
    if not facts.has_headers:
        found = f"{facts.compiler}, but Python.h is missing, which Triton needs on a GPU"
        return Finding(FAIL, "C compiler", found, f"apt install python3-dev, or {by_uv(facts)}; {meanwhile}")
    return Finding(OK, "C compiler", facts.compiler)
