"""Reads plain data, of JSON, as what a type says: nothing else becomes one of our classes."""

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import TypeVar, cast, get_args, get_origin

from .messages import Value

Read = TypeVar("Read")


class Misformed(Exception):
    """Data that is not of a type."""


def read(kind: "type[Read] | str", value: Value, at_most: float = math.inf, text: Callable[[str], str] = str) -> Read:
    """Return data as a type has it, whose fields are all there; raises Misformed.

    at_most: the entries of a list, not of those in it; text: returns each text as it may be kept.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (tuple, list) and isinstance(value, list | tuple) and len(value) <= at_most:
        return cast(Read, origin(read(inner[0], item, text=text) for item in value))
    if origin is dict and isinstance(value, dict):
        return cast(Read, {name: read(inner[1], item, text=text) for name, item in value.items()})
    if is_dataclass(kind) and isinstance(value, dict) and value.keys() == {each.name for each in fields(kind)}:
        return kind(**{each.name: read(each.type, value[each.name], at_most, text) for each in fields(kind)})
    if type(value) is not kind:
        raise Misformed
    return cast(Read, text(value)) if isinstance(value, str) else value
