"""The report as `grade.py --json` writes it (schema 1): its entries, and what each holds."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from assignment.verdict.finding import FindingEntry


class Tiles(TypedDict):
    """Where a result is wrong, tile by tile: a compare.Map."""

    name: str
    shape: Sequence[int]
    tile: Sequence[int]
    cells: Sequence[str]
    heights: Sequence[int]
    widths: Sequence[int]
    signs: Sequence[str]
    over: Sequence[Sequence[float]]


class MapEntry(Tiles):
    """The map of a check, of one of its cases."""

    case: str


class Moved(TypedDict):
    """Bytes that a call has moved of an input or a result, and the least that it must."""

    function: str
    tensor: str
    verb: str  # "read" or "written"
    bytes: int
    least: int


class MovedEntry(Moved):
    """What was moved in the case in which that is most beside the least."""

    case: str


class KernelFigures(TypedDict):
    """What a kernel takes of a GPU."""

    kernel: str
    constants: str
    gpu: str
    fits: bool
    error: str
    shared: int
    shared_limit: int
    registers: int
    spills: int
    products: list[str]


class KernelEntry(KernelFigures):
    """The first case that has these figures."""

    case: str


class SpeedFigures(TypedDict):
    """How fast a case was, beside a peer and beside its GPU."""

    against: str
    ratio: float  # of the peer's time to the submission's: the median of the rounds
    low: float
    high: float
    full_points_from: float
    us: float  # a call
    share_of_gpu: float  # of what it reaches
    bytes: float
    operations: float
    gpu_bytes_per_s: float
    gpu_operations_per_s: float


class SpeedEntry(SpeedFigures):
    """The speed of a case, with its name."""

    case: str


class CheckEntry(TypedDict):
    """A check. Points that no check carries have an entry without the keys that may be absent."""

    name: str
    claim: str
    score: float
    max_score: float
    status: str
    cases: int
    passed: int
    message: str
    hint: str
    function: str
    findings: list[FindingEntry]
    rerun: str
    ran: NotRequired[bool]  # False where its function had been given up before
    debug: NotRequired[str]
    margin: NotRequired[float]
    map: NotRequired[MapEntry | None]
    notes: NotRequired[list[str]]
    printed: NotRequired[int]
    measured: NotRequired[list[str]]
    moved: NotRequired[list[MovedEntry]]
    lanes: NotRequired[list[str]]  # of its first case on several ranks
    compiled: NotRequired[list[KernelEntry]]
    timings: NotRequired[list[SpeedEntry]]


class ProblemEntry(TypedDict):
    """A problem with its checks."""

    name: str
    title: str
    score: float
    max_score: float
    gradable: float
    checks: list[CheckEntry]


class Problems(TypedDict):
    """The problems of a report, and those of practice, which are in no sum."""

    problems: list[ProblemEntry]
    practice: list[ProblemEntry]


class StaffNote(TypedDict):
    """What failed in the grader while it looked for causes, and in which check."""

    check: str
    says: str


class GradeDetails(Problems, total=False):
    """How a submission was graded, and what came of it; a class's report of one that got no grade has none of it."""

    schema: int
    gradable: float
    device: str
    seed: int
    seconds: float
    versions: dict[str, str]
    sandbox: str
    jobs: int
    submission_sha256: str
    import_error: str
    grader_failures: list[str]
    notes_to_staff: list[str]
    told_staff: list[StaffNote]  # the same


class Report(GradeDetails):
    """A whole grade: all of its keys are there."""

    score: float
    max_score: float
