"""Misuse of memory by a kernel, reported with the student's own file and line."""

import linecache
import sys
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType

import torch

from assignment import whose
from assignment.protocol import said
from assignment.protocol.said import Said, Telling, joined

_HERE = Path(__file__).parent
_LAUNCH = str(_HERE / "launch.py")
_TRITON = find_spec("triton")  # not imported here: the simulator must be installed first
_OURS = (f"{_HERE}/", whose.__file__, *([f"{Path(_TRITON.origin).parent}/"] if _TRITON and _TRITON.origin else []))

LEFT_OPEN = "(handout/left_open.md)"
UNSUPPORTED = "is not supported by the simulator, run with --device cuda (handout/tools.md)"
# code and line: where it happened, and from where that was called
Place = tuple[tuple[CodeType, int], ...]
Program = tuple[int, int, int]


class MemoryFault(Telling):
    """A launch did something that on a GPU gives garbage, a crash, or an error only sometimes."""

    kind = "memory fault"
    where: "Place | None" = None  # of the access, where the program went on after it
    other: "tuple[Program, Place] | None" = None  # of a race: the program that was there before, and its access


class OutOfBounds(MemoryFault):
    """An active lane lies outside every element of the tensor that it was computed from."""

    kind = "out of bounds"


class Race(MemoryFault):
    """Two programs touch one element, one of them stores, and nothing orders them."""

    kind = "race"


class Unwritten(MemoryFault):
    """A stored value depends on an element that was never written."""

    kind = "unwritten memory"


class UndefinedResult(MemoryFault):
    """A stored value depends on what the language leaves undefined, such as an integer divided by 0."""

    kind = "undefined result"


class FalseHint(MemoryFault):
    """A kernel promises the compiler what does not hold, and an access is compiled wrong by it."""

    kind = "false hint"


class InputWritten(MemoryFault):
    """A kernel stores to a tensor that the caller passed in."""

    kind = "input written to"


class Endless(MemoryFault):
    """A loop of a kernel goes round for ever: what its condition depends on does not change."""

    kind = "endless loop"


class Deadlock(MemoryFault):
    """All programs that are left wait for what none of them does."""

    kind = "deadlock"


def place() -> Place:
    """Return where in the kernel, and in the device functions that it calls, the program is."""
    found: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _LAUNCH and code.co_name == "run":
            break
        if not is_ours(code.co_filename):
            found.append((code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def line() -> tuple[CodeType, int] | None:
    """Return the innermost part of `place`: None outside of a kernel."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code, frame.f_lineno) if frame is not None else None


_ours: dict[str, bool] = {}


def is_ours(filename: str) -> bool:
    """Return whether a file is the simulator's or Triton's."""
    known = _ours.get(filename)
    if known is None:
        known = _ours[filename] = filename.startswith(_OURS)
    return known


def at(where: Place, indent: str = "  ") -> Said:
    """Return "  at rmsnorm.py:42 in kernel: x = tl.load(...)", and a line per call on the way."""
    lines = []
    for depth, (code, line) in enumerate(where):
        source = linecache.getline(code.co_filename, line).strip()
        lead = "at" if not depth else "called from"
        lines.append(said.at(shown(code.co_filename), line, f" in {code.co_name}", source, f"{indent}{lead}"))
    return joined(lines)


def source_line(where: Place) -> str:
    """Return the line of the kernel; an empty string if it is not known."""
    return linecache.getline(where[0][0].co_filename, where[0][1]).strip() if where else ""


def shown(filename: str) -> str:
    """Return a path as the reader would type it."""
    try:
        return filename.removeprefix(f"{Path.cwd()}/")
    except OSError:  # the current folder is gone, or too deep to have a name
        return filename


def describe(tensor: torch.Tensor) -> str:
    """Return "float32 (3, 40), strides (40, 1)"."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {tuple(tensor.shape)}, strides {tuple(tensor.stride())}"


def element(name: str, index: tuple[int, ...]) -> str:
    """Return "x[3, 17]"; the name alone for a tensor without dimensions."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name
