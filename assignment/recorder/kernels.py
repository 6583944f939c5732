"""Describes a submission's kernels, so that another process can build them without an import.

A description says where a kernel is (file, line, qualified name, hash of the file) and what the
names in it are bound to: Triton's functions by name, constants by value, other kernels by number.
"""

import ast
import enum
import hashlib
import inspect
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl

from assignment.protocol.messages import Value
from assignment.simulator import dtypes
from assignment.simulator.scopes import parameters
from assignment.simulator.triton_private import ConstexprFunction, InterpretedFunction, JITCallable, JITFunction
from assignment.whose import theirs

_BELOW_TL = "math core standard random target_info extra extra.cuda extra.cuda.libdevice extra.libdevice"
_MODULES = ["triton", "triton.language", *(f"triton.language.{name}" for name in _BELOW_TL.split()), "math"]
_KERNELS = (JITFunction, InterpretedFunction, ConstexprFunction)
_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
_NUMPY = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32"  # a float64 is a float
NUMPY = tuple(np.dtype(name).type for name in _NUMPY.split())
_SUBCLASSED: dict[type, Callable] = {int: int.__int__, float: float.__float__, str: str.__str__}


class Described:
    """The kernels of the submission in the folder `root`, described when first asked for."""

    def __init__(self, root: Path) -> None:
        self.entries: list[dict[str, Value]] = []
        self._root = root.resolve()
        self._numbers: dict[int, int] = {}
        self._kept: list[JITCallable] = []  # whose ids are the keys of _numbers
        self._alike: dict[str, int] = {}  # numbers by description, which a file that is imported again does not change

    def number(self, kernel: JITCallable) -> int:
        """Return the number of a @triton.jit function.

        Raises TypeError for one that is not in a file of the submission.
        """
        while not is_kernel(kernel) and hasattr(kernel, "fn"):  # autotuned, or with heuristics
            kernel = kernel.fn
        if not is_kernel(kernel):
            raise TypeError(f"expected a @triton.jit function, got {kind_of(kernel)}")
        if id(kernel) not in self._numbers:
            entry = self._place(kernel)
            self._numbers[id(kernel)] = len(self.entries)
            self._kept.append(kernel)
            self.entries.append(entry)
            try:
                entry |= self._content(kernel)
            except BaseException:  # or it would be taken for described
                del self._numbers[id(kernel)]
                raise
            self._numbers[id(kernel)] = self._merged(entry)
        return self._numbers[id(kernel)]

    def _merged(self, entry: dict[str, Value]) -> int:
        """Return the number of an entry, that of an equal one if there is one; a new one goes if it is the last."""
        key = json.dumps(entry, sort_keys=True)
        if key not in self._alike:
            self._alike[key] = next(number for number, other in enumerate(self.entries) if other is entry)
        elif self.entries[-1] is entry:
            self.entries.pop()
        return self._alike[key]

    def forget(self) -> None:
        """Let the functions go that are described: their files are imported again."""
        self._numbers, self._kept = {}, []

    def value(self, value: Any) -> Value:
        """Return a constant as JSON; raises TypeError for what cannot be one."""
        value = plain(value.value if isinstance(value, tl.constexpr) else value)
        if type(value) in (bool, int, str, type(None)):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, NUMPY):
            return {"numpy": {"dtype": value.dtype.name, "value": self.value(value.item())}}
        if isinstance(value, tuple):
            values = [self.value(v) for v in value]
            is_named = hasattr(value, "_fields")
            return {"namedtuple": _class(type(value)), "values": values} if is_named else {"tuple": values}
        if isinstance(value, tl.dtype):
            return {"dtype": dtypes.name_of(value)}
        if isinstance(value, _KERNELS):
            return {"triton": dotted} if (dotted := _of_triton(value)) else {"kernel": self.number(value)}
        if isinstance(value, torch.dtype):
            return {"torch": dtypes.name_of(value)}
        if dotted := _of_triton(value):
            return {"triton": dotted}
        raise TypeError(
            f"a kernel's constants are numbers, strings, None, dtypes, jit functions and tuples of these, "
            f"got {kind_of(value)}: {advice(value)}"
        )

    def _place(self, kernel: JITCallable) -> dict[str, Value]:
        code = kernel.fn.__code__
        path = Path(code.co_filename).resolve()
        if not path.is_file() or not path.is_relative_to(self._root):
            raise TypeError(
                f"the kernel {kernel.fn.__name__} stands in {code.co_filename}: a kernel must stand in a file of the "
                f"submission, under `def` and @triton.jit"
            )
        return {
            "file": path.relative_to(self._root).as_posix(),
            "line": code.co_firstlineno,
            "name": kernel.fn.__qualname__,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "kind": "constexpr_function" if isinstance(kernel, ConstexprFunction) else "jit",
        }

    def _content(self, kernel: JITCallable) -> dict[str, Value]:
        parameters = theirs(inspect.signature, kernel.fn).parameters.values()
        defaults = {p.name: self.value(p.default) for p in parameters if p.default is not p.empty}
        return {"options": _options(kernel), "defaults": defaults, "names": self._names(kernel.fn)}

    def _names(self, fn: Callable) -> dict[str, Value]:
        """Return what the free names of a function's source are bound to, and NamedTuples whose fields it may use."""
        tree = _tree(fn)
        known = {**fn.__globals__, **theirs(inspect.getclosurevars, fn).nonlocals}
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        tuples = {name for name, value in known.items() if _is_namedtuple(value) and used.intersection(value._fields)}
        names = _free(tree) | {name for name in tuples if not name.startswith("__")}
        return {name: self._bound(known[name], tree, name) for name in sorted(names) if name in known}

    def _bound(self, value: Any, tree: ast.AST, expression: str) -> Value:
        """Return what a name, or an attribute of modules, is bound to."""
        if isinstance(value, ModuleType):
            return self._module(value, tree, expression)
        if dotted := _of_triton(value):
            return {"triton": dotted}
        if _is_namedtuple(value):
            return {"namedtuple": _class(value)}
        try:
            if isinstance(value, tl.constexpr) and isinstance(value.value, list):  # whose elements a kernel may read
                return {"constexpr": {"list": [self.value(item) for item in value.value]}}
            described = self.value(value)
        except TypeError:
            return {"unknown": kind_of(value)}
        if isinstance(value, (tl.dtype, torch.dtype, *_KERNELS)):
            return described
        return {"constexpr" if isinstance(value, tl.constexpr) else "constant": described}

    def _module(self, module: ModuleType, tree: ast.AST, expression: str) -> Value:
        if module.__name__ in _MODULES:
            return {"module": module.__name__}
        used = set(_members(tree, expression))
        if not self._is_ours(module) and not all(_is_constant(getattr(module, name, None)) for name in used):
            return {"unknown": module.__name__}
        there = [name for name in sorted(used) if hasattr(module, name)]
        bound = {name: self._bound(getattr(module, name), tree, f"{expression}.{name}") for name in there}
        return {"namespace": bound}

    def _is_ours(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None)
        return bool(file) and Path(str(file)).resolve().is_relative_to(self._root)


