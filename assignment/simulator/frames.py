"""Which lines belong to the script: not the simulator's, Triton's, PyTorch's or Python's."""

import os
import sys
import sysconfig
import traceback
from types import CodeType, FrameType, TracebackType

import torch
import triton

from assignment import whose

from .faults import MemoryFault, at
from .triton_private import CompilationError

_LIBRARIES = (
    "<frozen ",
    *(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "platstdlib", "purelib", "platlib")),  # noqa: PTH118
    *(os.path.join(os.path.dirname(file), "") for file in (__file__, torch.__file__, triton.__file__)),  # noqa: PTH118, PTH120
    whose.__file__,
)
_LAUNCH = os.path.join(os.path.dirname(__file__), "launch.py")  # noqa: PTH118, PTH120


def is_own(filename: str) -> bool:
    """Return whether a frame of this file is of interest to the script's author."""
    return not filename.startswith(_LIBRARIES)


def innermost() -> str:
    """Return "at add.py:31 in main: print(y)", for the line of the script that is running."""
    frame = innermost_frame()
    return _line(frame.f_code, frame.f_lineno) if frame is not None else ""


def innermost_frame() -> FrameType | None:
    """Return the frame of the script that is running; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def launch_of(fault: MemoryFault) -> str:
    """Return "at add.py:20 in add: add_kernel[grid](...)", for the line of the launch."""
    found = ""
    trace: TracebackType | None = fault.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != _LAUNCH:
        if is_own(trace.tb_frame.f_code.co_filename):
            found = _line(trace.tb_frame.f_code, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _line(code: CodeType, line: int) -> str:
    return str(at(((code, line),), indent=""))


def own_traceback(error: BaseException) -> str:
    """Return the traceback as Python prints it, of the script's frames alone.

    Memory faults are left out: they are reported separately.
    """
    whole = traceback.TracebackException.from_exception(error)
    _cut(whole)
    return "".join(whole.format())


def _cut(part: traceback.TracebackException) -> None:
    part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if is_own(frame.filename)])
    part.__cause__ = None if _is_of_compiler(part) else _unless_fault(part.__cause__)
    part.__context__ = _unless_fault(part.__context__)
    for inner in (part.__cause__, part.__context__, *(part.exceptions or ())):
        if inner is not None:
            _cut(inner)


def _is_of_compiler(part: traceback.TracebackException) -> bool:
    """Return whether an exception says no more than its cause, as those of the compiler do here."""
    return bool(part.exc_type and issubclass(part.exc_type, CompilationError))


def _unless_fault(part: traceback.TracebackException | None) -> traceback.TracebackException | None:
    return None if part is not None and part.exc_type and issubclass(part.exc_type, MemoryFault) else part
