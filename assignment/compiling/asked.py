"""Compile one kernel of a script for an H100, as another process asks on stdin, and answer on stdout, both as JSON.

The script does not run: of its file, imports and definitions do. A kernel of a module comes with the module.
"""

import ast
import contextlib
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
import triton.language as tl

from assignment.protocol.messages import Value
from assignment.simulator.kernel_values import LaunchArgument
from assignment.simulator.triton_private import JITFunction

from . import build, install, launches
from .targets import TARGETS

_TARGET = TARGETS["h100"]
_DEFINING = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Question:
    """Which kernel is asked about, and how it is launched."""

    path: str
    module: str
    kernel: str
    arguments: dict[str, Value]
    options: dict[str, Value]


def answer(question: Question) -> dict[str, Value]:
    """Return a kernel's registers, spills, shared memory (bytes) and code, or why there are none."""
    install()
    launches.stand_for(_TARGET)
    kernel = _kernel(question)
    given = {name: _argument(value) for name, value in question.arguments.items()}
    with launches.recorded(_TARGET) as seen:
        kernel.run(grid=(1,), warmup=False, **given, **question.options)
    found = build.kernels(seen, processes=1)[0]
    if found.error:
        return {"error": f"it does not compile: {found.error}"}
    asm: dict[str, Value] = {name: text for name, text in build.assembled(seen[0]).asm.items() if isinstance(text, str)}
    return {"registers": found.registers, "spills": found.spills, "shared": found.shared, "asm": asm}


def _kernel(question: Question) -> JITFunction:
    path = Path(question.path)
    sys.path.insert(0, str(path.parent))
    if question.module != "__main__":
        found = getattr(importlib.import_module(question.module), question.kernel)
    else:
        found = _defined(path)[question.kernel]
    while not isinstance(found, JITFunction):  # it is tuned, or has heuristics
        found = found.fn
    return found


def _defined(path: Path) -> dict[str, Value]:
    """Return the names of a script, of which imports, definitions and constants alone have run."""
    names: dict[str, Value] = {"__name__": "script", "__file__": str(path)}
    for node in ast.parse(path.read_text()).body:
        is_constant = _is_constant(node)  # of other values than the script's, which may not be there
        if is_constant or isinstance(node, _DEFINING):
            with contextlib.suppress(Exception) if is_constant else contextlib.nullcontext():
                exec(compile(ast.Module([node], []), str(path), "exec"), names)
    return names


def _is_constant(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    called = [call.func for call in ast.walk(node.value) if isinstance(call, ast.Call)]
    return all(isinstance(func, ast.Attribute) and func.attr == "constexpr" for func in called)


def _argument(value: Value) -> LaunchArgument:
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return tl.str_to_ty(str(value["dtype"]), None)
    name = str(value["tensor"])
    if not hasattr(torch, name):
        return triton.reinterpret(torch.empty(16, dtype=torch.uint8), tl.str_to_ty(name, None))
    tensor = torch.empty(17, dtype=getattr(torch, name))
    return tensor if value["aligned"] else tensor[1:]


if __name__ == "__main__":
    try:
        told = answer(Question(**json.load(sys.stdin)))
    except Exception as error:  # whatever the script's definitions raise
        told = {"error": f"{type(error).__name__}: {error}"}
    print(f"\n{json.dumps(told)}")
