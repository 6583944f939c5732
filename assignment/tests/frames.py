"""Frames of the protocol as no honest worker writes them, and how much memory it takes to read them."""

import resource
import socket
from pathlib import Path

from assignment.protocol import wire
from assignment.protocol.wire import MAGIC, PREFIX

REFUSED = (wire.ProtocolError, wire.ConnectionLost, wire.DeadlineExceeded)
ID = "5e7f"


def framed(text: bytes, payload: bytes | bytearray, sizes: tuple[int, int] | None = None) -> bytes:
    return PREFIX.pack(MAGIC, *(sizes or (len(text), len(payload)))) + text + payload


def write(connection: socket.socket, data: bytes, closes: bool) -> None:
    try:
        connection.sendall(data)
        if closes:
            connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the grader has closed its end


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak() -> int:
    """The most memory that was resident since the last forget_peak()."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
