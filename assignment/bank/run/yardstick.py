"""The yardstick: single defects of real students, as bugs of the bank, and what each may cost.

All leave plain values right. A defect costs the check that is there for it, and at most a quarter of its problem.
They lie in assignment/bank/operators/NAME/defects.py.
"""

from dataclasses import dataclass

from assignment.bank import bugs

NAME = "yardstick"  # on the command line
SHARE = 0.25  # of its problem's points that a defect may cost
TOLD = 0.9  # of the defects, how many must be told by a hint or their line


@dataclass(frozen=True)
class Defect:
    """One mistake, in the words of who made it, and the bug of the bank that is it."""

    title: str
    bug: str  # an entry's name, without "bugs/"


def all_defects() -> list[Defect]:
    """Return every defect, in the order of the course."""
    defects = bugs.gathered("defects", "DEFECTS")
    return [Defect(title, f"{problem}/{bug}") for problem, named in defects.items() for title, bug in named.items()]


DEFECTS = {f"bugs/{defect.bug}": defect for defect in all_defects()}  # by the entry's name
