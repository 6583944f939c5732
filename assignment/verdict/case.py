"""The outcome of one case of a check: what a judging process hands on to the score, by way of pytest's reports."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from assignment.protocol.messages import Header
from assignment.verdict.checks import Check
from assignment.verdict.entries import KernelFigures, Moved, SpeedFigures, Tiles
from assignment.verdict.finding import Explanation, Finding, explanation, finding

if TYPE_CHECKING:
    import pytest

PROPERTY = "case"  # of a test's report: the case as plain data
MARGIN = "margin"  # likewise, recorded by the test itself each time that it compares


@dataclass(frozen=True)
class Case:
    """The outcome of one parametrised case of a check."""

    name: str  # the text between the brackets of its test id; empty without parameters
    status: str
    message: str = ""
    margin: float | None = None  # the largest error over its bound; None where nothing was compared
    ran: bool = True  # False where the function had been given up before
    notes: tuple[str, ...] = ()  # what the simulator remarked, without taking points for it
    measured: str = ""  # how fast it was, where that is what the case is about
    timing: SpeedFigures | None = None  # the same as numbers: see timing/speed.py
    share: float | None = None  # of the points, where it failed for nothing but being slow
    cheated: tuple[str, ...] = ()  # functions whose results were shown not to be the work that was asked for
    hints: tuple[Explanation, ...] | None = None  # what a wrong result may come from; None where nobody has looked
    wrong: str = ""  # a wrong result that nobody has looked into yet: search.WrongResult.packed
    size: int = 0  # elements of its inputs
    map: Tiles | None = None  # where its result is wrong: a compare.Map
    moved: tuple[Moved, ...] = ()  # bytes of its inputs and results: door.moved_by
    lanes: tuple[str, ...] = ()  # what ranks did, step by step: a line for each lane
    compiled: tuple[KernelFigures, ...] = ()  # its kernels on each GPU: compiled.figures
    steps: tuple[str, ...] = ()  # what host code did in its last call
    drawn: str = ""  # what launches of its last call did, for a page: a block of simulator/model.py, in base64
    printed: tuple[str, ...] = ()  # by the submission where it is right: the first lines and the last
    n_printed: int = 0  # how many lines that were
    staff: tuple[str, ...] = ()  # what failed in the grader while it looked for a cause, or says that it did
    finding: Finding | None = None  # what is wrong
    import_error: str = ""  # what kept the package from being imported, as far as its process knows

    @property
    def is_fault(self) -> bool:
        """Return whether the simulator has found one, and its line."""
        return self.finding is not None and self.finding.is_fault

    def as_json(self) -> Header:
        return asdict(self) | {"finding": self.finding and self.finding.as_json(self.name)}


@dataclass(frozen=True)
class CheckCases:
    """A check with the cases of it that were run; `expected` is how many were collected."""

    check: Check
    cases: tuple[Case, ...]
    expected: int


def margins_of(report: "pytest.TestReport") -> list[float]:
    """Return the margins that a test has recorded."""
    return [float(str(value)) for name, value in report.user_properties if name == MARGIN]


def held_by(report: "pytest.TestReport") -> Case | None:
    """Return the case that a report tells of; None where it is not of a test of the submission, or of its outcome."""
    data: Any = dict(report.user_properties).get(PROPERTY)
    if data is None:
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    if values["hints"] is not None:
        values["hints"] = tuple(map(explanation, values["hints"]))
    if values["finding"] is not None:
        values["finding"] = finding(values["finding"])
    return Case(**values)
