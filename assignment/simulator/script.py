"""Runs a script in the simulator and reports what its launches did wrong."""

import contextlib
import functools
import runpy
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import bodies, cuda
from .calls import Call
from .costs import HostTraffic
from .faults import MemoryFault
from .frames import innermost_frame, launch_of, own_traceback
from .kernel_values import LaunchArgument
from .triton_private import InterpretedFunction
from .unstored import UnstoredReads


@dataclass
class ScriptRun:
    """A script that ran, to its end or not."""

    call: Call
    host: HostTraffic | None  # if traced
    never_stored: list[str]
    error: BaseException | None  # that ended it, other than sys.exit
    status: int  # that it asked for
    names: dict[str, Any]  # its own, if it came to its end


def run(path: str, arguments: list[str], call: Call) -> ScriptRun:
    """Run the script as `python path arguments` would, its launches in a call; exceptions that it raises are caught."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    devices = cuda.StorageDevices()
    cuda.patch(devices)
    status, ended_by, names = 0, None, {}
    with contextlib.ExitStack() as stack:
        never_stored = stack.enter_context(watched(call, UnstoredReads(), devices))
        host = stack.enter_context(HostTraffic()) if call.is_traced else None
        try:
            names = runpy.run_path(path, run_name="__main__")
        except SystemExit as request:
            status = _status(request)
        except BaseException as error:  # Ctrl-C too: what was seen until then is told
            ended_by, status = error, 130 if isinstance(error, KeyboardInterrupt) else 1
    return ScriptRun(call, host, never_stored, ended_by, status, names)


@contextlib.contextmanager
def watched(call: Call, reads: UnstoredReads, devices: cuda.StorageDevices) -> Iterator[list[str]]:
    """Run host code on "the GPU", its launches in a call; yields the list of the outputs that it uses unstored."""
    call.refuses, call.raises_as_compiler, devices.has_gpu = devices.refuses, True, False
    modes: list[bodies.Mode] = [devices, cuda.CudaOnCpu(devices)]
    with call, bodies.everywhere(modes), reads.during(call) as never_stored:
        yield never_stored


def _status(request: SystemExit) -> int:
    """Return the exit status that Python gives for sys.exit's argument."""
    if request.code is None or isinstance(request.code, int):
        return request.code or 0
    print(request.code, file=sys.stderr)
    return 1


def tell(path: str, done: ScriptRun) -> int:
    """Print the findings on stderr; returns the exit status."""
    sys.stdout.flush()
    is_fault = isinstance(done.error, MemoryFault)
    if done.call.n_launches == 0 and done.error is None:
        _say(f"note: {path} launched no kernel")
    for warning in done.call.warnings:
        _say(f"warning: {warning}")
    if done.error is not None and not is_fault:
        _say(own_traceback(done.error).rstrip())
    violations = told_of(done.never_stored, done.call.faults)
    for text in violations:
        _say(text)
    return done.status or int(bool(violations))


@contextlib.contextmanager
def past_faults() -> Iterator[None]:
    """Have a launch that goes wrong end there and raise nothing: the call that it belongs to knows."""
    run = InterpretedFunction.run

    @functools.wraps(run)
    def launch(*args: LaunchArgument, **kwargs: LaunchArgument) -> None:
        try:
            run(*args, **kwargs)
        except MemoryFault as fault:
            if frame := innermost_frame():
                fault.__traceback__ = TracebackType(fault.__traceback__, frame, frame.f_lasti, frame.f_lineno)

    InterpretedFunction.run = launch
    try:
        yield
    finally:
        InterpretedFunction.run = run


def told_of(never_stored: Iterable[str], faults: Iterable[MemoryFault]) -> list[str]:
    """Return what host code or its launches did wrong, each in words, with its lines."""
    return list(dict.fromkeys([*never_stored, *(f"{fault}{launched(fault)}" for fault in faults)]))


def launched(fault: MemoryFault) -> str:
    """Return a line that says where the faulty kernel was launched; "" where that is not known."""
    launch = launch_of(fault)
    return f"\n  launched {launch}" if launch else ""


def _say(text: str) -> None:
    print(text, file=sys.stderr)
