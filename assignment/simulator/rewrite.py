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

from . import control, rounds, variables
from .alignment import HINTS
from .rewriter import CONTROL, Rewriter
from .triton_private import InterpretedFunction

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


@functools.cache
def _names(fn: Callable) -> tuple[bool, frozenset[str]]:
    """Return whether a function can wait for a value in memory, and the names in it."""
    nodes = list(_nodes(fn))
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    waits = any(isinstance(node, ast.While) or getattr(node, "attr", "") == "atomic_poll" for node in nodes)
    return waits, names


def waits(fn: Callable) -> bool:
    """Return whether a kernel, or a device function that it reaches, has a `while` loop or polls."""
    return any(_names(reached)[0] for reached in _reached(fn, set()))


def follows_hints(fn: Callable) -> bool:
    """Return whether a kernel, or a device function that it reaches, tells the compiler what it shall believe."""
    return any(
        getattr(node, "attr", getattr(node, "id", "")) in HINTS for of in _reached(fn, set()) for node in _nodes(of)
    )


def _reached(fn: Callable, seen: set[Callable]) -> Iterator[Callable]:
    """Yield the functions of Triton that a kernel reaches, itself first."""
    seen.add(fn)
    yield fn
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    for value in [known[name] for name in sorted(_names(fn)[1]) if name in known]:
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
