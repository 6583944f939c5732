"""What the judge and its workers send each other beside tensors: the headers of frames, as types.

A reply is believed by none: the judge reads it as whatever JSON says, in judge/replies.py.
"""

from typing import TypeAlias, TypedDict

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
