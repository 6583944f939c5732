"""Whose an exception is: a student's, or a fault of ours that costs nobody a point without being told.

It is the student's where our innermost frame is a `raise`, whose word is meant, or `theirs`, which calls PyTorch,
Triton or the submission on the submission's behalf. All else is ours, whatever library raised it.
"""

import ast
import functools
import linecache
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import ParamSpec, TypeVar

ROOT = f"{Path(__file__).resolve().parent}/"
MAX_FRAMES = 6  # told of an exception of ours
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def theirs(function: Callable[Given, Returned], /, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
    """Return function(*args, **kwargs); what it raises is the student's, unless something of ours raised it deeper."""
    return function(*args, **kwargs)


_CALL_THEIRS = {theirs.__code__}


def for_them(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Return the function, marked: it is called often, and what it raises itself is the student's, as in `theirs`."""
    assert isinstance(function, FunctionType)
    _CALL_THEIRS.add(function.__code__)
    return function


def is_ours(error: BaseException) -> bool:
    """Return whether an exception is a fault of ours."""
    if not isinstance(error, Exception) or isinstance(error, RecursionError) or is_of_memory(error):
        return False
    places = ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
    *_, (code, line) = [(None, 0), *(at for at in places if at[0].co_filename.startswith(ROOT))]
    return code is not None and code not in _CALL_THEIRS and line not in _meant(code.co_filename)


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
