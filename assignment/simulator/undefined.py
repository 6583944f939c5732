"""Values that a GPU leaves undefined: unwritten elements, masked lanes of a load without `other`, x // 0.

Fresh memory holds a pattern that no computation makes, a NaN in every float type. Meeting such a
value is not a fault by itself: a kernel may read too much and throw it away. So a program that
met some is run again with other values in their place, and they count as used only if that
changes what the program stores.
"""

import ctypes
import warnings
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from assignment.pytorch_private import Argument, is_in_memory, set_deterministic_algorithms

from . import numerics
from .faults import Place

PATTERN = {2: 0x7FDA, 4: 0x7FDADADA, 8: 0x7FDADADADADADADA}  # by bytes of an element
SMALL = 0x5A  # of each byte in types in which any pattern is an ordinary value: labels say what is unwritten there
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_fresh: dict[int, StorageWeakRef] = {}  # storages that began with the pattern, by address
_FORGET_AT = 4096  # of them, after which those that are gone are dropped
PROBES = ("zero", "one", "all bits", "lowest", "highest", "different")  # what takes the place of undefined values
UNWRITTEN, RESULT, MASKED = "unwritten memory", "undefined result", "masked load without other="  # kinds of them
_ENOUGH = {UNWRITTEN: 64, RESULT: 16, MASKED: 3}  # programs run again for one line


class Write(NamedTuple):
    """One store or update, with what is needed to undo and redo it."""

    addresses: np.ndarray
    old: np.ndarray
    new: np.ndarray
    began_fresh: bool  # the memory: what is unwritten there is still known to be
    forget: Callable[[], None] | None = None  # that a kernel wrote the elements, where that must be undone too
    label: Callable[[], None] = lambda: None  # the elements again as a kernel's

    def take_back(self) -> None:
        """Restore the old values."""
        scatter(self.addresses, self.old)
        if self.forget:
            self.forget()

    def do_again(self) -> None:
        """Store the new values again."""
        scatter(self.addresses, self.new)
        if self.forget:
            self.label()


_Everything: Any = ctypes.c_char * 2**47  # one type for memory of any length: making types is slow


def scatter(addresses: np.ndarray, values: np.ndarray) -> None:
    """Store values at addresses, which an access has checked."""
    if addresses.size == 1:
        _one(addresses, values.dtype)[:] = values.ravel()
        return
    memory, index = _memory(addresses, values.dtype)
    memory[index] = values


