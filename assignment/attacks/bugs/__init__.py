"""The bank of planted bugs: wrong submissions, each a few edits away from a plain and correct one.

Every bug has a check that must catch it. One that misuses memory, often with right results, says which line the
simulator must name.
"""

import importlib
import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assignment.attacks.bugs.named import NAMED
from tests import operators

BASE = Path(__file__).parent / "base"
OPERATORS = Path(__file__).resolve().parents[2] / "operators"
PACKAGE = "cs336_kernels"
ARROW = " → "
BANKS = (
    "weighted_sum",
    "rmsnorm",
    "flash_forward_pytorch",
    "flash_backward_pytorch",
    "flash_forward_triton",
    "flash_forward_triton_softmax",
    "flash_backward_triton",
    "memory_weighted_sum",
    "memory_rmsnorm",
    "memory_flash_forward",
    "memory_flash_backward",
    "compile_weighted_sum",
    "compile_rmsnorm",
    "compile_flash_forward",
    "compile_flash_backward",
)


@dataclass(frozen=True)
class Bug:
    """One wrong submission: the base with a few edits, and what must come of it."""

    name: str  # in plain words, short, unique in the problem
    edits: tuple[tuple[str, str], ...]  # (old, new); old occurs exactly once in the problem's files of the base
    caught_by: (
        str  # the check that must catch it, in the problem's file or as "file::check"; its message leads to the bug
    )
    line: str = ""  # of a bug in its accesses: what caught_by must quote, a part of the line at fault or "never stored"
    computed: str = ""  # of a bug whose results are not a kernel's: what caught_by must quote of the line that computes
    compiled: str = ""  # of a bug that only a compiler sees: what caught_by must quote


def bug(name: str, caught_by: str, *edits: str, line: str = "", computed: str = "", compiled: str = "") -> Bug:
    """A bug from edits written as "old → new"."""
    pairs = tuple((old, new) for old, new in (edit.split(ARROW) for edit in edits))
    return Bug(name, pairs, caught_by, line, computed, compiled)


@dataclass(frozen=True)
class PlantedBug:
    """A bug of the bank and where it belongs."""

    problem: str  # the only one that may lose points
    files: tuple[str, ...]  # of the base, where the edits apply
    bug: Bug
    named: str | tuple[str, ...] = ()  # misconceptions or parts of the message, one of which must be told

    @property
    def name(self) -> str:
        """ "rmsnorm/mean-over-the-padded-row" """
        return f"{self.problem}/{slug(self.bug.name)}"


def all_bugs() -> list[PlantedBug]:
    """Every bug, by problem; a bank module holds PROBLEM, FILES and BUGS."""
    banks = [importlib.import_module(f"{__name__}.{bank}") for bank in BANKS]
    found = [PlantedBug(bank.PROBLEM, bank.FILES, bug) for bank in banks for bug in bank.BUGS]
    found = [replace(planted, named=NAMED[planted.problem].get(slug(planted.bug.name), ())) for planted in found]
    for operator in operators.operators():
        if (bank := staff(operator, "bugs")) is not None:
            (problem,), path = operator.problems, operator.file.removeprefix(f"{PACKAGE}/")
            found += [PlantedBug(problem.name, (path,), bug, bank.NAMED.get(slug(bug.name), ())) for bug in bank.BUGS]
    return found


def slug(name: str) -> str:
    """ "mean-over-the-padded-row" """
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def staff(operator: operators.Operator, module: str) -> Any:
    """The module of this name in an operator's folder of the staff's; None where there is none."""
    spec = f"assignment.operators.{operator.name}.staff"
    has_one = importlib.util.find_spec(spec) and importlib.util.find_spec(f"{spec}.{module}")
    return importlib.import_module(f"{spec}.{module}") if has_one else None


def solution(operator: operators.Operator) -> bytes:
    """The staff's own file of a practice operator."""
    return (OPERATORS / operator.name / "staff" / "solution.py").read_bytes()


def base() -> dict[str, bytes]:
    """The correct package that the bugs edit, by path."""
    return {f"{PACKAGE}/{path.name}": path.read_bytes() for path in sorted((BASE / PACKAGE).glob("*.py"))}


def submission(planted: PlantedBug) -> dict[str, bytes]:
    """The package with the bug in it, by path.

    Raises:
        ValueError: if what an edit replaces does not occur exactly once.
    """
    files = base()
    operator = operators.operator_of(planted.problem)
    if operator.is_practice:
        files[operator.file] = solution(operator)
    for old, new in planted.bug.edits:
        counts = {file: files[f"{PACKAGE}/{file}"].count(old.encode()) for file in planted.files}
        if sum(counts.values()) != 1:
            raise ValueError(f"{planted.name}: expected {old!r} once, got {counts}")
        path = f"{PACKAGE}/{max(counts, key=counts.__getitem__)}"
        files[path] = files[path].replace(old.encode(), new.encode())
    return files
