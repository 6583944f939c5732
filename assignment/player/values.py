"""What a kernel's names are bound to: bindings and values of the recorder's table, none trusted."""

import keyword
import math
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import triton.language as tl

from assignment.protocol.messages import Value
from assignment.simulator import dtypes
from assignment.simulator.kernel_values import KernelFunction, KernelValue
from assignment.simulator.triton_private import JITFunction
from assignment.whose import theirs

from .facades import Facade, facades, resolved
from .syntax import MAX_INT

Scalar: TypeAlias = bool | int | float | str | None
Constant: TypeAlias = KernelValue | JITFunction | KernelFunction
Bound: TypeAlias = Constant | ModuleType | type  # what a name in a kernel may be


MAX_STRING = 1_000
MAX_ITEMS = 1_000
MAX_DEPTH = 8
_NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32"]
_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Unknown(Exception):
    """A binding that no kernel can have; says why, and what to write instead."""


class Values:
    """Makes objects of bindings; `kernel` gives jit functions by number."""

    def __init__(self, kernel: Callable[[int], JITFunction]) -> None:
        self._kernel = kernel
        self._classes: dict[tuple[str, tuple[str, ...]], type] = {}

    def bound(self, name: str, binding: Value, depth: int = 0) -> Bound:
        """Return what a name is bound to."""
        kind, value = _only(binding, "names", depth)
        match kind:
            case "module":
                return _module(name, value)
            case "triton":
                return _of_triton(name, value)
            case "constexpr" if isinstance(value, dict) and value.keys() == {"list"}:
                return tl.constexpr(list(self._values(value["list"], depth + 1)))
            case "constexpr":
                return tl.constexpr(self.value(value, depth + 1))
            case "constant":
                return self.value(value, depth + 1)
            case "kernel" | "dtype" | "torch":
                return self.value(binding, depth)
            case "namespace":
                return self._namespace(name, value, depth)
            case "namedtuple":
                return self._class(value)
        raise Unknown(_sentence(name, str(value)[:100]))

    def value(self, value: Any, depth: int = 0) -> Constant:
        """Return a constant: a number, string, None, dtype, jit function, or a tuple of these."""
        if type(value) in (bool, int, float, str, type(None)):
            return _checked(value)
        if isinstance(value, dict) and value.keys() == {"namedtuple", "values"}:
            values = self._values(value["values"], depth)
            cls = self._class(value["namedtuple"])
            if len(values) != len(cls._fields):  # type: ignore[attr-defined]
                raise Unknown(f"expected a value for each field of {cls.__name__}, got {len(values)}")
            return cls(*values)
        kind, inner = _only(value, "a constant", depth)
        match kind:
            case "float" if inner in list(_FLOATS):
                return _FLOATS[inner]
            case "tuple":
                return self._values(inner, depth)
            case "dtype":
                return _dtype(inner)
            case "kernel" if type(inner) is int:
                return self._kernel(inner)
            case "triton":
                return _of_triton("a constant", inner)
            case "torch" if inner in list(dtypes.PYTORCH):
                return dtypes.PYTORCH[inner]
            case "numpy" if isinstance(inner, dict) and inner.keys() == {"dtype", "value"}:
                return _of_numpy(inner["dtype"], self.value(inner["value"], depth + 1))
        raise Unknown(f"a constant cannot be {str(value)[:100]}: use numbers, strings, dtypes, or tuples of them")

    def _values(self, values: Value, depth: int) -> tuple:
        if not isinstance(values, list) or len(values) > MAX_ITEMS:
            raise Unknown(f"expected a tuple of at most {MAX_ITEMS} constants, got {str(values)[:100]}")
        return tuple(self.value(value, depth + 1) for value in values)

    def _namespace(self, name: str, members: Any, depth: int) -> ModuleType:
        module = ModuleType(name)
        for attribute in _fields(list(members) if isinstance(members, dict) else members):
            vars(module)[attribute] = self.bound(f"{name}.{attribute}", members[attribute], depth + 1)
        return module

    def _class(self, described: Value) -> type:
        if not isinstance(described, dict) or described.keys() != {"name", "fields"}:
            raise Unknown(f"expected the name and the fields of a NamedTuple, got {str(described)[:100]}")
        (name,), fields = _fields([described["name"]]), tuple(_fields(described["fields"]))
        if (name, fields) not in self._classes:
            self._classes[name, fields] = theirs(namedtuple, name, fields)
        return self._classes[name, fields]


def attributes_in(bindings: Value | Sequence[dict[str, Value]]) -> Iterator[str]:
    """Yield the names of fields and namespace members that bindings let kernels use."""
    todo = [bindings]
    while todo:
        match todo.pop():
            case dict() as members:
                for key in ("namespace", "fields"):
                    yield from filter(_is_field, members[key] if isinstance(members.get(key), (dict, list)) else ())
                todo += members.values()
            case list() as items:
                todo += items


def _only(binding: Value, what: str, depth: int) -> tuple[str, Value]:
    if depth > MAX_DEPTH:
        raise Unknown(f"{what} can be nested {MAX_DEPTH} deep: use fewer levels")
    if not isinstance(binding, dict) or len(binding) != 1:
        raise Unknown(f"{what} cannot be {str(binding)[:100]}")
    return next(iter(binding.items()))


def _checked(value: Scalar) -> Scalar:
    if type(value) is int and abs(value) >= MAX_INT:
        raise Unknown("a constant does not fit in 64 bits: use a smaller one, or a float")
    if type(value) is str and len(value) > MAX_STRING:
        raise Unknown(f"a string has more than {MAX_STRING} characters: use a shorter one")
    return value


def _fields(names: Any) -> list[str]:
    """Return names that can stand after a dot in a kernel, checked."""
    if not isinstance(names, list) or len(names) > MAX_ITEMS:
        raise Unknown("expected a list of names")
    for name in names:
        if not _is_field(name):
            raise Unknown(f"a kernel cannot use an attribute {str(name)[:100]}: give it another name")
    return names


def _is_field(name: Value) -> bool:
    is_name = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    return is_name and not str(name).startswith("_")


def _module(name: str, value: Value) -> ModuleType:
    if value not in list(facades()):
        raise Unknown(_sentence(name, str(value)[:100]))
    return facades()[value]


def _of_triton(name: str, dotted: Value) -> Facade:
    try:
        return resolved(str(dotted))
    except KeyError:
        raise Unknown(_sentence(name, str(dotted)[:100])) from None


def _of_numpy(name: Value, value: Constant) -> Scalar:
    """Return the number in a scalar of NumPy's, whose methods make arrays and write files."""
    if name not in _NUMPY or type(value) not in (bool, int, float):
        raise Unknown(f"a constant cannot be a NumPy {str(name)[:50]}: use Python's numbers")
    try:
        return np.dtype(name).type(value).item()
    except (OverflowError, ValueError) as error:
        raise Unknown(f"a constant cannot be {value} as a NumPy {name}") from error


def _dtype(name: Value) -> tl.dtype:
    try:
        return dtypes.triton_type(str(name))
    except KeyError:
        raise Unknown(f"there is no dtype {str(name)[:100]}: use one of Triton's, such as tl.float32") from None


def _sentence(name: str, what: str) -> str:
    return (
        f"a kernel cannot use {name}, which is {what}: pass its value as an argument, make a number a "
        f"tl.constexpr, put @triton.jit before a function of yours"
    )
