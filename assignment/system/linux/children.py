"""The children of a worker's first process, which forks itself."""

import os
import socket
from collections.abc import Callable

from assignment.system.interface import Setup
from assignment.system.linux.processes import mapped_by


class Children:
    """Forks children, one at a time."""

    def __init__(self, run: Callable[[socket.socket, str], None], setup: Setup) -> None:
        """Set up; `run` takes the socket of a conversation and a name for its caches, and does not return."""
        self._run, self._child = run, 0

    def prepare(self) -> None: ...

    def take(self, connection: int, caches: str) -> int:
        try:
            self._child = os.fork()
        except OSError:
            os.close(connection)
            raise
        if not self._child:
            _keep_open(connection)
            # a program that the submission starts would hold the line
            os.set_inheritable(connection, False)
            self._run(socket.socket(fileno=connection), caches)
        os.close(connection)
        return self._child

    def grown(self) -> int:
        return mapped_by(self._child) - mapped_by(os.getpid())

    def known(self) -> set[int]:
        return set()


def _keep_open(connection: int) -> None:
    """Close every descriptor except the standard ones and this."""
    os.closerange(3, connection)
    os.closerange(connection + 1, 1 << 16)
