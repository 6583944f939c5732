"""The processor time of a process and of all that descends from it.

`os.wait4` would miss most of a grade: whoever runs a submission is forked by a process that waits for none of its
children, and is counted nowhere once that has been killed.
"""

import subprocess
import time

from assignment.confined import supervisor
from assignment.system import here

LOOK_EVERY_S = 0.2


def tree_s(pid: int) -> float:
    """Return the seconds that a process, its descendants and those whom they have waited for have had so far."""
    used = map(here.usage_of, (pid, *supervisor.descendants(pid)))
    return sum(seconds for seconds, _ in filter(None, used))


def spent_s(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a process to end; returns the seconds of its tree, up to its last LOOK_EVERY_S."""
    most = 0.0
    while process.poll() is None:
        most = max(most, tree_s(process.pid))
        time.sleep(LOOK_EVERY_S)
    return most
