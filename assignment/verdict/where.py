"""Where a student finds what a check is about: the file to open, the function, the section of the handout."""

from dataclasses import dataclass

from assignment.verdict import checks
from assignment.verdict.checks import Check
from tests import operators


@dataclass(frozen=True)
class Place:
    file: str
    function: str
    section: str

    def __str__(self) -> str:
        """Return the place as a stub says it."""
        return f"{self.file}: {self.function}, {self.section}"


def place(check: Check) -> Place:
    """Return the place of a check's function, and the section on its problem."""
    file = operators.operator_of(check.function).file
    return Place(file, check.function, checks.problems()[check.problem].section)


def problems_in(files: set[str]) -> set[str]:
    """Return the problems that a change of these files concerns; all where one of them belongs to none."""
    standard = {operator.file for operator in operators.operators()}
    is_all = bool(files - standard)
    return {name for name in operators.problems() if is_all or operators.operator_of(name).file in files}
