"""What the grader takes from a worker's reply: only what our own worker program could have written.

A submission can make its worker say anything. Whatever passes here has the right type, a bounded size, and text that is
safe to show; keys that are not named here go no further.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard, TypeVar

from assignment import finding, text
from assignment.compiling import kernel
from assignment.compiling.targets import TARGETS
from assignment.protocol.messages import Header, Value

UNREADABLE = "the result cannot be read: it is not what the grader's own program would send"
MAX_GROUPS = 64
MAX_COMPILED = 300  # kernels
MAX_SAID = 4  # texts of a kind, beside the results
MAX_TUNED = 10_000  # launches
MAX_TYPES = 100  # of an exception: its class and those above it
MAX_NAME = 200  # characters
LINES = ("name", "place", "constants", "config", "spilled_at")  # of a kernel
SAID = ("unstored", "notes", "evidence", "doubts", "nans", "reads", "unplayed")  # beside the results
SITE = re.compile(r"[^\n]+:\d+:\d+:\w+")  # path, line, column and kind of an expression in a kernel
Result = TypeVar("Result")  # a tensor: nothing here loads PyTorch, which a worker's start must not wait for


@dataclass(frozen=True)
class Ok:
    """The call returned; its results come beside the reply."""

    groups: tuple[int, ...]  # how many of them belong together
    bare: bool  # a single tensor, and not a tuple
    unstored: tuple[str, ...] = ()  # which elements of its results no program has stored
    notes: tuple[str, ...] = ()  # what the simulator remarked
    evidence: tuple[str, ...] = ()  # that results are not the work that was asked for
    doubts: tuple[str, ...] = ()  # what it leaves to the staff to judge
    nans: tuple[str, ...] = ()  # where kernels made a NaN of numbers
    reads: tuple[str, ...] = ()  # where host code read the value of a stand-in
    unplayed: tuple[str, ...] = ()  # which operations took part that are not played
    events_s: float = 0.0  # of a call that was timed on a GPU,
    peak: int = 0  # the bytes that it takes,
    tuned: tuple[float, ...] = ()  # and the seconds of its launches that have alternatives
    constants: tuple[dict[str, list[str]], ...] = ()  # of launches of a call that is compiled, by place
    constants_of: tuple[int, ...] = ()  # which of them are each launch's

    def returned(self, results: Sequence[Result]) -> Result | tuple[Result, ...]:
        """Return what the function returned, of its results."""
        return results[0] if self.bare else tuple(results)


@dataclass(frozen=True)
class Raised:
    """Host code, or a kernel, raised an exception."""

    types: tuple[str, ...]  # its class and those above it
    message: str  # with its class and its lines
    text: str  # without
    by_submission: bool  # rather than by Triton, PyTorch or the simulator
    in_kernel: bool

    @property
    def is_todo(self) -> bool:
        return self.by_submission and "NotImplementedError" in self.types


@dataclass(frozen=True)
class Failed:
    """The call did not do what a call has to, and has no exception to show for it."""

    message: str
    kind: str = finding.OTHER  # or NOT_IMPORTED, NOT_PLAYED
    fits: bool = True  # False where a GPU has no room for the call


@dataclass(frozen=True)
class Fault:
    """A kernel misused memory."""

    message: str
    kind: str  # one of finding.FAULTS


@dataclass(frozen=True)
class Compiled:
    """The kernels of a call were compiled, or could not be."""

    kernels: tuple[kernel.Kernel, ...]
    stopped: dict[str, str]  # by target, why the call ended before its last launch
    differing: tuple[str, ...] = ()  # where kernels were played with other constants than they are compiled with

    def as_json(self) -> Header:
        """Return the reply as a worker says it."""
        kernels: list[Value] = [told.as_json() for told in self.kernels]
        return {"status": "compiled", "kernels": kernels, "stopped": {**self.stopped}, "differing": [*self.differing]}


@dataclass(frozen=True)
class Broken:
    """The process met an exception of its own."""

    message: str  # the end of its traceback


@dataclass(frozen=True)
class SaysBroken:
    """The process that has the submission says so of itself: the submission's word, whatever it is."""

    message: str


NoResult: TypeAlias = Raised | Failed | Fault | Broken | SaysBroken
Reply: TypeAlias = Ok | NoResult | Compiled


@dataclass(frozen=True)
class Recorded:
    """What a recorder says beside its program."""

    asked: bool  # whether host code asked which GPU it is on
    ended: Raised | Failed | SaysBroken | None = None  # instead of returning
    is_stub: bool = False  # whether the function does nothing but raise NotImplementedError, whatever it is called with


