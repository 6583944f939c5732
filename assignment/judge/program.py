"""Programs as hostile data: what a recorder says its submission did, checked before anybody plays it.

A program is JSON: tables of views, storages, operations, lines and kernels, and steps that refer to them by number. Its
numbers are in range and its steps have their form; whether they make sense the player finds out by playing them.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assignment.protocol.wire import DTYPES, MAX_DIMENSIONS, MAX_NUMBER, ProtocolError, parse

MAX_BYTES = 64 << 20
MAX_VALUES = 2_000_000  # numbers, texts and lists: a hundred bytes each, once they are read
MAX_STEPS = 500_000
MAX_TABLE = 2_000_000
MAX_TEXT = 300  # characters of a name or a line
MAX_KERNELS = 1_000
MAX_KEY = 64  # characters: those of a hash
MAX_STORAGE = 1 << 40  # bytes
MAX_DEPTH = 12  # of nested arguments
MAX_STRING = 2_000  # characters in an argument
KEYS = {"views", "storages", "operations", "lines", "kernels", "steps", "results", "bare"}
MARKS = ("again",)
OPERATION = re.compile(r"[A-Za-z_][\w]*::[A-Za-z_][\w]*\.\w*")

Program = dict[str, Any]


class Unreadable(Exception):
    """It is not what the recorder's own program would have written."""


def read(data: Tensor) -> Program:
    """Return the program in these bytes; raises Unreadable."""
    if data.numel() > MAX_BYTES:
        raise Unreadable(
            f"the call's steps take {data.numel() >> 20} MiB; at most {MAX_BYTES >> 20} are played: use larger tiles"
        )
    if data.numel() > MAX_VALUES and (n_values := count(data)) > MAX_VALUES:
        raise Unreadable(
            f"the call's steps have {n_values:,} values; at most {MAX_VALUES:,} are played: use larger tiles"
        )
    try:
        program = parse(bytearray(data.numpy()))
        if program.keys() != KEYS or not isinstance(program["bare"], bool):
            raise Unreadable("a program without its tables")
        _check_tables(program)
        _check_steps(program)
    except (ProtocolError, ValueError, TypeError, KeyError, IndexError, RecursionError, UnicodeDecodeError) as error:
        raise Unreadable("a malformed program") from error
    return program


def count(data: Tensor) -> int:
    """Return how many values the JSON in these bytes has at most: each but the first of a list follows a mark."""
    return sum(int((data == ord(mark)).sum()) for mark in ",[{")


def written(program: Program) -> Tensor:
    """Return the bytes of a program, or of a part of one."""
    return torch.frombuffer(bytearray(json.dumps(program, separators=(",", ":")).encode()), dtype=torch.uint8)


def _check_tables(program: Program) -> None:
    for name, at_most in (
        ("views", MAX_TABLE),
        ("storages", MAX_TABLE),
        ("kernels", MAX_KERNELS),
        ("steps", MAX_STEPS),
    ):
        if not isinstance(program[name], list) or len(program[name]) > at_most:
            raise Unreadable(f"the call has more than {at_most:,} {name}: use larger tiles, or fewer operations")
    if not all(_is_view(view) for view in program["views"]):
        raise Unreadable("a tensor that kernels cannot be given: expected floats, integers or bools, of up to 64 bits")
    if not all(_are_naturals(pair) and len(pair) == 2 and pair[1] <= MAX_STORAGE for pair in program["storages"]):
        raise Unreadable("a storage that is none")
    if not all(_is_text(name) and OPERATION.fullmatch(name) for name in program["operations"]):
        raise Unreadable("an operation that is none")
    if not all(_is_text(line) for line in program["lines"]):
        raise Unreadable("a line that is none")
    if not all(isinstance(kernel, dict) for kernel in program["kernels"]):
        raise Unreadable("a kernel that is none")
    groups = program["results"]
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise Unreadable("results that are none")
    for group in groups:
        _check_views(program, group)


def _check_steps(program: Program) -> None:
    for step in program["steps"]:
        if not isinstance(step, list) or not step or step[0] not in STEPS:
            raise Unreadable("a step that is none")
        STEPS[step[0]](program, *step[1:])


