"""Whose an exception is: a student's, or a fault of ours that costs nobody a point without being told.

An exception is ours where a statement of ours raised it without meaning to. What a `raise` says is meant, and
`theirs` calls PyTorch, Triton or the submission on the submission's behalf.
"""

import ast
import functools
import linecache
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

ROOT = f"{Path(__file__).resolve().parent}/"
THEIRS = (RecursionError, MemoryError)  # which deep or large code may meet anywhere
MAX_FRAMES = 6  # told of an exception of ours
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def theirs(function: Callable[Given, Returned], /, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
    """Return function(*args, **kwargs); what it raises is the student's, unless something of ours raised it deeper."""
    return function(*args, **kwargs)


def is_ours(error: BaseException) -> bool:
    """Return whether an exception is a fault of ours."""
    *_, (frame, line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    if frame is None or not isinstance(error, Exception) or isinstance(error, THEIRS):
        return False
    if is_of_memory(error) or frame.f_code is theirs.__code__:
        return False
    path = frame.f_code.co_filename
    return path.startswith(ROOT) and line not in _meant(path)


def is_of_memory(error: BaseException) -> bool:
    """Return whether memory was wanting: PyTorch says so in words."""
    return isinstance(error, MemoryError) or (type(error) is RuntimeError and "can't allocate memory" in str(error))


def told(error: BaseException) -> str:
    """Return an exception with its innermost places."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__, limit=-MAX_FRAMES))


@functools.cache
def _meant(path: str) -> frozenset[int]:
    """Return the lines of the `raise` statements in a file of ours."""
    tree = ast.parse("".join(linecache.getlines(path)))
    raises = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return frozenset(line for node in raises for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))
