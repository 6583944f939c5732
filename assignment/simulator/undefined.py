"""Values that a GPU leaves undefined: unwritten elements, masked lanes of a load without `other`.

Fresh memory holds a pattern that no computation makes, a NaN in every float type. Loading such a
value is not a fault by itself: a kernel may read too much and throw it away. So a program that
loaded one is run again with another value in its place, and the value counts as used only if that
changes what the program stores.
"""

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from assignment.pytorch_private import Argument, set_deterministic_algorithms

from . import numerics
from .faults import Place

PATTERN = {2: 0x7FDA, 4: 0x7FDADADA, 8: 0x7FDADADADADADADA}  # by bytes of an element
SMALL = 0x5A  # of each byte in types in which any pattern is an ordinary value: labels say what is unwritten there
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_fresh: dict[int, StorageWeakRef] = {}  # storages that began with the pattern, by address
_FORGET_AT = 4096  # of them, after which those that are gone are dropped
_PROBES = {  # what takes the place of undefined values: the largest, the smallest, an ordinary one
    True: (3e4, -3e4, 1.5),
    False: (3e4, -3e4, 1.5, math.nan),  # of a masked-out lane, which a factor of zero does not hide
}
# programs run again for one line: with unwritten values, and with masked-out lanes
_ENOUGH = {True: 64, False: 3}


class Write(NamedTuple):
    """One store or update, with what is needed to undo and redo it."""

    addresses: np.ndarray  # plain ones
    old: np.ndarray
    new: np.ndarray
    began_fresh: bool  # the memory: what is unwritten there is still known to be

    def take_back(self) -> None:
        """Restore the old values."""
        _scatter(self.addresses, self.old)

    def do_again(self) -> None:
        """Store the new values again."""
        _scatter(self.addresses, self.new)


_Everything: Any = ctypes.c_char * 2**47  # one type for memory of any length: making types is slow


