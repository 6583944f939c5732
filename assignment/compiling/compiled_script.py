"""Runs a script with its launches compiled instead of run."""

import contextlib
import os
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

from assignment.simulator import cuda

from . import launches
from .targets import Target
from .workload_calls import Noted, WorkloadCall


def run(path: str, arguments: list[str], targets: Iterable[Target]) -> list[Noted]:
    """Run the script once per target, as `python path arguments`; only the first may print."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    cuda.patch(cuda.StorageDevices(), "and kernels are compiled, not run")
    found = []
    with contextlib.ExitStack() as stack:
        for target in targets:
            found.append(_run(path, target))
            if len(found) == 1:
                nowhere = stack.enter_context(Path(os.devnull).open("w"))
                stack.enter_context(contextlib.redirect_stdout(nowhere))
                stack.enter_context(contextlib.redirect_stderr(nowhere))
    return found


def _run(path: str, target: Target) -> Noted:
    call = WorkloadCall(path, "")
    with cuda.CudaOnCpu(), launches.recorded(target) as seen:
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit:
            pass
        except Exception as error:
            return Noted(call, target, seen, error)
    return Noted(call, target, seen)
