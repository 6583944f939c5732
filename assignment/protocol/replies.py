"""What workers reply: a class for each status, which on the wire is its name in lower case.

The judge believes no worker: what came is checked, by judge/replies.py, before it becomes one of these. What a worker
that compiles replies stands in compiling/kernel.py.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias, TypeVar

from .messages import Header
from .said import Places, Said

MAX_NOTES, MAX_NOTE = 4, 1_000  # texts of a kind in a reply, and characters of each

NOT_IMPORTED = "not imported"  # a file of the submission
NOT_PLAYED = "not played"  # an operation of PyTorch's that the grader does not repeat; nothing else is known then
OTHER = "other"
Ended = TypeVar("Ended")
Result = TypeVar("Result")  # a tensor: nothing here loads PyTorch, which a worker's start must not wait for


@dataclass(frozen=True, kw_only=True)
class AnyReply:
    """What any reply may say besides."""

    sticks: bool = False  # an error of the GPU's, with which every later call of the process would fail
    asked: bool = False  # host code has asked which GPU it is on
    is_stub: bool = False  # the function does nothing but raise NotImplementedError, whatever it is called with


@dataclass(frozen=True)
class Loaded(AnyReply):
    """The child is ready for calls."""

    import_error: str = ""  # what kept the package from being imported


@dataclass(frozen=True)
class Ok(AnyReply):
    """The call returned; its results come beside the reply."""

    groups: tuple[int, ...]  # how many of them belong together
    bare: bool  # a single tensor, and not a tuple
    unstored: tuple[str, ...] = ()  # which elements of its results no program has stored
    notes: tuple[str, ...] = ()  # what the simulator remarked
    evidence: tuple[Said, ...] = ()  # that results are not the work that was asked for
    doubts: tuple[Said, ...] = ()  # what it leaves to the staff to judge
    nans: tuple[Said, ...] = ()  # where kernels made a NaN of numbers
    orders: tuple[Said, ...] = ()  # in which programs met, where what they give depends on it
    reads: tuple[str, ...] = ()  # where host code read the value of a stand-in
    unplayed: tuple[Said, ...] = ()  # which operations took part that are not played
    events_s: float = 0.0  # of a call that was timed on a GPU,
    host_s: float = 0.0  # of which launching took so much,
    is_held: bool = False  # while the GPU did not begin yet,
    peak: int = 0  # the bytes that it takes,
    tuned: tuple[float, ...] = ()  # and the seconds of its launches that have alternatives
    constants: tuple[dict[str, list[str]], ...] = ()  # of launches of a call that is compiled, by place
    constants_of: tuple[int, ...] = ()  # which of them are each launch's

    def returned(self, results: Sequence[Result]) -> Result | tuple[Result, ...]:
        """Return what the function returned, of its results."""
        return results[0] if self.bare else tuple(results)


@dataclass(frozen=True)
class Raised(AnyReply):
    """Host code, or a kernel, raised an exception."""

    types: tuple[str, ...]  # its class and those above it
    message: str  # with its class and its lines
    text: str  # without
    by_submission: bool  # rather than by Triton, PyTorch or the simulator
    in_kernel: bool  # or in its launch
    in_static_assert: bool = False  # of a kernel, which does not hold
    places: Places = ()  # that the message names, here and below

    @property
    def is_todo(self) -> bool:
        return self.by_submission and "NotImplementedError" in self.types


@dataclass(frozen=True)
class Failed(AnyReply):
    """The call did not do what a call has to, and has no exception to show for it."""

    message: str
    kind: str = OTHER  # or NOT_IMPORTED, NOT_PLAYED
    fits: bool = True  # False where a GPU has no room for the call
    places: Places = ()
    file: str = ""  # that cannot be imported,
    why: str = ""  # and the exception


@dataclass(frozen=True)
class Fault(AnyReply):
    """A kernel misused memory."""

    message: str
    kind: str  # one of finding.FAULTS
    places: Places = ()


@dataclass(frozen=True)
class Broken(AnyReply):
    """The process met an exception of its own."""

    message: str  # the end of its traceback


Reply: TypeAlias = Loaded | Ok | Raised | Failed | Fault | Broken


def told(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the first messages, cut to a length that a reply may have."""
    return tuple(text[:MAX_NOTE] for text in itertools.islice(texts, MAX_NOTES))


def few(said: Iterable[Said]) -> tuple[Said, ...]:
    """Return the same of texts that name lines."""
    return tuple(replace(one, text=one.text[:MAX_NOTE]) for one in itertools.islice(said, MAX_NOTES))


def on_rank(ended: Ended, rank: int | None) -> Ended:
    """Return what a call has ended with, and on which rank, if that is known."""
    said = getattr(ended, "message", "")
    if rank is None or getattr(ended, "is_todo", False) or not said or f"rank {rank}" in said:
        return ended
    return replace(ended, message=f"on rank {rank}: {said}")  # type: ignore[type-var]


def status(kind: type) -> str:
    """Return what stands for a class of replies on the wire."""
    return kind.__name__.lower()


def written(reply: AnyReply) -> Header:
    """Return a reply as it is sent."""
    return {"status": status(type(reply)), **asdict(reply)}