def read(reply: Header, n_results: int) -> Reply | None:
    """Return the reply with its texts made safe; None where it is none."""
    status = reply.get("status")
    if status == "ok":
        return _ok(reply, n_results)
    if n_results:
        return None
    if status == "raised":
        return _raised(reply)
    if status == "compiled":
        return _compiled(reply)
    message, fits = reply.get("message"), reply.get("fits", True)
    if not isinstance(message, str) or not isinstance(fits, bool):
        return None
    kind = reply.get("kind", "")
    if status == "failed":
        return Failed(
            text.clean(message), kind if kind in (finding.NOT_IMPORTED, finding.NOT_PLAYED) else finding.OTHER, fits
        )
    if status == "broken":
        return Broken(text.clean(message))
    return Fault(text.clean(message), kind) if status == "fault" and kind in finding.FAULTS else None


def recorded(reply: Header) -> Recorded | None:
    """Return what a recorder says; None where it is none of that."""
    asked = bool(reply.get("asked"))
    if reply.get("status") == "ok":
        return Recorded(asked)
    ended = read(reply, 0)
    if isinstance(ended, Broken):
        ended = SaysBroken(ended.message)
    is_stub = isinstance(ended, Raised) and ended.is_todo and reply.get("is_stub") is True
    return Recorded(asked, ended, is_stub) if isinstance(ended, Raised | Failed | SaysBroken) else None


def _ok(reply: Header, n_results: int) -> Ok | None:
    groups, bare = reply.get("groups"), reply.get("bare")
    said = {name: texts for name in SAID if _are_texts(texts := reply.get(name, []), MAX_SAID)}
    if not _are_numbers(groups) or len(groups) > MAX_GROUPS or sum(groups) != n_results:
        return None
    if not isinstance(bare, bool) or (bare and groups[:1] != [1]) or len(said) < len(SAID):
        return None
    cleaned: dict[str, Any] = {name: tuple(text.clean(line) for line in texts if line) for name, texts in said.items()}
    return Ok(tuple(groups), bare, **cleaned, **_timed(reply))


def _timed(reply: Header) -> dict[str, Any]:
    """Return what is measured on a GPU, and what is noted of a call that is compiled."""
    found: dict[str, Any] = {}
    if isinstance(seconds := reply.get("events_s"), float):
        found["events_s"] = seconds
    constants, numbers = reply.get("constants"), reply.get("constants_of")
    if _are_constants(constants) and _are_numbers(numbers, len(constants)):
        found |= {"constants": tuple(constants), "constants_of": tuple(numbers)}
    if type(peak := reply.get("peak")) is int:
        found["peak"] = peak
    tuned = reply.get("tuned")
    if isinstance(tuned, list) and len(tuned) <= MAX_TUNED and all(isinstance(seconds, float) for seconds in tuned):
        found["tuned"] = tuple(tuned)
    return found


def _are_numbers(value: Value, below: float = math.inf) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < below for number in value)


def _are_constants(value: Value) -> TypeGuard[list[dict[str, list[str]]]]:
    if not isinstance(value, list):
        return False
    for seen in value:
        if not isinstance(seen, dict) or not all(map(SITE.fullmatch, seen)):
            return False
        if not all(isinstance(texts, list) and _are_texts(texts, len(texts)) for texts in seen.values()):
            return False
    return True


def _compiled(reply: Header) -> Compiled | None:
    listed, stopped, differing = reply.get("kernels"), reply.get("stopped"), reply.get("differing", [])
    if not isinstance(listed, list) or len(listed) > MAX_COMPILED or not isinstance(stopped, dict):
        return None
    if not stopped.keys() <= TARGETS.keys() or not _are_texts([*stopped.values()], len(TARGETS)):
        return None
    if not _are_texts(differing, MAX_SAID):
        return None
    kernels = [kernel.read(item) for item in listed]
    if not all(kernels):
        return None
    safe = tuple(_safe(item) for item in kernels if item)
    why_stopped = {name: text.clean(str(why)) for name, why in stopped.items()}
    return Compiled(safe, why_stopped, tuple(map(text.clean, differing)))


def _safe(told: kernel.Kernel) -> kernel.Kernel:
    """Return a kernel whose texts can be shown."""
    safe: dict[str, Any] = {"error": text.clean(told.error)}
    safe |= {name: text.line(getattr(told, name)[:MAX_NAME]) for name in LINES}
    safe |= {name: tuple(map(text.clean, getattr(told, name))) for name in ("instructions", "remarks")}
    return replace(told, **safe)


def _raised(reply: Header) -> Raised | None:
    types, texts = reply.get("types"), {name: reply.get(name) for name in ("message", "text")}
    flags = {name: reply.get(name) for name in ("by_submission", "in_kernel")}
    if not _are_texts(types, MAX_TYPES) or not _are_texts([*texts.values()], len(texts)):
        return None
    if not all(isinstance(flag, bool) for flag in flags.values()):
        return None
    names = tuple(text.clean(name, max_lines=1, max_line=MAX_NAME) for name in types)
    said: dict[str, Any] = {**{name: text.clean(str(value)) for name, value in texts.items()}, **flags}
    return Raised(names, **said)


def _are_texts(values: Value, at_most: int) -> TypeGuard[list[str]]:
    return isinstance(values, list) and len(values) <= at_most and all(isinstance(value, str) for value in values)
