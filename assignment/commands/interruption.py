"""What becomes of a run that is interrupted by Ctrl-C, or by a SIGTERM of who has started it.

KeyboardInterrupt would not do: while PyTorch loads, its C++ calls Python, and loses that exception or aborts.
"""

import contextlib
import os
import signal
import sys
from types import FrameType

from assignment.confined import supervisor
from assignment.sandbox import stage

STATUS = 128  # and the signal's number: what a shell says of a process that a signal has ended
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def install(message: str) -> None:
    """Have either signal end this process with a message, all that it has started, and its folders.

    Signals that are ignored already stay so: a shell does that to what it runs in the background.
    """
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # forked: another one removes the folders
            os._exit(STATUS + number)
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        try:
            with contextlib.suppress(Exception):  # the interrupted code may be printing
                sys.stdout.flush()
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more
                if sys.stdout.isatty():  # a progress bar may have hidden the cursor
                    os.write(1, b"\x1b[?25h\n")
                os.write(2, f"{message}\n".encode())
            supervisor.end_descendants()
            stage.remove_all()
        finally:
            os._exit(STATUS + number)

    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, end)
