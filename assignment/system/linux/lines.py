"""Sockets over which packets go: each is a message."""

import contextlib
import fcntl
import socket
from collections.abc import Sequence


def socketpair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(type=socket.SOCK_SEQPACKET)


def send(line: socket.socket, message: bytes, descriptors: Sequence[int] = ()) -> None:
    socket.send_fds(line, [message], descriptors)


def receive(line: socket.socket, size: int, n: int = 0) -> tuple[bytes, list[int]]:
    message, descriptors, _, _ = socket.recv_fds(line, size, n)
    return message, descriptors


def widen(pipe: int, size: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, size)


def taken(line: int) -> tuple[socket.socket, str]:
    raise NotImplementedError("children are forked")
