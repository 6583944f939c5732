"""Kernels described as a recorder describes them, and built as a player builds them."""

import ast
import hashlib

import triton

from assignment.player.kernel_builder import Kernels

FILE = "cs336_kernels/x.py"
TL = {"module": "triton.language"}
NAMES = {"tl": TL, "triton": {"module": "triton"}, "math": {"module": "math"}}


def entry(source, names=None, **changes):
    """A description of the last function of a source."""
    try:
        functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
        function = max((f for f in functions if f.name == "kernel"), key=lambda f: f.lineno)
        defaults = {arg.arg: 1 for arg in function.args.args[len(function.args.args) - len(function.args.defaults) :]}
        line = function.lineno
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        line, defaults = 1, {}
    sha256 = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    described = {"file": FILE, "line": line, "name": "kernel", "sha256": sha256, "kind": "jit"}
    return described | {"options": {}, "defaults": defaults, "names": NAMES if names is None else names} | changes


def built(source, names=None, **changes):
    kernels = Kernels({FILE: source}, triton.jit)
    kernels.add([entry(source, names, **changes)])
    return kernels[0]


def body(*lines, parameters="x"):
    return "\n".join([f"def kernel({parameters}):", *(f"    {line}" for line in lines), ""])
