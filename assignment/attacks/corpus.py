"""The corpora: every planted bug, correct variant and cheat as a whole submission, and what must come of it.

A variant is a part, one file that defines some of the eleven functions; they take the place of the base's. A bug is the
base with a few edits. The base is frozen, so that an edit means tomorrow what it means today.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

from assignment.attacks import bugs, cheats
from assignment.judge import checks
from assignment.judge.pool import FUNCTIONS
from assignment.submission import Submission, read
from tests import operators

HERE = Path(__file__).resolve().parent
REFERENCE = HERE.parent / "reference"
BUG, VARIANT, CHEAT = "bug", "variant", "cheat"
GRADED = tuple(name for name in operators.problems() if not checks.is_practice(name))


@dataclass(frozen=True)
class Entry:
    """One submission of a corpus."""

    name: str  # "bugs/rmsnorm/eps after the root", "variants/rmsnorm_atomics"
    kind: str
    submission: Submission
    problems: tuple[str, ...]  # to be graded: those that its files can affect
    problem: str = ""  # of a bug: the one that must lose points
    caught_by: str = ""  # of a bug: the check that must fail
    pays: tuple[str, ...] = ()  # of a variant: the checks of cost that its style must lose
    line: str = ""  # of a bug in its accesses, computed elsewhere, or not compiled: what caught_by's message must quote
    named: tuple[str, ...] = ()  # of a bug: misconceptions or parts of the message, one of which must be told
    misuses_memory: bool = False
    cheat: cheats.Cheat | None = None

    @property
    def expectation(self) -> str:
        if self.cheat:
            return self.cheat.expectation
        if self.kind == VARIANT:
            return f"keeps every point but those of {', '.join(self.pays)}" if self.pays else "keeps every point"
        return f"fails {self.caught_by}"


PAYS = {  # right, and dearer than it must be
    "attention_whole_heads": ("test_flash_forward_traffic",),  # copies its inputs
    "forward_padded": ("test_flash_forward_traffic",),  # copies its inputs
    "forward_split_keys": ("test_flash_forward_traffic",),  # each split reads q, and writes an o of its own
    "forward_split_keys_atomics": ("test_flash_forward_traffic",),
    "forward_two_pass": ("test_flash_forward_traffic",),  # reads k twice
    "rmsnorm_descriptors": ("test_rmsnorm_forward_traffic", "test_rmsnorm_backward_traffic"),  # rows in two passes
    "rmsnorm_two_kernels": ("test_rmsnorm_backward_traffic",),  # grad_weight in a kernel of its own
}


def entries() -> list[Entry]:
    """Everything there is: the reference and the base among the variants."""
    whole = {"reference": read(REFERENCE), "base": Submission(bugs.base())}
    variants = [Entry(f"variants/{name}", VARIANT, submission, GRADED) for name, submission in whole.items()]
    parts = [_variant(path) for path in sorted((HERE / "variants").glob("[!_]*.py"))]
    parts += [entry for operator in operators.operators() if operator.is_practice for entry in _practiced(operator)]
    return [*variants, *parts, *(_bug(bug) for bug in bugs.all_bugs()), *map(_cheat, cheats.all_cheats())]


# Appended to the base's __init__.py: the part's functions take the place of the base's wherever these are called.
TAKE_OVER = """
import sys

from cs336_kernels import part

for _module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "cs336_kernels"]:
    for _name in {functions}:
        if hasattr(_module, _name):
            setattr(_module, _name, getattr(part, _name))
"""


def _variant(path: Path) -> Entry:
    content = path.read_bytes()
    functions = [name for name in defined(content) if name in FUNCTIONS]
    files = bugs.base()
    files["cs336_kernels/__init__.py"] += TAKE_OVER.format(functions=functions).encode()
    submission = Submission({**files, "cs336_kernels/part.py": content})
    problems = {problem for name in functions for problem in _problems(name)}
    pays = tuple(f"test_cost.py::{check}" for check in PAYS.get(path.stem, ()))
    return Entry(f"variants/{path.stem}", VARIANT, submission, tuple(p for p in GRADED if p in problems), pays=pays)


def _practiced(operator: operators.Operator) -> list[Entry]:
    """The solution of a practice operator, and its other right ways."""
    own = {"solution": bugs.solution(operator)}
    folder = bugs.OPERATORS / operator.name / "staff" / "variants"
    own |= {path.stem: path.read_bytes() for path in sorted(folder.glob("[!_]*.py"))}
    problems = tuple(problem.name for problem in operator.problems)
    return [
        Entry(f"variants/{operator.name}_{name}", VARIANT, Submission({**bugs.base(), operator.file: source}), problems)
        for name, source in own.items()
    ]


def defined(source: bytes) -> list[str]:
    """The names of a module's functions."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def _problems(function: str) -> tuple[str, ...]:
    """The problems in which a function is graded."""
    if function == "flash_attention":
        return ("flash_forward_triton", "flash_backward_triton")
    return tuple(problem for problem in GRADED if function.startswith(problem))


def _bug(planted: bugs.PlantedBug) -> Entry:
    # Every other problem's code is in files that the edits leave alone; only flash_attention is graded in two.
    triton = ("flash_forward_triton", "flash_backward_triton")
    affected = triton if planted.problem == triton[1] else (planted.problem,)
    check = planted.bug.caught_by
    file = "test_" + planted.problem.removesuffix("_pytorch").removesuffix("_triton") + ".py"
    return Entry(
        name=f"bugs/{planted.name}",
        kind=BUG,
        submission=Submission(bugs.submission(planted)),
        problems=affected,
        problem=planted.problem,
        caught_by=check if "::" in check or not check else f"{file}::{check}",
        line=planted.bug.line or planted.bug.computed or planted.bug.compiled,
        named=_alternatives(planted.named),
        misuses_memory=bool(planted.bug.line),
    )


def _alternatives(named: str | tuple[str, ...]) -> tuple[str, ...]:
    return (named,) if isinstance(named, str) else named


def _cheat(cheat: cheats.Cheat) -> Entry:
    return Entry(
        name=f"cheats/{cheat.group}/{cheat.name}",
        kind=CHEAT,
        submission=Submission(cheats.submission(cheat)),
        problems=(cheat.problem,),
        problem=cheat.problem,
        cheat=cheat,
    )
