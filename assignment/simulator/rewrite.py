"""Kernels rewritten as Python functions with the meaning that Triton's compiler gives them.

The source of a @triton.jit function is parsed, its assignments, loops, `and`, `or`, `not`, `if
else` and `assert` become calls of CALLED, and the result is compiled under the student's own file
name and line numbers, so that tracebacks point there. Globals and closures are the function's own;
CALLED itself is passed as one more closure variable, so nothing is added to the student's module.
"""

import ast
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import triton.language as tl

from . import control, rounds, variables
from .alignment import HINTS
from .rewriter import CONTROL, Rewriter
from .triton_private import InterpretedFunction

_BEFORE_VOLATILE = 6  # arguments of tl.load
CALLED = types.SimpleNamespace(**{**vars(rounds), **vars(variables), **vars(control)})


def rewrite(fn: Callable, notes_constants: bool = False) -> Callable:
    """Return `fn` with the compiler's semantics; raises ValueError if its source is in no file."""
    try:
        tree = _parse(*inspect.getsourcelines(fn))
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError("@jit functions should be defined in a Python file") from error
    definition = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    Rewriter(fn, notes_constants).rewrite(definition)
    return _rebuild(fn, definition)


class _Source(NamedTuple):
    """What the source of a function tells about it."""

    waits: bool  # it can wait for a value in memory
    may_share: bool  # it may have an atomic, or a load of what another program changes
    has_hints: bool
    names: frozenset[str]


@functools.cache
def _source(fn: Callable) -> _Source:
    nodes = list(_nodes(fn))
    return _Source(
        any(isinstance(node, ast.While) or getattr(node, "attr", "") == "atomic_poll" for node in nodes),
        not nodes or any(map(_is_shared, nodes)),
        any(_name_of(node) in HINTS for node in nodes),
        frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
    )


def waits(fn: Callable) -> bool:
    """Return whether a kernel, or a device function that it reaches, has a `while` loop or polls."""
    return any(_source(reached).waits for reached in _reached(fn, set()))


def may_meet(fn: Callable, arguments: Iterable[object] = ()) -> bool:
    """Return whether a kernel's programs may have to do with each other: unless all that it calls is known not to."""
    seen, given = set[Callable](), list(_parts(tuple(arguments)))
    functions = [fn, *(value.fn for value in given if isinstance(value, InterpretedFunction))]
    others = [value for value in given if callable(value) and not isinstance(value, InterpretedFunction)]
    return bool(others) or any(_meets(reached) for of in functions for reached in _reached(of, seen))


def _parts(value: object) -> Iterator[object]:
    """Yield what a value is, or what a tuple or a constant holds."""
    value = value.value if isinstance(value, tl.constexpr) else value
    if isinstance(value, tuple | list | tl.tuple):
        for part in value:
            yield from _parts(part)
    else:
        yield value


@functools.cache
def _meets(fn: Callable) -> bool:
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    named = _source(fn).names & known.keys()
    if any(isinstance(value, InterpretedFunction) for value in fn.__defaults__ or ()):  # which is not followed
        return True
    values = [*(known[name] for name in named), *(fn.__defaults__ or ())]
    return _source(fn).may_share or not all(map(_is_harmless, values))


def _is_shared(node: ast.AST) -> bool:
    """Return whether an expression may be an atomic, or a load of what another program changes."""
    if isinstance(node, ast.Call):
        is_volatile = len(node.args) > _BEFORE_VOLATILE and _name_of(node.func) == "load"
        return is_volatile or any(word.arg in (None, "volatile") for word in node.keywords)
    return "atomic" in _name_of(node) or _name_of(node) == "getattr"


def _name_of(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _is_harmless(value: object) -> bool:
    """Return whether what a kernel reads of its module is no atomic, and is followed if it calls one."""
    value = getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    own = getattr(value, "__name__", "")
    is_tritons = name.partition(".")[0] == "triton" and "atomic" not in own and own != "load"
    return is_tritons or isinstance(value, InterpretedFunction | bool | int | float | str | None)


@functools.cache
def unused_results(fn: Callable) -> frozenset[tuple[str, int]]:
    """Return the files and lines with atomics whose results are used nowhere."""
    unused, used = set[tuple[str, int]](), set[tuple[str, int]]()
    for reached in _reached(fn, set()):
        try:
            tree = _parse(*inspect.getsourcelines(reached))
        except (OSError, TypeError, SyntaxError):
            continue
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and "atomic" in ast.unparse(node.func):
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                (unused if id(node) in statements else used).update((reached.__code__.co_filename, n) for n in lines)
    return frozenset(unused - used)


def follows_hints(fn: Callable) -> bool:
    """Return whether a kernel, or a device function that it reaches, tells the compiler what it shall believe."""
    return any(_source(reached).has_hints for reached in _reached(fn, set()))


def _reached(fn: Callable, seen: set[Callable]) -> Iterator[Callable]:
    """Yield the functions of Triton that a kernel reaches, itself first."""
    seen.add(fn)
    yield fn
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    for value in [known[name] for name in sorted(_source(fn).names) if name in known]:
        if isinstance(value, InterpretedFunction) and value.fn not in seen:
            yield from _reached(value.fn, seen)


def _nodes(fn: Callable) -> Iterable[ast.AST]:
    try:
        return ast.walk(_tree(inspect.getsourcelines(fn)[0]))
    except (OSError, TypeError, SyntaxError):
        return ()


def _parse(lines: list[str], first_line: int) -> ast.Module:
    """Return the function's syntax tree, with the line and column numbers of its file."""
    tree = _tree(lines)
    ast.increment_lineno(tree, first_line - 2)
    return tree


def _tree(lines: list[str]) -> ast.Module:
    return ast.parse("if True:\n" + "".join(lines) if lines[0][:1].isspace() else "\n" + "".join(lines))


def _rebuild(fn: Callable, definition: ast.FunctionDef) -> Callable:
    """Return a function from a rewritten definition, with the globals and closure of `fn`."""
    code = fn.__code__
    cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
    cells[CONTROL] = types.CellType(CALLED)
    factory = ast.parse(f"def factory({', '.join(cells)}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [definition]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    inner = _code_named(_code_named(compiled, "factory"), definition.name)
    if inner.co_name in inner.co_freevars:  # it calls itself
        cells.setdefault(inner.co_name, types.CellType(fn.__globals__[inner.co_name]))
    closure = tuple(cells[name] for name in inner.co_freevars)
    rebuilt = types.FunctionType(inner, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    rebuilt.__kwdefaults__ = fn.__kwdefaults__
    return rebuilt


def _code_named(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
