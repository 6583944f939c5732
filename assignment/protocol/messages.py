"""What the judge and its workers send each other beside tensors: the headers of frames, as types.

A reply is believed by none: the judge reads it as whatever JSON says, in judge/replies.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    from torch import Tensor

    from tests.operators import About  # not there in a worker, which needs no types

# Whatever JSON says.
Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
Header: TypeAlias = dict[str, Value]
Option: TypeAlias = bool | int | float | str | None  # of a submission's function
Options: TypeAlias = dict[str, Option]
Place: TypeAlias = tuple[int, str, list[int]]  # of a tensor in shared memory: byte, dtype and shape


class TensorEntry(TypedDict):
    """A tensor of a frame."""

    storage: int
    dtype: str
    shape: list[int]
    strides: list[int]
    offset: int


class StorageEntry(TypedDict):
    """A storage of a frame, of whose bytes some runs are sent."""

    nbytes: int
    runs: list[tuple[int, int]]


class ConstantsSeen(TypedDict):
    """The constants of a program's launches: what was seen, by place, and which of it is each launch's."""

    seen: list[dict[str, list[str]]]
    of: list[int]


class Details(TypedDict, total=False):
    """What some kinds of requests ask beside the call."""

    wrt: list[int]  # of "gradients": the inputs, and how they are asked for
    times: int
    has_grad: bool
    interleaved: bool
    configurations: int | list[int]  # of autotuned kernels
    drawn: int  # or what draws them


class Request(Details, total=False):
    """A request to a worker; which keys it has depends on its kind."""

    id: str
    kind: str
    function: str
    about: "About"
    options: Options
    isolated: bool  # of "load": leave the package's __init__ alone
    sources: dict[str, str]  # of the submission, by file
    order: int  # of the programs of a launch
    turns: list[int]  # the slots of calls that are timed
    target: str | dict[str, int | str]  # the GPU that host code hears of: a name, or its properties
    multiprocessors: int  # that host code hears of; without them as many as the target has
    targets: list[str]  # of "compile"
    figures: dict[str, dict[str, int]]  # of compiled kernels, by key
    made: list[tuple[str, list[int]]]  # dtype and shape of stand-ins
    notes_constants: bool
    kernels: list[dict[str, Value]]
    programs: dict[str, int]  # by target
    constants: dict[str, ConstantsSeen]
    processes: int
    memory: list[int | str]  # of "hold": of another process, and what lies where
    slots: list[list[Place]]
    outputs: list[list[Place]]
    positions: list[int]  # of "give"


class Asked(Request):
    """A request, with the tensors that were sent with it."""

    tensors: Sequence["Tensor"]


class Reply(TypedDict, total=False):
    """A worker's reply; which keys it has depends on its status."""

    id: str
    status: str
    kind: str
    message: str
    fits: bool
    sticks: bool
    import_error: str
    asked: bool
    groups: list[int]
    bare: bool
    unstored: list[str]
    notes: list[str]
    evidence: list[str]
    doubts: list[str]
    nans: list[str]
    reads: list[str]
    unplayed: list[str]
    events_s: float
    peak: int
    tuned: list[float]
    constants: list[dict[str, list[str]]]
    constants_of: list[int]
    types: list[str]
    text: str
    by_submission: bool
    in_kernel: bool
    is_stub: bool
    kernels: list[dict[str, Value]]
    stopped: dict[str, str]
    differing: list[str]
