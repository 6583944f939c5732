"""The corpora: every planted bug, correct variant and cheat as a whole submission, and what must come of it.

A variant is a part, one file that defines some of the eleven functions; they take the place of the base's. A bug is the
base with a few edits. The base is frozen, so that an edit means tomorrow what it means today.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assignment.attacks import bugs, cheats
from assignment.judge import checks
from assignment.judge.pool import FUNCTIONS
from assignment.submission import REFERENCE, Submission, read
from tests import operators

BUG, VARIANT, CHEAT = "bug", "variant", "cheat"
GRADED = tuple(name for name in operators.problems() if not checks.is_practice(name))
PAYS = bugs.gathered("variants", "PAYS")  # of those right, and dearer than they must be: the checks of cost they lose


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


def entries() -> list[Entry]:
    """Return everything there is: the reference and the base among the variants."""
    whole = {"reference": read(REFERENCE), "base": Submission(bugs.base())}
    variants = [Entry(f"variants/{name}", VARIANT, submission, GRADED) for name, submission in whole.items()]
    variants += [entry for operator in operators.operators() for entry in _variants(operator)]
    return [*variants, *(_bug(bug) for bug in bugs.all_bugs()), *map(_cheat, cheats.all_cheats())]


# Appended to the base's __init__.py: the part's functions take the place of the base's wherever these are called.
TAKE_OVER = """
import sys

from cs336_kernels import part

for _module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "cs336_kernels"]:
    for _name in {functions}:
        if hasattr(_module, _name):
            setattr(_module, _name, getattr(part, _name))
"""


def _variants(operator: operators.Operator) -> Iterator[Entry]:
    """Yield what an operator has in staff/variants; of practice, which the reference has not, the solution too."""
    if operator.is_practice:
        problems = tuple(problem.name for problem in operator.problems)
        solution = Submission(bugs.base() | {operator.file: bugs.solution(operator)})
        yield Entry(f"variants/{operator.name}_solution", VARIANT, solution, problems)
    if (own := bugs.staff(operator, "variants")) is not None:
        for path in sorted(Path(own.__path__[0]).glob("[!_]*.py")):
            yield _variant(operator, path)


def _variant(operator: operators.Operator, path: Path) -> Entry:
    content, files = path.read_bytes(), bugs.base(operator)
    functions = [name for name in defined(content) if name in FUNCTIONS]
    if operator.is_practice:  # in a file of its own, which the package does not import
        files[operator.file] = content
    else:
        files[f"{bugs.PACKAGE}/__init__.py"] += TAKE_OVER.format(functions=functions).encode()
        files[f"{bugs.PACKAGE}/part.py"] = content
    affected = {problem for name in functions for problem in _problems(name)}
    problems = tuple(problem.name for problem in operator.problems if problem.name in affected)
    return Entry(f"variants/{path.stem}", VARIANT, Submission(files), problems, pays=PAYS.get(path.stem, ()))


def defined(source: bytes) -> list[str]:
    """Return the names of a module's functions."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def _problems(function: str) -> tuple[str, ...]:
    """Return the problems in which a function is graded: for one between two, those of its values and gradients."""
    record = operators.functions()[function]
    if record.problem:
        return (record.problem,)
    return tuple(problem for part in (record.forward, record.gradients) for problem in _problems(part))


def _affected(problem: str) -> tuple[str, ...]:
    """Return the problems that an edit may cost points in: two where a function takes its gradients from this one."""
    between = [_problems(name) for name, function in operators.functions().items() if not function.problem]
    return next((pair for pair in between if pair[-1] == problem), (problem,))


def _bug(planted: bugs.PlantedBug) -> Entry:
    check = planted.bug.caught_by
    file = "test_" + planted.problem.removesuffix("_pytorch").removesuffix("_triton") + ".py"
    return Entry(
        name=f"bugs/{planted.name}",
        kind=BUG,
        submission=Submission(bugs.submission(planted)),
        problems=_affected(planted.problem),
        problem=planted.problem,
        caught_by=check if "::" in check or not check else f"{file}::{check}",
        line=planted.bug.line or planted.bug.computed or planted.bug.compiled,
        named=planted.bug.named,
        misuses_memory=bool(planted.bug.line),
    )


def _cheat(cheat: cheats.Cheat) -> Entry:
    return Entry(
        name=f"cheats/{cheat.group}/{cheat.name}",
        kind=CHEAT,
        submission=Submission(cheats.submission(cheat)),
        problems=(cheat.problem,),
        problem=cheat.problem,
        cheat=cheat,
    )