def _operation(program: Program, operation: Any, args: Any, kwargs: Any, views: Any, line: Any) -> None:
    _check_index(operation, program["operations"])
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Unreadable("arguments that are none")
    _check_value(program, args)
    _check_value(program, kwargs)
    _check_views(program, views)
    _check_index(line, program["lines"])


def _launch(
    program: Program, kernel: Any, grid: Any, arguments: Any, options: Any, alternatives: Any, allocator: Any, line: Any
) -> None:
    if not _are_naturals([kernel]) or not _are_naturals(grid) or len(grid) != 3:
        raise Unreadable("a launch that is none")
    if not isinstance(arguments, dict) or not isinstance(options, dict):
        raise Unreadable("arguments that are none")
    if alternatives is not None and not (isinstance(alternatives, list) and len(alternatives) <= MAX_KERNELS):
        raise Unreadable("configurations that are none")
    for value in (arguments, options, alternatives, allocator):
        _check_value(program, value)
    _check_index(line, program["lines"])


def _warm_up(program: Program, kernel: Any, grid: Any, arguments: Any, options: Any, key: Any, line: Any) -> None:
    if not _is_text(key) or len(key) > MAX_KEY:
        raise Unreadable("a name that is none")
    _launch(program, kernel, grid, arguments, options, None, False, line)


def _constant(program: Program, number: Any, content: Any, line: Any) -> None:
    if not isinstance(content, str) or not _are_naturals([number]):
        raise Unreadable("a constant that is none")
    _check_index(line, program["lines"])


def _numbered(program: Program, number: Any, line: Any) -> None:
    if not _are_naturals([number]):
        raise Unreadable("a number that is none")
    _check_index(line, program["lines"])


def _named(program: Program, name: Any, line: Any) -> None:
    if not _is_text(name):
        raise Unreadable("a name that is none")
    _check_index(line, program["lines"])


def _mark(program: Program, name: Any) -> None:
    if name not in MARKS:
        raise Unreadable("a mark that is none")


def _check_views(program: Program, views: Any) -> None:
    if not isinstance(views, list):
        raise Unreadable("views that are none")
    for view in views:
        _check_index(view, program["views"])


STEPS: dict[str, Callable[..., None]] = {
    "op": _operation,
    "launch": _launch,
    "warmup": _warm_up,
    "constant": _constant,
    "foreign": _numbered,
    "read": _named,
    "inputs": _check_views,
    "free": lambda program, numbers: None if _are_naturals(numbers) else _refuse(),
    "mark": _mark,
}


def _refuse() -> None:
    raise Unreadable("a step that is none")


def _check_value(program: Program, value: Any, depth: int = 0) -> None:
    """Raise Unreadable unless this is an argument: numbers and short texts, views by number, nested a few levels."""
    if depth > MAX_DEPTH:
        raise Unreadable("arguments nested too deeply")
    if isinstance(value, dict):
        if not all(_is_text(name) for name in value):
            raise Unreadable("a name that is none")
        for name in ("t", "descriptor"):
            if name in value:
                _check_index(value[name], program["views"])
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            _check_value(program, item, depth + 1)
    elif isinstance(value, str) and len(value) > MAX_STRING:
        raise Unreadable("a text that is too long")


def _check_index(index: Any, table: list[Any]) -> None:
    if type(index) is not int or not 0 <= index < len(table):
        raise Unreadable("a number beyond its table")


def _is_view(view: Any) -> bool:
    if not isinstance(view, list) or len(view) != 5:
        return False
    number, dtype, offset, sizes, strides = view
    is_shape = isinstance(sizes, list) and isinstance(strides, list) and len(sizes) == len(strides) <= MAX_DIMENSIONS
    is_readable = is_shape and dtype in DTYPES and _are_naturals([number, offset, *sizes, *strides])
    return is_readable and math.prod(n or 1 for n in sizes) <= MAX_NUMBER


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _are_naturals(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= MAX_NUMBER for value in values)
