"""The bank of cheats: submissions that want points for no work, more than points, or nobody to get any.

A cheat is the frozen base, right in every function, with a module of its own: what it defines of the eleven functions
takes the place of the base's, and what it does at import is done. It attacks one problem. The others must keep exactly
what they would have had, the run must end in time and leave nothing behind, and its report must be whole.

All are safe where no defence holds: bombs are bounded, nothing is removed but the staged copy, only the grader's own
processes are ended, and what is found is looked at for a token that was planted, and otherwise not at all.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from assignment.bank import bugs
from assignment.verdict import checks
from tests import operators

HERE = Path(__file__).parent
PACKAGE = bugs.PACKAGE
CLASSES = {  # as on the matrix, with the modules that hold them
    "no_kernel": (
        "library",
        "no_kernel",
        "in_the_kernel",
        "laundering",
        "encoded",
        "fig_leaf",
        "programs",
        "sums",
        "decoys",
        "holding",
        "wall",
        "state",
        "known",
        "stranger",
        "stranger_kernels",
        "two_programs",
        "left_open",
        "together",
    ),
    "comparison": ("comparison",),
    "tests": ("on_the_tests",),
    "harness": ("harness", "processes", "forgeries", "files"),
    "denial": ("denial", "results"),
    "reading": ("reading",),
}
CONFINED = ("harness", "denial", "reading")  # the classes that depend on the sandbox

ZERO = "scores 0"  # for the functions that it replaces: it may have the points of others, whose work it leaves alone
LOSES = "loses"  # the checks named; the others of the problem may be lost too
HARMLESS = "keeps every point"
REVIEWED = "is for staff to look at"  # in each check that it does not lose
OWN_LOSS = "may lose points of its own problem"
REFUSED = "is refused"

# What is run of the problem under attack by --quick, and of the one beside it always.
QUICK = {
    "weighted_sum": ("test_weighted_sum.py::test_forward_values", "test_weighted_sum.py::test_backward_values"),
    "rmsnorm": ("test_rmsnorm.py::test_forward_values", "test_rmsnorm.py::test_backward_values"),
    "flash_forward_pytorch": (
        "test_flash_forward.py::test_pytorch_values",
        "test_flash_forward.py::test_pytorch_memory",
    ),
    "flash_forward_triton": ("test_flash_forward.py::test_triton_values", "test_flash_forward.py::test_triton_causal"),
    "flash_backward_pytorch": ("test_flash_backward.py::test_pytorch_values",),
    "flash_backward_triton": ("test_flash_backward.py::test_triton_values",),
}
OF_PRACTICE = "no_kernel"  # the class of those in operators/NAME/cheats.py
BYSTANDERS = {"weighted_sum": "test_rmsnorm.py::test_forward_values"}
BYSTANDER = "test_weighted_sum.py::test_forward_values"

MISTAKE = "the cheat cannot be imported"

# Before every cheat's source, the second in a module of its own. A cheat whose step did not take place, by a mistake in
# the bank, must not look like one that was held: it says `proven(…)` of what it has done.
IMPORTS = """\
import base64, contextlib, ctypes, gc, json, math, os, resource, signal, socket, subprocess, sys, threading, time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

def proven(took_place):
    if not took_place:
        raise RuntimeError("the cheat cannot be imported: its step did not take place")
"""
HEAD = """
from cs336_kernels import plain
from cs336_kernels.plain import *

_flash, _rms, _wsum = (sys.modules[f"cs336_kernels.{file}"] for file in ("flash_attention", "rmsnorm", "weighted_sum"))