def gather(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return what lies at addresses, which an access has checked."""
    if addresses.size == 1:
        return _one(addresses, dtype).copy().reshape(addresses.shape)
    memory, index = _memory(addresses, dtype)
    return memory.take(index)


def _one(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(_Everything.from_address(addresses.item() & int(numerics.ADDRESS)), dtype, 1)


def _memory(addresses: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    addresses = addresses & numerics.ADDRESS
    first, last = int(addresses.min()), int(addresses.max())
    memory = np.frombuffer(_Everything.from_address(first), dtype, (last - first) // dtype.itemsize + 1)
    return memory, (addresses - np.uint64(first)).view(np.int64) // dtype.itemsize


def fill_fresh_memory() -> None:
    """Make torch.empty and its relatives give the pattern, other fresh memory NaN."""
    # torch.use_deterministic_algorithms does the same, and imports Inductor: one second
    set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted"):
        setattr(torch, name, _filled(getattr(torch, name)))
    for name in ("new_empty", "new_empty_strided"):
        setattr(torch.Tensor, name, _filled(getattr(torch.Tensor, name)))


def _filled(make: Callable) -> Callable:
    def fresh(*args: Argument, **kwargs: Argument) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        if type(tensor) is torch.Tensor and is_in_memory(tensor):
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


Met = tuple[Place, str]  # the line of the kernel, and the kind


class Use(NamedTuple):
    """An undefined value on which depends what a program stores."""

    kind: str
    text: str
    where: Place


class Undefined:
    """The undefined values that programs of one launch met, and the trials of their effects."""

    def __init__(self) -> None:
        # by line of the kernel, those of the program that runs
        self.met: dict[Met, Use] = {}
        self._tried: dict[Met, int] = {}
        self._trial: tuple[Collection[Met], str] | None = None
        self.instead = ""  # which of PROBES all of them are, where no program can be run again alone
        self._given: list[np.ndarray] = []  # the values that this trial has put in their place

    def begin(self) -> None:
        """Start the next program."""
        self.met = {}

    def meet(self, found: Use, values: np.ndarray, lanes: np.ndarray, numbers: np.ndarray) -> None:
        """Record undefined values in these lanes; in a trial of their line, replace them.

        `numbers`, one for each of the lanes, are equal where the values must be.
        """
        about = found.where[:1], found.kind
        if self.instead and found.kind != MASKED:
            values[lanes] = _something_else(values.dtype, self.instead, numbers)
        elif self._trial is None:
            self.met.setdefault(about, found)
        elif about in self._trial[0]:
            values[lanes] = _something_else(values.dtype, self._trial[1], numbers)
            self._given.append(values[lanes])

    def used(self, first: list[Write], again: Callable[[], list[Write]]) -> list[Use]:
        """Return the values that change what the program stores, by rerunning it with `again`."""
        found = []
        for kinds in ((MASKED,), (UNWRITTEN, RESULT)):
            lines = [about for about in self.met if about[1] in kinds and self._tried.get(about, 0) < _ENOUGH[about[1]]]
            self._tried |= {about: self._tried.get(about, 0) + 1 for about in lines}
            if lines and self._change(first, again, lines):
                alone = lines[1:] and [about for about in lines if self._change(first, again, [about])]
                self._tried |= {about: _ENOUGH[about[1]] for about in alone or lines}
                found += [self.met[about] for about in alone or lines[:1]]
        return found

    def cause(self, again: Callable[[], list[Write]]) -> Use | None:
        """Return the unwritten values without which the program, rerun with `again`, no longer ends by an error."""
        for about in [about for about in self.met if about[1] == UNWRITTEN]:
            self._trial, self._given = ([about], "zero"), []
            try:
                again()
            except Exception:
                continue
            finally:
                self._trial = None
            return self.met[about]
        return None

    def _change(self, first: list[Write], again: Callable[[], list[Write]], lines: list[Met]) -> bool:
        return any(self._changes(first, again, lines, probe) for probe in PROBES)

    def _changes(self, first: list[Write], again: Callable[[], list[Write]], lines: list[Met], probe: str) -> bool:
        self._trial, self._given = (lines, probe), []
        try:
            second = again()
        except Exception:  # an index or a loop that depends on it
            return True
        finally:
            self._trial = None
        return len(first) != len(second) or any(map(self._is_used, first, second))

    def _is_used(self, first: Write, second: Write) -> bool:
        """Return whether a trial writes something else; a copy to fresh memory is no use."""
        if not np.array_equal(first.addresses, second.addresses):
            return True
        before, after = (bits(write.new) for write in (first, second))
        is_changed = before != after
        if first.began_fresh and is_changed.any():
            given = [bits(values).ravel() for values in self._given if values.itemsize == first.new.itemsize]
            is_copied = before == PATTERN.get(first.new.dtype.itemsize, -1)
            is_changed &= ~(is_copied & np.isin(after, np.concatenate([after[:0].ravel(), *given])))
        return bool(is_changed.any())


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def _something_else(dtype: np.dtype, probe: str, numbers: np.ndarray) -> np.ndarray:
    """Return what takes the place of undefined values: of each, or of all."""
    is_integer = dtype.kind in "iu"
    match probe:
        case "zero" | "one":
            return np.array(probe == "one").astype(dtype)
        case "all bits" if dtype.kind != "b":
            return np.full(dtype.itemsize, 0xFF, np.uint8).view(dtype)
        case "lowest" | "highest" if dtype.kind != "b":
            limits = np.iinfo(dtype) if is_integer else ml_dtypes.finfo(dtype)
            return np.array(limits.min if probe == "lowest" else limits.max, dtype)
        case "different" if dtype.kind != "b":
            range_ = 251 if dtype.itemsize < 4 else 65_521  # a prime: neighbours are far apart
            return numerics.convert(numbers * 37 % range_ - range_ // 2, dtype)
    return numbers % 2 == (probe != "different")
