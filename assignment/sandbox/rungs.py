"""The sandboxes that a worker can run in, best first, which of them work here, and what they allow.

bubblewrap  The worker has its own name spaces: no network, no other process, and of the file
            system only what is bound, read-only except for its scratch space. All processes end
            with its supervisor. A system-call filter closes what is left, signals to other
            processes among it: see seccomp.py.
landlock    The kernel's Landlock refuses to open other files (that they exist can still be seen)
            and, from version 4 on, TCP, from 6 on, signals to processes outside; the filter
            refuses sockets, signals, ptrace, changes of files' owners and modes, and new
            processes. With a GPU, where a compiler must run, processes may be started and Unix
            sockets opened.
rlimits     Memory, files, time; processes, unless run as root. It reads what the user reads, and
            has the network.

In every rung the verdict is the grader's alone: a rung protects files, network and other processes.
"""

import functools

from assignment.system import here
from assignment.system.interface import BUBBLEWRAP, LANDLOCK, ON_GPU, RLIMITS, RUNGS

AUTO = "auto"
UNSAFE = (RLIMITS,)
BANNER = """\
!! NO SANDBOX (rlimits): the submission can read and change your files and use the network, as you can.
!! Run only your own code this way.
"""


class Unavailable(Exception):
    """A rung that was asked for does not work here; the message says why, and what does."""


def choose(asked: str, device: str) -> str:
    """Return the rung to use; raises Unavailable."""
    if asked == AUTO:
        return next(rung for rung in order(device) if not problem(rung, device))
    if reason := problem(asked, device):
        working = ", ".join(rung for rung in order(device) if not problem(rung, device))
        raise Unavailable(f"--sandbox {asked}: {reason}; what works here: {working}")
    return asked


def order(device: str) -> tuple[str, ...]:
    """Return the rungs for a device, best first.

    CUDA's shared buffers do not cross process name spaces, and Landlock is known to work with a
    GPU.
    """
    return (LANDLOCK, BUBBLEWRAP, RLIMITS) if device in ON_GPU else RUNGS


def announcement(rung: str, device: str) -> str:
    """Return the message to the user about the rung, and why it is not a better one."""
    if rung not in RUNGS:
        return "No sandbox: the submission runs in this process\n"
    better = order(device)[: order(device).index(rung)]
    reasons = "; ".join(f"{other}: {why}" for other in better if (why := problem(other, device)))
    if rung in UNSAFE:
        return BANNER + (f"!! {reasons}\n" if reasons else "")
    return f"Sandbox: {rung}{f' ({reasons})' if reasons else ''}\n"


@functools.cache
def problem(rung: str, device: str) -> str:
    """Return why a rung does not work here; "" if it does."""
    return here.problem(rung, device)
