"""Faults of the recorder's own, noted where they happen: host code may catch the exception."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from assignment import whose
from assignment.pytorch_private import Argument

MAX_MESSAGE = 4_000  # characters
Method = TypeVar("Method", bound=Callable[..., Any])


class Faults:
    """What went wrong in the recorder since it was last asked."""

    def __init__(self) -> None:
        self._first = ""

    def note(self, error: BaseException) -> None:
        """Remember an exception if it is a fault of ours, and none was noted before."""
        if not self._first and whose.is_ours(error):
            self._first = whose.told(error)[-MAX_MESSAGE:]

    def take(self) -> str:
        """Return the first fault, or "", and forget it."""
        first, self._first = self._first, ""
        return first


def noted(method: Method) -> Method:
    """Wrap a method that host code enters, of an object with `faults`: what it raises is looked at."""

    @functools.wraps(method)
    def entered(self: Any, /, *args: Argument, **kwargs: Argument) -> Argument:
        try:
            return whose.theirs(method, self, *args, **kwargs)
        except BaseException as error:
            self.faults.note(error)
            raise

    return entered  # type: ignore[return-value]
