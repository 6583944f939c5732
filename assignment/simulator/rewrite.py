"""Kernels as Python functions that mean what Triton's compiler makes of them.

The source of a @triton.jit function is parsed, its assignments, loops, `and`, `or`, `not`, `if else` and `assert`
become calls of `control`, and the result is compiled under the student's own file name and line numbers, so that
tracebacks point there. Globals and closures are the function's own; `control` itself arrives as one more closure
variable, so nothing is added to the student's module.
"""

import ast
import builtins
import functools
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import triton.language as tl
from triton import knobs
from triton.compiler.code_generator import CodeGenerator
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITCallable

from . import control

_CONTROL = "__simulator__"
_BUILTINS = {"range": "loop", "max": "maximum", "min": "minimum", "print": "show"}


def rewrite(fn: Callable) -> Callable:
    """`fn` with the compiler's semantics; raises ValueError, as Triton does, if its source is in no file."""
    try:
        tree = _parse(*inspect.getsourcelines(fn))
    except (OSError, TypeError, SyntaxError) as error:
        raise ValueError("@jit functions should be defined in a Python file") from error
    definition = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    _Rewriter(fn).rewrite(definition)
    return _rebuild(fn, definition)


@functools.cache
def _names(fn: Callable) -> tuple[bool, frozenset[str]]:
    """Whether a function has a `while`, and the names in it."""
    nodes = list(_nodes(fn))
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return any(isinstance(node, ast.While) for node in nodes), names


def has_while(fn: Callable) -> bool:
    """Whether a kernel, or a device function that it or these call, has a `while` loop."""
    return any(_names(reached)[0] for reached in _reached(fn, set()))


def _reached(fn: Callable, seen: set[Callable]) -> Iterator[Callable]:
    """The functions of Triton that a kernel reaches, itself first."""
    seen.add(fn)
    yield fn
    known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    for value in [known[name] for name in sorted(_names(fn)[1]) if name in known]:
        if isinstance(value, InterpretedFunction) and value.fn not in seen:
            yield from _reached(value.fn, seen)


def _nodes(fn: Callable) -> Iterable[ast.AST]:
    try:
        return ast.walk(_parse(*inspect.getsourcelines(fn)))
    except (OSError, TypeError, SyntaxError):
        return ()


def _parse(lines: list[str], first_line: int) -> ast.Module:
    """The function's syntax tree, with the line and column numbers of its file."""
    tree = ast.parse("if True:\n" + "".join(lines) if lines[0][:1].isspace() else "\n" + "".join(lines))
    ast.increment_lineno(tree, first_line - 2)
    return tree


