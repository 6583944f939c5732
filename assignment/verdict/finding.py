"""A finding: what is wrong with a case, as data from where it is found to the JSON. Text is made of it at the edge."""

from collections.abc import Hashable
from dataclasses import asdict, dataclass, field
from typing import TypedDict, cast

from assignment.protocol import replies

# Kinds. Those of a kernel that misuses memory are the simulator's (simulator/faults.py).
FAULTS = (
    "out of bounds", "race", "unwritten memory", "undefined result", "input written to", "endless loop",
    "deadlock", "false hint", "memory fault",
)  # fmt: skip
NOT_IMPORTED, NOT_PLAYED = replies.NOT_IMPORTED, replies.NOT_PLAYED
NOT_THE_WORK = "not the work"  # that was asked for: values that no kernel has computed
NO_ERROR = "no error"  # raised for a caller's mistake
RAISED = "raised"
WRONG_VALUES, NEVER_STORED = "wrong values", "never stored"
TOO_MUCH_MOVED = "too much moved"
TOO_SLOW = "too slow"
OTHER = replies.OTHER  # or a status, of what is neither right nor wrong

PLACES = ("at ", "computed at ", "called from ")  # how a line of a message begins that names one of the submission's


@dataclass(frozen=True)
class Explanation:
    """What a wrong result may come from: a misconception, known by its name and what it measures.

    Attributes:
        name: of an operator's misconception, or of one of those that any function may have.
        numbers: that tell two of one name apart, such as a factor.
        says: what was computed, in one sentence.
        section: of the handout, such as "handout/rmsnorm.md#algorithm".
        look: where to look, without the solution.
        is_rare: told only where no other explains as much.
    """

    name: str
    says: str = field(compare=False)
    section: str = field(compare=False, default="")
    look: str = field(compare=False, default="")
    numbers: tuple[float, ...] = ()
    is_rare: bool = field(compare=False, default=False)

    def __str__(self) -> str:
        """Return what the student reads."""
        return f"{self.says} ({self.section}). {self.look}" if self.section else self.says

    def as_json(self) -> "ExplanationEntry":
        """Return the explanation as the report has it."""
        return cast(ExplanationEntry, {**asdict(self), "numbers": [*self.numbers]})


def explanation(data: "ExplanationEntry") -> Explanation:
    """Return what asdict made plain data of."""
    name, says, section, look = data["name"], data["says"], data["section"], data["look"]
    return Explanation(name, says, section, look, tuple(data["numbers"]), data["is_rare"])


class ExplanationEntry(TypedDict):
    """An explanation in the report."""

    name: str
    says: str
    section: str
    look: str
    numbers: list[float]
    is_rare: bool


class LineEntry(TypedDict):
    """A line of the submission in the report."""

    path: str
    line: int


class FindingEntry(TypedDict):
    """A finding in the report."""

    case: str
    kind: str
    says: str
    places: list[str]
    lines: list[LineEntry]
    error: str
    result: str
    numbers: dict[str, int]
    misconceptions: list[ExplanationEntry]


@dataclass(frozen=True)
class SourceLine:
    """A line of the submission that a message names, as in "at cs336_kernels/rmsnorm.py:12 in rmsnorm_forward"."""

    says: str
    path: str
    line: int


@dataclass(frozen=True)
class Finding:
    """What is wrong with a case.

    Attributes:
        kind: one of the above, or the case's status.
        says: what is wrong, without the call that it is seen in.
        places: the lines of the submission that it names, the innermost first.
        error: the class of an exception.
        result: the name of a wrong result.
        numbers: of a wrong result "wrong" and "nan" of its "elements".
    """

    kind: str
    says: str = ""
    places: tuple[SourceLine, ...] = ()
    error: str = ""
    result: str = ""
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        return self.kind in FAULTS

    @property
    def cause(self) -> Hashable:
        """Two that are equal here have one cause: the same lines, or else the same words."""
        return (self.kind, self.error, self.places) if self.places else (self.kind, self.says)

    def as_json(self, case: str, told: tuple[Explanation, ...] = ()) -> FindingEntry:
        """Return the finding as the report has it, with the misconceptions that are told of its case."""
        places, misconceptions = [place.says for place in self.places], [one.as_json() for one in told]
        lines = [{"path": place.path, "line": place.line} for place in self.places]
        data = {"case": case, **asdict(self), "places": places, "lines": lines, "misconceptions": misconceptions}
        return cast(FindingEntry, data)


def finding(data: FindingEntry) -> Finding:
    """Return what as_json made plain data of; an older grader gave places no lines."""
    lines = data.get("lines") or [LineEntry(path="", line=0)] * len(data["places"])
    places = tuple(SourceLine(says, **line) for says, line in zip(data["places"], lines, strict=True))
    return Finding(data["kind"], data["says"], places, data["error"], data["result"], data["numbers"])


def places_in(said: str) -> tuple[SourceLine, ...]:
    """Return the lines of the submission that a worker's message names, without their text."""
    lines = (line.strip().partition(": ")[0] for line in said.splitlines())
    return tuple(place for line in lines if line.startswith(PLACES) and (place := _place(line)).line)


def _place(says: str) -> SourceLine:
    file, _, position = says.partition(":")  # "at cs336_kernels/rmsnorm.py", "12 in rmsnorm_forward"
    number = position.partition(" ")[0]
    return SourceLine(says, file.rpartition(" ")[2], int(number) if number.isdecimal() and len(number) < 10 else 0)
