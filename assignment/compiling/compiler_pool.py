"""Work in several processes: Triton's compiler holds Python's lock, so threads would not help.

The processes are forked, so that the work need not be sent. If one dies, only its current item is
lost.
"""

import json
import os
import select
import signal
import struct
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TypeVar

from assignment.system import here

Item = TypeVar("Item")
Result = TypeVar("Result")


NUMBER = struct.Struct("<I")
MAX_PROCESSES = 8


def processes() -> int:
    return min(MAX_PROCESSES, here.cores())


def results(
    work: Callable[[Item], Result], items: Sequence[Item], died: Callable[[Item, str], Result], n: int
) -> list[Result]:
    """Return work(item) for each item, in order.

    Results must be JSON. If the process dies, the result is died(item, how).
    """
    if not here.FORKS:
        return [work(item) for item in items]
    done: dict[int, Result] = {}
    waiting = list(range(len(items)))
    while waiting:
        began = _some(work, items, waiting, n, done)
        for index, how in began.items():
            done[index] = died(items[index], how)
        waiting = [index for index in waiting if index not in done]
    return [done[index] for index in range(len(items))]


def _some(
    work: Callable[[Item], Result], items: Sequence[Item], waiting: list[int], n: int, done: dict[int, Result]
) -> dict[int, str]:
    """Run waiting items in processes; returns those begun and not ended, with how they died."""
    turn, todo = os.pipe()  # each process takes the number of its next item from here
    # what certainly fits into a pipe
    os.write(todo, b"".join(map(NUMBER.pack, waiting[: 4096 // NUMBER.size])))
    os.close(todo)
    children = [_start(work, items, turn) for _ in range(min(n, len(waiting)))]
    os.close(turn)
    heard = {results_from: b"" for _, results_from in children}
    while open_ends := [end for end in heard if not heard[end].endswith(b"\0")]:
        for end in select.select(open_ends, [], [])[0]:
            heard[end] += os.read(end, 1 << 16) or b"\0"
    return dict(found for pid, end in children if (found := _heard(pid, end, heard[end], done)))


def _heard(pid: int, end: int, text: bytes, done: dict[int, Result]) -> tuple[int, str] | None:
    """Collect a process's results and reap it; returns the item that it died on, and how."""
    os.close(end)
    _, status = os.waitpid(pid, 0)
    began = None
    for line in text.rstrip(b"\0").splitlines():
        number, _, result = line.partition(b" ")
        if result:
            done[int(number)], began = json.loads(result), None
        else:
            began = int(number)
    if began is None:
        return None
    signalled = os.WIFSIGNALED(status)
    return began, signal.Signals(os.WTERMSIG(status)).name if signalled else f"exit status {os.WEXITSTATUS(status)}"


def _start(work: Callable[[Item], Result], items: Sequence[Item], turn: int) -> tuple[int, int]:
    """Fork a process that works on items from `turn`; returns its pid and its result pipe."""
    results_from, results_to = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # threads that sleep do no harm
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        pid = os.fork()
    if pid:
        os.close(results_to)
        return pid, results_from
    status = 1
    try:
        while number := os.read(turn, NUMBER.size):
            (index,) = NUMBER.unpack(number)
            _write(results_to, f"{index}\n")
            _write(results_to, f"{index} {json.dumps(work(items[index]))}\n")
        status = 0
    finally:
        os._exit(status)


def _write(end: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(end, data) :]
