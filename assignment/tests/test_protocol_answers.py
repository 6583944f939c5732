"""Answers that come early, late, twice, slowly, without end or to another question."""

import json
import socket
import threading
import time
from contextlib import suppress

import pytest
import torch

from assignment.protocol import wire
from assignment.protocol.wire import MAGIC, PREFIX
from assignment.tests.frames import REFUSED, framed


def worker_that(*actions):
    """A thread that reads one request and then acts on the connection, given an honest reply to it."""
    ours, theirs = socket.socketpair()

    def act() -> None:
        with theirs:
            for action in actions:
                action(theirs)

    thread = threading.Thread(target=act)
    thread.start()
    return ours, thread


def ask(connection: socket.socket, timeout_s: float = 0.5) -> str:
    try:
        deadline = time.monotonic() + timeout_s
        wire.answer_to(wire.ask(connection, {"kind": "call"}, [torch.ones(3)], deadline), connection, deadline)
        return "ok"
    except REFUSED as error:
        return type(error).__name__


def answer(connection: socket.socket, times: int = 1, number: str | None = None) -> None:
    header, _ = wire.receive(connection, time.monotonic() + 5)
    with suppress(wire.ConnectionLost):
        for _ in range(times):
            wire.send(connection, {"id": str(header["id"]) if number is None else number}, [])


def wait(connection: socket.socket) -> None:
    connection.settimeout(5)
    with suppress(OSError):
        while connection.recv(1 << 16):
            pass


def test_an_early_answer_is_none():
    """A reply that waits before the question is refused, and one that comes during it cannot know its id"""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(theirs, {"id": "1"}, [])
        assert ask(ours) == "ProtocolError"
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):  # the question was not even asked
            theirs.recv(1)


def test_ids_cannot_be_guessed():
    seen = []
    for _ in range(3):
        connection, thread = worker_that(lambda c: seen.append(wire.receive(c)[0]["id"]))
        with connection:
            assert ask(connection) == "ConnectionLost"
        thread.join()
    assert len(set(seen)) == 3
    assert all(len(str(number)) == 32 for number in seen)


@pytest.mark.parametrize("number", ["1", "0" * 32, 1, None, [], {"a": 1}, True])
def test_an_answer_to_another_question(number):
    forged = "none" if number is None else number
    connection, thread = worker_that(lambda c: answer(c, number=forged))
    with connection:
        assert ask(connection) == "ProtocolError"
    thread.join()


def test_a_second_answer_is_not_taken_for_the_next():
    """Seen at once, or at the latest before the next question"""
    connection, thread = worker_that(lambda c: answer(c, times=2), wait)
    with connection:
        outcomes = [ask(connection), ask(connection)]
    thread.join()
    assert outcomes[1] == "ProtocolError"


def answer_twice_at_once(connection: socket.socket) -> None:
    header, _ = wire.receive(connection)
    text = json.dumps({"id": header["id"], "tensors": [], "storages": []}).encode()
    connection.sendall(2 * framed(text, b""))


def test_two_answers_to_one_question_are_none():
    """It is this call that is refused, not the next one"""
    connection, thread = worker_that(answer_twice_at_once, wait)
    with connection:
        assert ask(connection) == "ProtocolError"
    thread.join()


def drip(connection: socket.socket) -> None:
    """A reply at one byte every few milliseconds."""
    header, _ = wire.receive(connection)
    data = framed(json.dumps({"id": header["id"], "tensors": [], "storages": [], "x": "x" * 5000}).encode(), b"")
    for byte in data:
        time.sleep(0.001)
        try:
            connection.send(bytes([byte]))
        except OSError:
            return


def flood(connection: socket.socket) -> None:
    """Bytes without end that are a valid start of a reply."""
    wire.receive(connection)
    try:
        connection.sendall(PREFIX.pack(MAGIC, wire.MAX_REPLY_HEADER, wire.MAX_REPLY_PAYLOAD))
        while True:
            connection.sendall(bytes(1 << 16))
    except OSError:
        return


@pytest.mark.parametrize("action", [drip, wait])
def test_a_slow_answer_does_not_move_the_deadline(action):
    connection, thread = worker_that(action)
    start = time.monotonic()
    with connection:
        assert ask(connection, 0.3) == "DeadlineExceeded"
    assert 0.25 < time.monotonic() - start < 10
    thread.join()


def test_a_flood_ends_at_the_limit():
    connection, thread = worker_that(flood)
    with connection:
        assert ask(connection, 10) == "ProtocolError"
    thread.join()


def test_a_worker_that_does_not_read_stops_the_grader_until_its_deadline():
    ours, theirs = socket.socketpair()
    start = time.monotonic()
    with ours, theirs, pytest.raises(wire.DeadlineExceeded):
        wire.ask(ours, {}, [torch.zeros(1 << 22)], start + 0.3)
    assert time.monotonic() - start < 10


class Trickle:
    """A connection on which the next byte is always there."""

    def __init__(self) -> None:
        self.data = iter(PREFIX.pack(MAGIC, wire.MAX_REPLY_HEADER, wire.MAX_REPLY_PAYLOAD))

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def recv(self, size: int) -> bytes:
        return bytes([next(self.data, 0)])


def test_a_byte_that_is_always_there_does_not_move_the_deadline():
    start = time.monotonic()
    with pytest.raises(wire.DeadlineExceeded):
        wire.receive(Trickle(), start + 0.2)  # type: ignore[arg-type]
    assert time.monotonic() - start < 10
