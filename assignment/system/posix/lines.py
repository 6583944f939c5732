"""Sockets over which streams go: a message's length comes before it."""

import socket
import struct
from collections.abc import Sequence

LENGTH = struct.Struct("<I")


def socketpair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def send(line: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    head = LENGTH.pack(len(message))
    sent = socket.send_fds(line, [head], descriptors)  # they come with its first byte
    line.sendall(head[sent:] + message)


def receive(line: socket.socket, size: int, n: int = 0) -> tuple[bytes, list[int]]:
    head, descriptors, _, _ = socket.recv_fds(line, LENGTH.size, n)
    if not head:
        return b"", descriptors
    (length,) = LENGTH.unpack(head + _exactly(line, LENGTH.size - len(head)))
    if length > size:
        raise ConnectionError(f"expected a message of at most {size} bytes, got {length}")
    return _exactly(line, length), descriptors


def _exactly(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := line.recv(size - len(data))):
            raise ConnectionError("closed in the middle of a message")
        data += more
    return data


def widen(pipe: int, size: int) -> None: ...
