"""What is to be said of Python's packages, of the simulator and of Triton's compiler."""

import importlib.machinery
import importlib.metadata
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from assignment.commands.doctor import processes
from assignment.commands.doctor.finding import FAIL, OK, WARN, MachineFinding

BY_UV = "run it by uv, which brings the packages of pyproject.toml: uv run grade.py --doctor (first: pip install uv)"
ANEW = "install the packages again: uv sync --reinstall; if it stays, show this line to the staff"


def wanted() -> dict[str, str]:
    """Return the packages that pyproject.toml asks for, by the name that is imported, with the version if pinned."""
    project = tomllib.loads((processes.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parts = [re.fullmatch(r"([\w-]+)(?:==)?(.*)", line) for line in project["dependencies"]]
    return {part[1].replace("-", "_"): part[2] if "==" in part[0] else "" for part in parts if part}


def origin(name: str) -> Path | None:
    """Return the file that `import name` would load; None if there is none."""
    spec = importlib.machinery.PathFinder.find_spec(name)
    return Path(spec.origin) if spec and spec.origin else None


def packages() -> MachineFinding:
    """Return whether all are installed, and none is hidden by a file of its name."""
    missing = [name for name in wanted() if origin(name) is None]
    if missing:
        return MachineFinding(FAIL, "packages", f"not installed: {', '.join(missing)}", BY_UV)
    for name in wanted():
        file = origin(name)
        if file and not {"site-packages", "dist-packages"} & {*file.parts}:
            found = f"{file} stands in the way of the package {name}"
            return MachineFinding(FAIL, "packages", found, "rename it, or take its folder off PYTHONPATH")
    return MachineFinding(OK, "packages", ", ".join(wanted()))


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
    return _runs("compiler", "Triton compiles a small kernel for GPUs", "assignment.compiling")


def _runs(item: str, good: str, module: str) -> MachineFinding:
    problem = processes.first_kernel("-m", module)
    if not problem:
        return MachineFinding(OK, item, good)
    advice = ANEW
    if "LD_LIBRARY_PATH" in os.environ:
        advice = f"other libraries may come first: unset LD_LIBRARY_PATH; if that does not help, {ANEW}"
    return MachineFinding(FAIL, item, f"a small kernel fails: {problem}", advice)
