"""Handling of exceptions in the grader itself: not the student's fault, and limited in their cost.

It imports nothing that could be what is broken.
"""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from assignment import text

BROKEN = 3  # the exit status
SAID = "the grader failed; this is not your code: please report it to the staff"
MAX_TOLD = 3  # failures
ROOT = Path(__file__).resolve().parents[1]

Found = TypeVar("Found")


def tell(problems: Sequence[str]) -> int:
    """Print that the grader failed, and the end of the report; returns the exit status."""
    more = [f"… and {len(problems) - MAX_TOLD} more failures"] if len(problems) > MAX_TOLD else []
    print(f"grade.py: {SAID}", *map(end_of, problems[:MAX_TOLD]), *more, sep="\n", file=sys.stderr)
    return BROKEN


def end_of(problem: str) -> str:
    """Return the last lines, safe to show: a traceback ends with its cause."""
    kept = problem[-text.MAX_CHARACTERS :] if len(problem) > text.MAX_CHARACTERS else problem
    return text.clean("\n".join(kept.splitlines()[-text.MAX_LINES :]))


@contextlib.contextmanager
def kept(problems: list[str]) -> Iterator[None]:
    """Continue after an exception, which is added to the problems."""
    try:
        yield
    except Exception:
        problems.append(traceback.format_exc())


def diagnosed(what: str, look: Callable[[], Found], instead: Found, notes: list[str]) -> Found:
    """Return the diagnosis of a failure.

    If the diagnosis fails itself, that costs a note to the staff, and no points.
    """
    try:
        return look()
    except Exception as error:
        notes.append(f"{what}: {in_a_line(error)}")
        return instead


def in_a_line(error: Exception) -> str:
    """Return "IndexError: tuple index out of range, at assignment/verdict/search.py:12"."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(frame.filename)
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    return text.line(f"{type(error).__name__}: {error}".removesuffix(": ") + f", at {place}:{frame.lineno}")
