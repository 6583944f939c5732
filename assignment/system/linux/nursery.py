"""A process that has loaded PyTorch once and is forked for each worker.

Runs as a separate program, `python -I nursery.py SOCKET`, with the environment that workers have.
Each packet that it receives is a JSON object, "setup" for worker.py with "environment" and
"folder", and three descriptors: the control socket, where the pid is sent first, the output, and
one that is only to be held open. Two more are for a worker in bubblewrap: the first process of the
name spaces that it is to join, of which "spaces" says the kinds, and a pipe at whose end they end.
It imports nothing of ours until it is forked, and never has a submission. A GPU needs fresh
processes: its workers load PyTorch themselves.
"""

import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from assignment.system.interface import Setup

MAX_MESSAGE = 256 << 10
N_DESCRIPTORS = 3, 5  # without name spaces, and with


class WorkerOrder(TypedDict):
    """What a packet says of a worker."""

    setup: "Setup"
    environment: dict[str, str]
    folder: str
    spaces: int


def main() -> None:
    line = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hide()
    importlib.import_module("torch")
    silence = os.open(os.devnull, os.O_WRONLY)  # until here it may have said why that does not work
    for stream in (1, 2):
        os.dup2(silence, stream)
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, MAX_MESSAGE, max(N_DESCRIPTORS))
        if not data:  # the grader is gone
            os._exit(0)
        if len(descriptors) in N_DESCRIPTORS and _is_forked():
            line.close()
            _become_worker(json.loads(data), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _is_forked() -> bool:
    """Return whether this is the new process.

    It is never waited for, so that its pid is not reused. If no process can be started, the control
    socket is closed.
    """
    try:
        return not os.fork()
    except OSError:
        return False


def _hide() -> None:
    """Keep other processes of this user from tracing or reading this one.

    See confinement.py, which cannot be imported here.
    """
    import ctypes

    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def _become_worker(order: "WorkerOrder", control: int, output: int, living: int, *sandbox: int) -> None:
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.close(output)
        os.write(control, json.dumps({"supervisor": os.getpid()}).encode())
        if sandbox:
            _enter(sandbox[0], order["spaces"], held=(control, living, *sandbox))
        os.chdir(order["folder"])
        os.environ |= order["environment"]
        setup = {**order["setup"], "control": control}
        program = f"{setup['runtime']}/assignment/worker.py"
        sys.argv[:] = [program, json.dumps(setup)]
        runpy.run_path(program, run_name="__main__")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _enter(first: int, spaces: int, held: Sequence[int]) -> None:
    """Join the name spaces of a process and go on in a new one there; this one only waits for its end.

    The new one ends with this one, and holds the descriptors that are to be held open.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(first, spaces):
        raise OSError(ctypes.get_errno(), "setns")
    if child := os.fork():
        for descriptor in (1, 2, *held):
            os.close(descriptor)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(first)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