def _rebuild(fn: Callable, definition: ast.FunctionDef) -> Callable:
    """A function from a rewritten definition, with the globals, defaults and closure cells of `fn`."""
    code = fn.__code__
    cells = dict(zip(code.co_freevars, fn.__closure__ or (), strict=True))
    cells[_CONTROL] = types.CellType(control)
    factory = ast.parse(f"def factory({', '.join(cells)}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [definition]
    module = ast.fix_missing_locations(ast.Module([factory], []))
    compiled = compile(module, code.co_filename, "exec", dont_inherit=True)
    inner = _code_named(_code_named(compiled, "factory"), definition.name)
    closure = tuple(cells[name] for name in inner.co_freevars)
    rebuilt = types.FunctionType(inner, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    rebuilt.__kwdefaults__ = fn.__kwdefaults__
    return rebuilt


def _code_named(code: types.CodeType, name: str) -> types.CodeType:
    return next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)


class _Rewriter(ast.NodeTransformer):
    """Rewrites the body of one function."""

    def __init__(self, fn: Callable) -> None:
        self.globals = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
        self.locals = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}

    def rewrite(self, definition: ast.FunctionDef) -> None:
        """Change `definition` in place; its decorators, annotations and defaults are dropped."""
        definition.decorator_list = []
        definition.returns = None
        args = definition.args
        args.defaults = [ast.Constant(None) for _ in args.defaults]
        args.kw_defaults = [ast.Constant(None) if d else None for d in args.kw_defaults]
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            arg.annotation = None
        definition.body = self.visit(ast.Module(definition.body, [])).body

    def _call(self, name: str, args: Iterable[ast.expr], at: ast.AST) -> ast.Call:
        function = ast.Attribute(ast.Name(_CONTROL, ast.Load()), name, ast.Load())
        call = ast.copy_location(ast.Call(function, list(args), []), at)
        return ast.fix_missing_locations(call)

    def _lazy(self, expression: ast.expr) -> ast.expr:
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(nothing, expression), expression)

    def _is_builtin(self, name: str) -> bool:
        """Whether `name` is Python's own, not the student's."""
        if name in self.locals:
            return False
        return self.globals.get(name, getattr(builtins, name, None)) is getattr(builtins, name, None)

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node; one that the compiler does not know complains when it is reached."""
        name = type(node).__name__
        is_part = not isinstance(node, (ast.stmt, ast.expr)) or isinstance(node, (ast.Starred, ast.FormattedValue))
        is_known = is_part or hasattr(CodeGenerator, f"visit_{name}") or isinstance(node, ast.Raise)
        return super().visit(node) if is_known else self._unsupported(node)

    def _unsupported(self, node: ast.AST) -> Any:
        call = self._call("unsupported", [ast.Constant(ast.unparse(node).splitlines()[0])], node)
        return ast.copy_location(ast.Expr(call), node) if isinstance(node, ast.stmt) else call

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """A kernel that is still a stub says so; the compiler knows no `raise`."""
        is_stub = node.exc is not None and ast.unparse(node.exc).startswith("NotImplementedError")
        return node if is_stub else self._unsupported(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._unsupported(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return self.generic_visit(node) if len(node.ops) == 1 else self._unsupported(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self._call("bind", [self.visit(node.value)], node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return node
        bind = "static" if ast.unparse(node.annotation).strip("'\"").endswith("constexpr") else "bind"
        value = self._call(bind, [self.visit(node.value)], node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        return self._call(name, [self._lazy(self.visit(value)) for value in node.values], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self._call("negate", [operand], node)
        node.operand = operand
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        branches = [self._lazy(self.visit(node.body)), self._lazy(self.visit(node.orelse))]
        return self._call("choose", [self.visit(node.test), *branches], node)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        node.test = self._call("truth", [node.test], node.test)
        return node

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        names = _assigned(node)
        self.generic_visit(node)
        node.test = self._call("truth", [node.test], node.test)
        return self._with_constant_types(node, names)

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        names = _assigned(node)
        is_unrolled = "static_range" in ast.unparse(node.iter)  # its body is a new piece of program each time
        self.generic_visit(node)
        return node if is_unrolled else self._with_constant_types(node, names)

    def _with_constant_types(self, loop: ast.For | ast.While, names: set[str]) -> list[ast.stmt]:
        """The loop, and a check after each turn that what it assigns to keeps its type."""
        variables = ast.Call(ast.Name("locals", ast.Load()), [], [])
        constants: list[ast.expr] = [ast.Constant(name) for name in sorted(names)]
        before = f"__types_{loop.lineno}"
        types = self._call("types_before_loop", [ast.Tuple(constants, ast.Load()), variables], loop)
        remember = ast.copy_location(ast.Assign([ast.Name(before, ast.Store())], types), loop)
        check = self._call("check_types", [ast.Name(before, ast.Load()), variables], loop)
        loop.body = [*loop.body, ast.copy_location(ast.Expr(check), loop)]
        return [
            ast.fix_missing_locations(remember),
            loop,
            *(self._forget(name, before, loop) for name in sorted(names)),
        ]

    def _forget(self, name: str, before: str, loop: ast.For | ast.While) -> ast.stmt:
        """What a loop's body alone has bound is unknown to the compiler after it."""
        variables = ast.Call(ast.Name("locals", ast.Load()), [], [])
        is_inner = self._call("is_inner", [ast.Constant(name), ast.Name(before, ast.Load()), variables], loop)
        forget = ast.If(is_inner, [ast.Delete([ast.Name(name, ast.Del())])], [])
        return ast.fix_missing_locations(ast.copy_location(forget, loop))

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        message = self.visit(node.msg) if node.msg else ast.Constant("")
        call = self._call("check", [self._lazy(self.visit(node.test)), self._lazy(message)], node)
        return ast.copy_location(ast.Expr(call), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if ast.unparse(node) == "breakpoint()" and self._is_builtin("breakpoint"):  # in the kernel's own frame
            node.value = self._call("stop", [], node)
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.func = self._call("callee", [node.func], node.func)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        if node.attr == "handle":  # the compiler's own: here it would be the values
            return self._unsupported(node)
        return self._call("value_of", [node.value], node) if node.attr == "value" else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in _BUILTINS and self._is_builtin(node.id):
            function = ast.Attribute(ast.Name(_CONTROL, ast.Load()), _BUILTINS[node.id], ast.Load())
            return ast.fix_missing_locations(ast.copy_location(function, node))
        is_pythons = node.id not in self.locals and node.id not in self.globals and hasattr(builtins, node.id)
        if is_pythons and node.id not in control.BUILTINS:
            return self._call("unknown", [ast.Constant(node.id)], node)
        if node.id not in self.locals and not _is_readable(self.globals.get(node.id, tl)):
            return self._call("forbidden_global", [ast.Constant(node.id)], node)
        return node


def _assigned(loop: ast.For | ast.While) -> set[str]:
    """The names that the body of a loop assigns to."""
    nodes = (node for statement in loop.body for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_readable(value: Any) -> bool:
    """Whether the compiler lets a kernel read this global."""
    return (
        isinstance(value, (types.ModuleType, JITCallable, InterpretedFunction, tl.constexpr, tl.dtype))
        or getattr(value, "__triton_builtin__", False)
        or getattr(value, "__triton_aggregate__", False)
        or str(getattr(value, "__module__", "")).startswith(("triton.", "assignment.simulator."))
        or hasattr(value, "_fields")
        or bool(knobs.compilation.allow_non_constexpr_globals)
    )