def _scatter(addresses: np.ndarray, values: np.ndarray) -> None:
    first, last = int(addresses.min()), int(addresses.max())
    memory = np.frombuffer(_Everything.from_address(first), values.dtype, (last - first) // values.itemsize + 1)
    memory[(addresses - np.uint64(first)).view(np.int64) // values.itemsize] = values


def fill_fresh_memory() -> None:
    """Make torch.empty and its relatives give the pattern, other fresh memory NaN."""
    # torch.use_deterministic_algorithms does the same, and imports Inductor: one second
    set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted"):
        setattr(torch, name, _filled(getattr(torch, name)))
    for name in ("new_empty", "new_empty_strided"):
        setattr(torch.Tensor, name, _filled(getattr(torch.Tensor, name)))


def _filled(make: Callable) -> Callable:
    def fresh(*args: Argument, **kwargs: Argument) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        if type(tensor) is torch.Tensor and tensor.device.type == "cpu" and tensor.layout == torch.strided:
            fill(tensor)
        return tensor

    fresh.__name__, fresh.__doc__ = make.__name__, make.__doc__
    return fresh


def fill(tensor: torch.Tensor) -> None:
    """Fill a tensor's memory with the pattern, and remember that it began so, where the type can tell."""
    storage, width = tensor.untyped_storage(), tensor.itemsize
    if not storage.nbytes():
        return
    raw: Any = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    if not _is_telling(tensor.dtype):  # at least not what lay there before
        np.frombuffer(raw, "u1").fill(tensor.dtype == torch.bool or SMALL)
        return
    np.frombuffer(raw, f"i{width}").fill(PATTERN[width])
    if len(_fresh) > _FORGET_AT:
        for address in [address for address, reference in _fresh.items() if reference.expired()]:
            del _fresh[address]
    _fresh[storage.data_ptr()] = StorageWeakRef(storage)


def _is_telling(dtype: torch.dtype) -> bool:
    """Return whether the pattern cannot be an ordinary value, as it can in small types."""
    return dtype.itemsize in PATTERN and (dtype.is_floating_point or dtype.itemsize > 2)


def is_telling(dtype: np.dtype) -> bool:
    """Return whether the pattern in a value of this type says that it is unwritten."""
    return dtype.itemsize in PATTERN and (dtype.kind == "f" or dtype.itemsize > 2)


def began_fresh(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's storage began uninitialised: the pattern means unwritten."""
    reference = _fresh.get(tensor.untyped_storage().data_ptr())
    return reference is not None and not reference.expired() and _is_telling(tensor.dtype)


def is_unwritten(values: np.ndarray) -> np.ndarray | None:
    """Return which values are still those of fresh memory; None for none."""
    width = values.dtype.itemsize
    if width not in PATTERN:
        return None
    found = values.view(f"i{width}") == PATTERN[width]
    return found if found.any() else None


def are_unwritten(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return which elements of a float tensor are unwritten; None where it is not known."""
    if tensor.layout != torch.strided or tensor.itemsize not in PATTERN or not tensor.is_floating_point():
        return None
    return tensor.detach().view(INTEGERS[tensor.itemsize]) == PATTERN[tensor.itemsize]


def unwritten_in(tensor: torch.Tensor) -> tuple[int, tuple[int, ...]] | None:
    """Return how many elements of a float tensor are unwritten, and the index of the first.

    They are those of the tensor or of its original; None if there are none.
    """
    unwritten = are_unwritten(tensor)
    if unwritten is None or not unwritten.any():
        return None
    found = unwritten.nonzero()
    return len(found), tuple(found[0].tolist())


Met = tuple[Place, bool]  # the line of the kernel, and whether memory was unwritten


class Undefined:
    """The undefined values that programs of one launch loaded, and the trials of their effects."""

    def __init__(self) -> None:
        # by line of the kernel, those of the program that runs
        self.met: dict[Met, tuple[str, Place]] = {}
        self._tried: dict[Met, int] = {}
        self._probe: tuple[Met, float] | None = None

    def begin(self) -> None:
        """Start the next program."""
        self.met = {}

    def meet(self, text: str, where: Place, values: np.ndarray, lanes: np.ndarray, is_unwritten: bool) -> None:
        """Record an undefined value in these lanes; in a trial of this line, replace it."""
        about = where[:1], is_unwritten
        if self._probe is None:
            self.met.setdefault(about, (text, where))
        elif self._probe[0] == about:
            values[lanes] = _something_else(values.dtype, self._probe[1])

    def used(self, first: list[Write], again: Callable[[], list[Write]]) -> list[tuple[str, Place]]:
        """Return the values that change what the program stores, by rerunning it with `again`."""
        found = []
        for about, met in self.met.items():
            tried, enough = self._tried.get(about, 0), _ENOUGH[about[1]]
            if tried < enough and any(self._changes(first, again, about, value) for value in _PROBES[about[1]]):
                found.append(met)
                tried = enough
            self._tried[about] = tried + 1
        return found

    def _changes(self, first: list[Write], again: Callable[[], list[Write]], about: Met, value: float) -> bool:
        self._probe = about, value
        try:
            second = again()
        except Exception:  # an index or a loop that depends on it
            return True
        finally:
            self._probe = None
        return len(first) != len(second) or any(_is_used(a, b, value) for a, b in zip(first, second, strict=True))


def _is_used(first: Write, second: Write, value: float) -> bool:
    """Return whether a trial writes something else; a copy to fresh memory is no use."""
    if not np.array_equal(first.addresses, second.addresses):
        return True
    bits = f"u{first.new.dtype.itemsize}"
    before, after = (np.ascontiguousarray(write.new).view(bits) for write in (first, second))
    substitute = np.array([_something_else(first.new.dtype, value)], first.new.dtype).view(bits)
    is_copied = (after == substitute) & (before == PATTERN.get(first.new.dtype.itemsize, -1))
    return bool(((before != after) & ~(is_copied & first.began_fresh)).any())


def _something_else(dtype: np.dtype, value: float) -> np.generic | np.ndarray | float:
    if dtype.kind in "iu" and math.isnan(value):
        return dtype.type(0)
    if dtype.kind in "iu":  # not so large that a loop of as many turns would never end
        return (
            np.array(max(-100.0, min(100.0, value)) if dtype.itemsize == 1 else value / 7)
            .astype(np.int64)
            .astype(dtype)
        )
    if dtype.kind == "b":
        return value > 0
    return numerics.convert(np.array([value], np.float32), dtype)[0]
