"""Nothing but limits confines a process here."""

import _thread
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from assignment.system.interface import RLIMITS, Folders, Setup

LOOK_EVERY_S = 0.2


def hide() -> None: ...


def adopt_orphans() -> None: ...


def die_with_parent() -> None:
    parent = os.getppid()

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY_S)
        os._exit(1)

    _thread.start_new_thread(look, ())  # which no submission finds among its threads


def limits(address_space: int) -> dict[int, int]:
    return {}  # is_over_memory() sees to it


@contextmanager
def interrupts_unheard() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def memory_limited(more: int) -> Iterator[None]:
    yield


def join_sandbox(setup: Setup) -> None: ...


def confine(setup: Setup) -> None: ...


def problem(rung: str, device: str) -> str:
    return "" if rung == RLIMITS else "it needs Linux"


def remedy(problem: str) -> str:
    return "take a machine with Linux"


def seen(rung: str, folders: Folders) -> Folders:
    return folders


def readable(device: str) -> list[str]:
    return []  # everything is
