"""Runs a script in the simulator and reports what its launches did wrong."""

import contextlib
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from . import bodies, cuda
from .calls import Call
from .costs import HostTraffic
from .faults import MemoryFault
from .frames import launch_of, own_traceback
from .unstored import UnstoredReads


@dataclass
class ScriptRun:
    """A script that ran, to its end or not."""

    call: Call
    host: HostTraffic | None  # if traced
    never_stored: list[str]
    error: BaseException | None  # that ended it, other than sys.exit
    status: int  # that it asked for


def run(path: str, arguments: list[str], call: Call) -> ScriptRun:
    """Run the script as `python path arguments` would, its launches in a call; exceptions that it raises are caught."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    places = cuda.StorageDevices()
    cuda.patch(places)
    call.refuses, call.raises_as_compiler = places.refuses, True
    status, ended_by = 0, None
    with contextlib.ExitStack() as stack:
        stack.enter_context(call)
        stack.enter_context(bodies.everywhere([places, cuda.CudaOnCpu(places)]))
        unstored = stack.enter_context(UnstoredReads(call))
        host = stack.enter_context(HostTraffic()) if call.is_traced else None
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as request:
            status = _status(request)
        except BaseException as error:  # Ctrl-C too: what was seen until then is told
            ended_by, status = error, 130 if isinstance(error, KeyboardInterrupt) else 1
    return ScriptRun(call, host, unstored.found, ended_by, status)


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
    violations = [*done.never_stored, *map(_described, done.call.faults)]
    for text in dict.fromkeys(violations):
        _say(text)
    return done.status or int(bool(violations))


def _described(fault: MemoryFault) -> str:
    launch = launch_of(fault)
    return f"{fault}\n  launched {launch}" if launch else str(fault)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