"""
# Before the source of a cheat that has PyTorch's results copied.
COPY = """
@triton.jit
def _copy(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def copied(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _copy[(triton.cdiv(x.numel(), 1024),)](x.contiguous(), y, x.numel(), SIZE=1024)
    return y
"""


# After it: each of the functions has its results copied.
WRAP = """
def _copying(function):
    def copying(*args, **options):
        came = function(*args, **options)
        return tuple(map(copied, came)) if isinstance(came, tuple) else copied(came)
    return copying
"""


# Appended to the base's __init__.py, as for a variant. A cheat that cannot be imported, by a mistake in the bank, must
# not look like one that was held.
TAKE_OVER = """
import sys

_modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "cs336_kernels"]
try:
    from cs336_kernels import cheat as _cheat

    _new = {{name: getattr(_cheat, name) for name in {functions}}}
except Exception as error:
    _text = f"{mistake}: {{error!r}}"

    def _broken(*args, **options):
        raise RuntimeError(_text)

    _new = dict.fromkeys(__all__, _broken)

for _module in _modules:
    for _name, _function in _new.items():
        if hasattr(_module, _name):
            setattr(_module, _name, _function)
"""


@dataclass(frozen=True)
class Cheat:
    """One hostile submission, and what must come of it."""

    name: str  # "sdpa_with_decoy": unique in its class
    problem: str  # the one that it attacks
    source: str  # what @TOKEN@, @PORT@ and @HOME@ stand for is known when it is run
    expected: str = ZERO
    loses: tuple[str, ...] = ()  # with LOSES: parts of names of checks
    evidence: str = ""  # a pattern for the message of a lost check: what a student would accept
    file: str = "cheat.py"  # where the source goes: a file of the base takes it at its end
    files: dict[str, str] = field(default_factory=dict)  # further ones, by their path in the submission
    only: tuple[str, ...] = ()  # the checks of the problem to run, where all would take too long
    within_s: float = 180.0  # the whole run; undisturbed it takes 3 s, and what hangs a minute more
    archive: Callable[[Path, dict[str, bytes], str], Path] | None = None  # packs it otherwise: folder, files, token
    confined: bool = False  # needs a sandbox that hides files, processes and the network: limits alone do not hold it
    hurts_all: bool = False  # it breaks what its author's other problems use too
    slow: bool = False  # left out by --quick, as what a module lists in SLOW: takes half a minute, or is like another
    group: str = ""  # the class, set by all_cheats()

    @property
    def expectation(self) -> str:
        return f"loses {', '.join(self.loses)}" if self.loses else self.expected

    @property
    def functions(self) -> list[str]:
        """The functions of the submission that it takes the place of."""
        defined = re.findall(r"^def (\w+)", self.source, re.MULTILINE)
        return [name for name in defined if name in operators.functions()]

    @property
    def bystander(self) -> str:
        """A check of another problem, whose points must stay."""
        return BYSTANDERS.get(self.problem, BYSTANDER)


def by_torch(problem: str, file: str, source: str) -> list[Cheat]:
    """Return two cheats of functions that are PyTorch's: as they stand, and with a kernel that copies what comes."""
    names, line = re.findall(r"^def (\w+)", source, re.MULTILINE), rf"{re.escape(f'cs336_kernels/{file}')}:\d+"
    wrapped = WRAP + "".join(f"{name} = _copying({name})\n" for name in names)
    return [
        Cheat(f"{problem}_by_torch", problem, source, evidence=line),
        Cheat(
            f"{problem}_by_torch_copied_by_a_kernel", problem, COPY + source + wrapped, evidence=f"(?s)kernel.*{line}"
        ),
    ]


def quick(problem: str) -> tuple[str, ...]:
    """The checks of a problem that --quick runs; of one that QUICK does not name those of plain values."""
    own = (check.name for check in checks.declared() if check.problem == problem and check.name.endswith("values"))
    return QUICK.get(problem) or tuple(own)


def all_cheats() -> list[Cheat]:
    """Every cheat, by class; each module holds CHEATS, and the names of some of them in SLOW."""
    return [*_by_class(), *_of_operators()]


def _of_operators() -> list[Cheat]:
    """Those in CHEATS of operators/NAME/cheats.py: without a kernel's work, in the operator's own file."""
    found = [
        (operator, bank)
        for operator in operators.operators()
        if (bank := bugs.module_of(operator, "cheats")) is not None
    ]
    return [
        replace(cheat, group=OF_PRACTICE, file=operator.file.removeprefix(f"{PACKAGE}/"))
        for operator, bank in found
        for cheat in bank.CHEATS
    ]


def _by_class() -> list[Cheat]:
    return [
        replace(cheat, group=group, slow=cheat.slow or cheat.name in bank.SLOW)
        for group, modules in CLASSES.items()
        for bank in (importlib.import_module(f"{__name__}.{module}") for module in modules)
        for cheat in bank.CHEATS
    ]


def submission(cheat: Cheat) -> dict[str, bytes]:
    """The files of a cheat, by path; what stands for values of a run is still in them."""
    files = bugs.base(operators.operator_of(cheat.problem))
    files[f"{PACKAGE}/plain.py"] = (HERE / "plain.py").read_bytes()
    path = f"{PACKAGE}/{cheat.file}"
    if cheat.file == "cheat.py":
        files[f"{PACKAGE}/__init__.py"] += TAKE_OVER.format(functions=cheat.functions, mistake=MISTAKE).encode()
        files[path] = (IMPORTS + HEAD + cheat.source.lstrip("\n")).encode()
    else:
        files[path] = files.get(path, b"") + f"\n\n{IMPORTS}\n{cheat.source}".encode()
    return files | {name: content.encode() for name, content in cheat.files.items()}
