"""What JSON says, and the parts of headers that requests and tensors are made of, as types."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

# Whatever JSON says.
Value: TypeAlias = bool | int | float | str | list["Value"] | dict[str, "Value"] | None
# What JSON can be written of.
Writable: TypeAlias = (
    bool | int | float | str | Sequence["Writable"] | Mapping[str, "Writable"] | Mapping[int, "Writable"] | None
)
Header: TypeAlias = dict[str, Value]
Option: TypeAlias = bool | int | float | str | Sequence[int] | None  # of a submission's function
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
