"""Programs as hostile data: the size of what a recorder says its submission did, before it is read."""

from torch import Tensor

from assignment.protocol.program import MAX_VALUES, Program, Unreadable
from assignment.protocol.program import read as read_bytes

MAX_BYTES = 64 << 20
WARMUP = b'["warmup",'


def read(data: Tensor) -> Program:
    """Return the program in these bytes, checked; raises Unreadable."""
    if data.numel() > MAX_BYTES:
        raise Unreadable(
            f"the call's steps take {data.numel() >> 20} MiB; at most {MAX_BYTES >> 20} are played: use larger tiles"
        )
    if data.numel() > MAX_VALUES and (n_values := count(data)) > MAX_VALUES:
        raise Unreadable(
            f"the call's steps have {n_values:,} values; at most {MAX_VALUES:,} are played: use larger tiles"
        )
    return read_bytes(data)


def asks_for_figures(data: Tensor) -> bool:
    """Return whether a program that may be read asks what kernels take."""
    return data.numel() <= MAX_BYTES and WARMUP in data.numpy().tobytes()


def count(data: Tensor) -> int:
    """Return how many values the JSON in these bytes has at most: each but the first of a list follows a mark."""
    return sum(int((data == ord(mark)).sum()) for mark in ",[{")
