"""Start and finish of what is timed: nobody is over before it has begun, and no worker holds the grader up."""

import contextlib
import socket
import threading
import time

import pytest

from assignment.grading import protocol, start

NUMBERS = [3, 0, 255, 7]


@contextlib.contextmanager
def worker_that(serve):
    """The grader's end of a conversation with somebody else, whose `serve` is given the other end."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=lambda: serve(theirs))
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(10)
        theirs.close()
        assert not thread.is_alive()


def exchange(connection, events=None, timeout_s=10.0):
    events = [] if events is None else events

    def ready():
        events.append("ready")
        return NUMBERS

    return start.exchange(connection, {"kind": "run"}, start.Referee(ready, lambda: events.append("over")), timeout_s)


def honest(connection, work=lambda numbers: {"told": numbers}):
    header, _ = protocol.receive(connection)
    with start.started(connection, header["id"]) as numbers:
        reply = work(numbers)
    protocol.send(connection, {"id": header["id"], "status": "ok", **reply}, [])


def test_numbers_arrive_and_the_reply_comes_back():
    events: list[str] = []
    with worker_that(honest) as connection:
        reply, seconds = exchange(connection, events)
    assert reply["told"] == NUMBERS
    assert seconds > 0
    assert events == ["ready", "over"]


@pytest.mark.parametrize("pause_s", [0.05, start.SPIN_S + 0.2])
def test_only_what_lies_between_start_and_finish_is_timed(pause_s):
    def slow(connection):
        header, _ = protocol.receive(connection)
        time.sleep(0.3)
        with start.started(connection, header["id"]):
            time.sleep(pause_s)
        time.sleep(0.3)
        protocol.send(connection, {"id": header["id"], "status": "ok"}, [])

    with worker_that(slow) as connection:
        began = time.perf_counter()
        _, seconds = exchange(connection)
        whole = time.perf_counter() - began
    assert pause_s <= seconds <= whole - 0.6


def test_what_fails_before_it_is_ready_is_its_reply():
    def fails(connection):
        header, _ = protocol.receive(connection)
        protocol.send(connection, {"id": header["id"], "status": "failed", "message": "no such function"}, [])

    events: list[str] = []
    with worker_that(fails) as connection:
        reply, seconds = exchange(connection, events)
    assert (reply["message"], seconds, events) == ("no such function", 0.0, [])


def test_what_fails_afterwards_is_over_too():
    def fails(connection):
        header, _ = protocol.receive(connection)
        with contextlib.suppress(ZeroDivisionError), start.started(connection, header["id"]):
            raise ZeroDivisionError
        protocol.send(connection, {"id": header["id"], "status": "raised"}, [])

    events: list[str] = []
    with worker_that(fails) as connection:
        reply, seconds = exchange(connection, events)
    assert reply["status"] == "raised"
    assert seconds > 0
    assert events == ["ready", "over"]


def early(connection):
    """Says that it is over before it has been told to start."""
    header, _ = protocol.receive(connection)
    protocol.send(connection, {"id": header["id"], "status": start.READY}, [])
    connection.sendall(b"x" * start.TICKET)
    with contextlib.suppress(OSError):
        connection.recv(1)


def guessed(connection):
    header, _ = protocol.receive(connection)
    protocol.send(connection, {"id": header["id"], "status": start.READY}, [])
    connection.recv(1000)
    connection.sendall(b"x" * start.TICKET)


def another(connection):
    protocol.receive(connection)
    with contextlib.suppress(protocol.ConnectionLost), start.started(connection, "0" * 32):
        pass


@pytest.mark.parametrize("liar", [early, guessed, another])
def test_who_lies_is_not_believed(liar):
    with worker_that(liar) as connection, pytest.raises(protocol.ProtocolError):
        exchange(connection)


def gone(connection):
    protocol.receive(connection)
    connection.close()


def gone_while_it_is_timed(connection):
    header, _ = protocol.receive(connection)
    protocol.send(connection, {"id": header["id"], "status": start.READY}, [])
    connection.recv(1000)
    connection.close()


@pytest.mark.parametrize("dead", [gone, gone_while_it_is_timed])
def test_who_dies_is_missed_at_once(dead):
    with worker_that(dead) as connection, pytest.raises(protocol.ConnectionLost):
        exchange(connection)


def hangs(connection):
    header, _ = protocol.receive(connection)
    protocol.send(connection, {"id": header["id"], "status": start.READY}, [])
    with contextlib.suppress(OSError):
        while connection.recv(1000):
            pass


def test_who_hangs_is_waited_for_until_the_deadline():
    began = time.monotonic()
    with worker_that(hangs) as connection, pytest.raises(protocol.DeadlineExceeded):
        exchange(connection, timeout_s=start.SPIN_S + 0.5)
    assert time.monotonic() - began < start.SPIN_S + 5
