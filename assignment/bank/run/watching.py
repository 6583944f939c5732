"""Looks at something on the side, again and again, while something else runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def watching(look: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call `look` every so many seconds, in a thread, until the block ends."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(every_s):
            look()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
