"""What the grader takes from a worker's reply: only what our own worker program could have written.

A submission can make its worker say anything. Whatever passes here has the right type, a bounded size, and text that is
safe to show; keys that are not named here go no further.
"""

import math
import re
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeAlias

from assignment import text
from assignment.compiling import kernel
from assignment.compiling.kernel import Compiled, Kernel
from assignment.compiling.targets import TARGETS
from assignment.protocol import forms
from assignment.protocol.messages import Header
from assignment.protocol.replies import MAX_NOTES, AnyReply, Broken, Failed, Fault, Ok, Raised, status
from assignment.protocol.said import MAX_PLACES
from assignment.verdict import finding

UNREADABLE = "the result cannot be read: it is not what the grader's own program would send"
MOST = {  # of other lists
    "groups": 64, "types": 100, "kernels": 300, "tuned": 10_000, "constants": math.inf, "constants_of": math.inf,
    "places": MAX_PLACES,
}  # fmt: skip
MAX_NAME = 200  # characters
LINES = ("name", "path", "constants", "config", "spilled_at")  # of a kernel
SAID = ("unstored", "notes", "evidence", "doubts", "nans", "orders", "reads", "unplayed")  # beside the results
# likewise; nothing where it cannot be read
MEASURED = ("events_s", "host_s", "is_held", "peak", "tuned", "constants", "constants_of")
SITE = re.compile(r"[^\n]+:\d+:\d+:\w+")  # path, line, column and kind of an expression in a kernel
KINDS = (Ok, Raised, Failed, Fault, Compiled, Broken)
BESIDE = [each.name for each in fields(AnyReply)]


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


class _Unreadable(Exception):
    """What came is nothing that our own worker program would have written."""


def read(reply: Header, n_results: int) -> Reply | None:
    """Return the reply with its texts made safe; None where it is none."""
    try:
        return _read(reply, n_results)
    except _Unreadable:
        return None


def recorded(reply: Header) -> Recorded | None:
    """Return what a recorder says; None where it is none of that."""
    asked = bool(reply.get("asked"))
    if reply.get("status") == status(Ok):
        return Recorded(asked)
    ended = read(reply, 0)
    if isinstance(ended, Broken):
        ended = SaysBroken(ended.message)
    is_stub = isinstance(ended, Raised) and ended.is_todo and reply.get("is_stub") is True
    return Recorded(asked, ended, is_stub) if isinstance(ended, Raised | Failed | SaysBroken) else None


def _read(reply: Header, n_results: int) -> Reply:
    match _taken(reply):
        case Ok(groups, bare) as ok if sum(groups) == n_results and min(groups, default=0) >= 0:
            if bare and groups[:1] != (1,):
                raise _Unreadable
            said: Any = {name: tuple(one for one in getattr(ok, name) if str(one)) for name in SAID}
            return replace(_with_known_constants(ok), **said)
        case Ok():
            raise _Unreadable
        case _ if n_results:
            raise _Unreadable
        case Raised(types) as raised:
            return replace(raised, types=tuple(text.clean(name, max_lines=1, max_line=MAX_NAME) for name in types))
        case Failed(kind=kind) as failed:
            return replace(failed, kind=kind if kind in (finding.NOT_IMPORTED, finding.NOT_PLAYED) else finding.OTHER)
        case Fault(kind=kind) as taken if kind in finding.FAULTS:
            return taken
        case Compiled(kernels, stopped, refused) as taken if {*stopped, *refused} <= TARGETS.keys():
            if all(map(kernel.is_sound, kernels)):
                return replace(taken, kernels=tuple(map(_safe, kernels)))
        case Broken() as taken:
            return taken
    raise _Unreadable


def _with_known_constants(ok: Ok) -> Ok:
    """Return the reply, without constants where a place or a number is none."""
    are_places = all(SITE.fullmatch(place) for seen in ok.constants for place in seen)
    n = len(ok.constants)
    if are_places and bool(n) == bool(ok.constants_of) and all(0 <= number < n for number in ok.constants_of):
        return ok
    return replace(ok, constants=(), constants_of=())


def _taken(reply: Header) -> Ok | Raised | Failed | Fault | Compiled | Broken:
    """Return a reply whose fields are of the right types."""
    kind = next((kind for kind in KINDS if status(kind) == reply.get("status")), None)
    if kind is None:
        raise _Unreadable
    values: dict[str, Any] = {}
    for each in fields(kind):
        if each.name in BESIDE or (each.name not in reply and each.default is not MISSING):
            continue
        try:
            value, at_most = reply.get(each.name), MOST.get(each.name, MAX_NOTES)
            values[each.name] = forms.read(each.type, value, at_most, text.clean)
        except forms.Misformed:
            if each.name not in MEASURED:
                raise _Unreadable from None
    return kind(**values)


def _safe(told: Kernel) -> Kernel:
    """Return a kernel whose texts can be shown."""
    safe: dict[str, Any] = {"error": text.clean(told.error)}
    safe |= {name: text.line(getattr(told, name)[:MAX_NAME]) for name in LINES}
    safe |= {name: tuple(map(text.clean, getattr(told, name))) for name in ("instructions", "remarks")}
    return replace(told, **safe)
