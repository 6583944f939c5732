"""The start and the finish of what is timed, as bytes on the wire between a request and its reply.

    grader                                worker
    request                               reply: ready
    ticket | how many numbers | numbers
                                          ticket
                                          reply

The ticket is a secret until the start, so that nobody can be over before it. To be woken takes longer than many a
kernel: both ends spin.
"""

import contextlib
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from assignment.grading import protocol

TICKET = 16  # bytes
READY = "ready"
SPIN_S = 1.0  # of what takes longer, being woken is no part that matters


@dataclass(frozen=True)
class Referee:
    """What the grader does about a request that is timed."""

    ready: Callable[[], list[int]]  # when the worker is; returns the numbers
    over: Callable[[], object] = lambda: None  # at the finish, before the worker is heard again


def exchange(
    connection: socket.socket, request: dict[str, Any], referee: Referee, timeout_s: float
) -> tuple[dict[str, Any], float]:
    """The one reply to a request, and the seconds from the start to the finish; 0 where it never got ready.

    Raises:
        protocol.ConnectionLost, protocol.DeadlineExceeded, protocol.ProtocolError
    """
    deadline = time.monotonic() + timeout_s
    number = protocol.ask(connection, request, [], deadline)
    header, _ = protocol.answer_to(number, connection, deadline)
    if header.get("status") != READY:
        return header, 0.0
    told, ticket = referee.ready(), secrets.token_bytes(TICKET)
    start = ticket + struct.pack(f"<H{len(told)}H", len(told), *told)
    protocol.expect_silence(connection)
    began = time.perf_counter()
    with protocol.broken_as_lost():
        connection.sendall(start)
    said = spin(connection, TICKET, deadline)
    seconds = time.perf_counter() - began
    if said != ticket:
        raise protocol.ProtocolError("a finish without a start")
    referee.over()
    header, _ = protocol.answer_to(number, connection, deadline)
    return header, seconds


@contextlib.contextmanager
def started(connection: socket.socket, number: str) -> Iterator[list[int]]:
    """In the worker: what was said at the start, once it has come; the finish is when the block is left."""
    protocol.send(connection, {"id": number, "status": READY}, [])
    ticket = spin(connection, TICKET)
    (length,) = struct.unpack("<H", spin(connection, 2))
    numbers = [*struct.unpack(f"<{length}H", spin(connection, 2 * length))]
    try:
        yield numbers
    finally:
        connection.sendall(ticket)


def spin(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """So many bytes; at first without ever sleeping."""
    data, patience = b"", time.monotonic() + SPIN_S
    connection.setblocking(False)
    with protocol.broken_as_lost():
        while len(data) < size:
            try:
                chunk = connection.recv(size - len(data))
            except BlockingIOError:
                if time.monotonic() > patience:
                    connection.settimeout(protocol.remaining(deadline))
                continue
            if not chunk:
                raise protocol.ConnectionLost("closed")
            data += chunk
    return data
