"""The bank of planted bugs: wrong submissions, each a few edits away from a plain and correct one.

Every bug has a check that must catch it. One that misuses memory, often with right results, says which line the
simulator must name. Bugs lie in assignment/bank/operators/NAME/bugs, and so does what they edit, in base/ beside them.
"""

import importlib
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from assignment.bank.operators.edits import Bug, edited
from assignment.submission import PACKAGE, REFERENCE
from tests import operators

OPERATORS = Path(__file__).resolve().parent / "operators"


@dataclass(frozen=True)
class PlantedBug:
    """A bug of the bank and where it belongs."""

    problem: str  # the only one that may lose points
    files: tuple[str, ...]  # of the base, where the edits apply
    bug: Bug

    @property
    def name(self) -> str:
        """ "rmsnorm/mean-over-the-padded-row" """
        return f"{self.problem}/{re.sub('[^a-z0-9]+', '-', self.bug.name.lower()).strip('-')}"


def all_bugs() -> list[PlantedBug]:
    """Return every bug, in the order of the course."""
    return [bug for operator in operators.operators() for bank in banks(operator) for bug in in_bank(bank)]


def first_drafts() -> list[PlantedBug]:
    """Return the mistakes of first drafts, which operators' bugs list as DRAFTS."""
    drafts = {f"{problem}/{name}" for problem, names in gathered("bugs", "DRAFTS").items() for name in names}
    return [bug for bug in all_bugs() if bug.name in drafts]


def in_bank(bank: ModuleType) -> list[PlantedBug]:
    """Return the bugs of a module with PROBLEM, FILES and BUGS."""
    return [PlantedBug(bank.PROBLEM, bank.FILES, bug) for bug in bank.BUGS]


def banks(operator: operators.Operator) -> Iterator[ModuleType]:
    """Yield an operator's modules with PROBLEM, FILES and BUGS: those that its bugs lists as BANKS, or itself."""
    if (own := module_of(operator, "bugs")) is not None:
        yield from getattr(own, "BANKS", [own])


def module_of(operator: operators.Operator, module: str) -> ModuleType | None:
    """Return the module of this name in an operator's folder of the bank; None where there is none."""
    spec = f"assignment.bank.operators.{operator.name}"
    has_one = importlib.util.find_spec(spec) and importlib.util.find_spec(f"{spec}.{module}")
    return importlib.import_module(f"{spec}.{module}") if has_one else None


def gathered(module: str, table: str) -> dict[str, Any]:
    """Return the entries of a table, of all operators whose module of this name in the bank has it."""
    found = [getattr(own, table, {}) for each in operators.operators() if (own := module_of(each, module)) is not None]
    return {name: entry for own in found for name, entry in own.items()}


def named(module: str, table: str) -> set[str]:
    """Return the members of a set, of all operators whose module of this name in the bank has it."""
    owners = (module_of(each, module) for each in operators.operators())
    return {name for own in owners if own is not None for name in getattr(own, table, ())}


def base(operator: operators.Operator | None = None) -> dict[str, bytes]:
    """Return the correct package that bugs edit, by path: all operators' but for practice, and this one's.

    Its __init__.py is the reference's, which exports the functions.
    """
    files = {f"{PACKAGE}/__init__.py": (REFERENCE / PACKAGE / "__init__.py").read_bytes()}
    for other in operators.operators():
        if not other.is_apart or other == operator:
            files |= plain(other)
    return files


def plain(operator: operators.Operator) -> dict[str, bytes]:
    """Return an operator's files of the base, by path: those in its base/, or else its solution."""
    place, paths = PurePosixPath(operator.file), sorted((OPERATORS / operator.name / "base").glob("[!_]*.py"))
    return {str(place.with_name(path.name)): path.read_bytes() for path in paths} or {operator.file: solution(operator)}


def solution(operator: operators.Operator) -> bytes:
    """Return the staff's own file of an operator."""
    return (OPERATORS / operator.name / "solution.py").read_bytes()


def submission(planted: PlantedBug) -> dict[str, bytes]:
    """Return the package with the bug in it, by path.

    Raises:
        ValueError: if what an edit replaces does not occur exactly once.
    """
    files = base(operators.operator_of(planted.problem))
    own = {path: files[path] for file in planted.files if (path := f"{PACKAGE}/{file}") in files}
    return files | edited(own, planted.bug.edits, planted.name)