def _is_constant(value: Any) -> bool:
    """Return whether it is a constant such as numpy.inf or torch.float32."""
    return type(value) in (bool, int, float, torch.dtype)


def plain(value: Any) -> Any:
    """Return the number or string that a subclass holds: an IntEnum's, a float64 of NumPy's."""
    for kind, read in _SUBCLASSED.items():
        if isinstance(value, kind) and type(value) is not bool:
            return read(value)
    return value


def advice(value: Any) -> str:
    """Return what to pass to a kernel instead of something that Triton does not take."""
    if isinstance(value, enum.Enum):
        return "pass its .value"
    for kind, instead in ((np.bool_, "bool"), (np.integer, "int"), (np.floating, "float")):
        if isinstance(value, kind):
            return f"pass {instead}(…) of it"
    if isinstance(value, (list, np.ndarray)):
        return "pass a tuple, or a tensor"
    if callable(value):
        return "pass a @triton.jit function"
    return "pass its fields one by one"


def is_kernel(value: Any) -> bool:
    """Return whether it is a @triton.jit function, or one that kernels call while compiled."""
    return isinstance(value, _KERNELS)


def _options(kernel: JITCallable) -> dict[str, Value]:
    given = getattr(kernel, "kwargs", None) or vars(kernel)
    options = {name: given.get(name) for name in _OPTIONS}
    return {name: _option(value) for name, value in options.items() if value is not None}


def _option(value: Any) -> Value:
    """Return an option of @triton.jit: whether, or which parameters."""
    return theirs(list, theirs(map, plain, value)) if isinstance(value, Iterable) else theirs(bool, value)


def _tree(fn: Callable) -> ast.FunctionDef:
    source = textwrap.dedent("".join(theirs(inspect.getsourcelines, fn)[0]))
    return next(node for node in ast.walk(theirs(ast.parse, source)) if isinstance(node, ast.FunctionDef))


def _free(tree: ast.FunctionDef) -> set[str]:
    """Return the names that are not variables of the function; all names of its annotations."""
    arguments = parameters(tree.args)
    body = list(_names(*tree.body))
    own = {arg.arg for arg in arguments} | {node.id for node in body if isinstance(node.ctx, ast.Store)}
    annotations = [arg.annotation for arg in arguments if arg.annotation]
    return ({node.id for node in body} - own) | {node.id for node in _names(*annotations)}


def _names(*nodes: ast.AST) -> Iterator[ast.Name]:
    return (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name))


def _members(tree: ast.AST, expression: str) -> Iterator[str]:
    """Return the attributes of an expression's value that a function uses."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return (node.attr for node in nodes if ast.unparse(node.value) == expression)


def _of_triton(value: Any) -> str:
    """Return the dotted name of a function or type of Triton's, or an empty string."""
    if not callable(value):
        return ""
    for module in _MODULES:
        members = vars(sys.modules[module]) if module in sys.modules else {}
        for name, member in members.items():
            if member is value and not name.startswith("_"):
                return f"{module}.{name}"
    return ""


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def _class(cls: type[tuple]) -> dict[str, Value]:
    fields = getattr(cls, "_fields", None)
    return {} if fields is None else {"name": cls.__name__, "fields": list(fields)}


def kind_of(value: Any) -> str:
    """Return "numpy.ndarray", "cs336_kernels.rmsnorm.helper"."""
    named = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    name = f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"
    return name.removeprefix("builtins.")
