"""Rewrites the body of a kernel, statement by statement.

What the compiler refuses becomes a call that raises. It also compiles what a program may never
reach, so such a call is also placed first in the function, before the loop, or on both branches of
the `if` that it stands in.
"""

import ast
import builtins
import contextlib
import copy
import inspect
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import triton.language as tl

from . import constants, control, scopes
from .faults import is_ours
from .rounds import ROUNDS, depends_on
from .triton_private import (
    IS_CLOSE_TO_PYTHON,
    IS_CLOSER_TO_PYTHON,
    CodeGenerator,
    InterpretedFunction,
    JITCallable,
    knobs,
)
from .variables import OF_LOOPS

CONTROL = "__simulator__"  # what the functions that rewritten kernels call are members of
_COMPARISONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is_",
    ast.IsNot: "is_not",
}
_OF_CONSTANTS = {"value": "value_of", "type": "type_of"}  # attributes that a constant has, not its value
_BUILTINS = {"range": "loop", "max": "maximum", "min": "minimum", "print": "show"}


class Rewriter(ast.NodeTransformer):
    """Rewrites the body of one function."""

    def __init__(self, fn: Callable, notes_constants: bool = False) -> None:
        self._path = fn.__code__.co_filename
        self._notes_constants = notes_constants and not is_ours(self._path)
        self.globals = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
        self.locals = {*fn.__code__.co_varnames, *fn.__code__.co_cellvars}
        self._scopes: scopes.Scopes
        self._unread: set[str] = set()  # parameters that the compiler overlooks
        # what it refuses of the piece of program that is visited
        self._refused: list[ast.expr] = []
        self._loops = 0  # around the node that is visited, those that are unrolled aside
        self._ifs: list[ast.stmt] = []  # checks of the variables of those around it
        self._is_late = False  # whether the expression that is visited may be evaluated later, or not at all
        self._promised: set[str] = set()  # names that are annotated as tl.constexpr before they are assigned to
        self._parameters: set[str] = set()
        self._constants: set[str] = set()  # parameters, and names that are annotated as tl.constexpr
        self._returned = ""  # the function's name if the types of its `return`s may differ

    def rewrite(self, definition: ast.FunctionDef) -> None:
        """Change `definition` in place; its decorators, annotations and defaults are dropped."""
        definition.decorator_list = []
        definition.returns = None
        args = definition.args
        args.defaults = [ast.Constant(None) for _ in args.defaults]
        args.kw_defaults = [ast.Constant(None) if d else None for d in args.kw_defaults]
        for arg in scopes.parameters(args):
            arg.annotation = None
        _drop_dead_code(definition)
        nodes = list(ast.walk(definition))
        for node in nodes:
            if isinstance(node, ast.AnnAssign) and self.globals.get(ast.unparse(node.annotation)) is tl.constexpr:
                node.annotation = ast.Name("constexpr", ast.Load())  # whatever the module calls it
        self.locals |= _of_lists(nodes)
        self._parameters = {arg.arg for arg in scopes.parameters(args)}
        self._constants = self._parameters | scopes.constants(*definition.body)
        self._scopes = scopes.Scopes(definition)
        older = [*([] if IS_CLOSER_TO_PYTHON else args.kwonlyargs), args.vararg if not IS_CLOSE_TO_PYTHON else None]
        self._unread = {arg.arg for arg in (*args.posonlyargs, *filter(None, older))}
        self._returned = definition.name if _returns_differ(nodes) else ""
        keep = [self._keep_arguments(args, definition.body[0])] if self._returned else []
        body = self._visit_all(definition.body)
        refusal = [self._do(call, call) for call in self._refused[:1]]
        definition.body = [*refusal, *keep, *body]

    def _keep_arguments(self, args: ast.arguments, at: ast.stmt) -> ast.stmt:
        names: list[ast.expr] = [ast.Name(arg.arg, ast.Load()) for arg in scopes.parameters(args)]
        return self._assign("__arguments", ast.Tuple(names, ast.Load()), at)

    def _call(self, name: str, args: Iterable[ast.expr], at: ast.AST) -> ast.Call:
        function = ast.Attribute(ast.Name(CONTROL, ast.Load()), name, ast.Load())
        return _placed(ast.Call(function, list(args), []), at)

    def _refuse(self, name: str, text: str, at: ast.AST) -> ast.Call:
        """Return a call that raises, and remember it."""
        call = self._call(name, [ast.Constant(text)], at)
        self._refused.append(call)
        return call

    def _assign(self, name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
        assignment = ast.Assign([ast.Name(name, ast.Store())], value)
        return _placed(assignment, at)

    def _do(self, call: ast.expr, at: ast.AST) -> ast.stmt:
        return _placed(ast.Expr(call), at)

    def _if(self, test: ast.expr, body: list[ast.stmt], at: ast.AST) -> ast.stmt:
        return _placed(ast.If(test, body, []), at)

    @contextlib.contextmanager
    def _aside(self) -> Iterator[list[ast.expr]]:
        """Keep refusals inside from being raised early: the compiler may never get there."""
        before, self._refused = self._refused, []
        try:
            yield self._refused
        finally:
            self._refused = before

    def _visit_all(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        visited: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            visited += new if isinstance(new, list) else [new]
        return visited

    def _lazy(self, expression: ast.expr) -> ast.expr:
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return ast.copy_location(ast.Lambda(nothing, expression), expression)

    def _visit_aside(self, expression: ast.expr) -> ast.expr:
        with self._aside():
            return self._visit_late(expression)

    def _visit_late(self, expression: ast.expr) -> ast.expr:
        before, self._is_late = self._is_late, True
        try:
            return self.visit(expression)
        finally:
            self._is_late = before

    def _is_builtin(self, name: str) -> bool:
        """Return whether `name` is Python's own, not the student's."""
        if name in self.locals:
            return False
        return self.globals.get(name, getattr(builtins, name, None)) is getattr(builtins, name, None)

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node; one that the compiler does not know is refused."""
        name = type(node).__name__
        is_part = not isinstance(node, (ast.stmt, ast.expr)) or isinstance(node, (ast.Starred, ast.FormattedValue))
        is_known = is_part or hasattr(CodeGenerator, f"visit_{name}") or isinstance(node, ast.Raise)
        if not is_known:
            return self._unsupported(node)
        is_noted = self._notes_constants and isinstance(node, constants.NOTED)
        return self._noted("noted", super().visit(node), node, name) if is_noted else super().visit(node)

    def _noted(self, how: str, visited: ast.expr, node: Any, kind: str) -> ast.expr:
        """Return a call that notes the value of an expression, and returns it."""
        where = constants.site(self._path, node.lineno, node.col_offset, kind)
        return self._call(how, [visited, ast.Constant(where)], node)

    def _visit_test(self, node: ast.expr) -> ast.expr:
        """Rewrite the condition of an `if`."""
        return self._tested(self.visit(node), node)

    def _tested(self, visited: ast.expr, node: ast.expr) -> ast.expr:
        return self._noted("noted_arm", visited, node, constants.ARM) if self._notes_constants else visited

    def _unsupported(self, node: ast.AST, code: str = "") -> Any:
        call = self._refuse("unsupported", code or ast.unparse(node).splitlines()[0], node)
        return self._do(call, node) if isinstance(node, ast.stmt) else call

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Keep the `raise` of a stub; the compiler knows no other."""
        return node if _is_stub(node) else self._unsupported(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._unsupported(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        has_in = any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops)
        if has_in or (len(node.ops) > 1 and not IS_CLOSER_TO_PYTHON):
            return self._unsupported(node)
        if len(node.ops) == 1 and not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return self.generic_visit(node)
        names: list[ast.expr] = [ast.Constant(_COMPARISONS[type(op)]) for op in node.ops]
        others = [self._visit_late(node.comparators[0]), *map(self._visit_aside, node.comparators[1:])]
        arguments = [self.visit(node.left), ast.Tuple(names, ast.Load()), *map(self._lazy, others)]
        return self._call("compared", arguments, node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        if self._is_late or not IS_CLOSE_TO_PYTHON:
            return self._unsupported(node)
        node.value = self._call("bound", [self.visit(node.value), self._shape(node.target)], node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        parts = [part for part in ast.walk(target) if isinstance(part, (ast.Starred, ast.List, ast.Tuple))]
        is_nested = any(not isinstance(part, ast.Tuple) or not IS_CLOSE_TO_PYTHON for part in parts if part != target)
        if len(node.targets) > 1 or isinstance(target, ast.List) or is_nested:
            return self._unsupported(node)
        node.value = self._call("bound", [self.visit(node.value), self._shape(target)], node.value)
        node.targets = [self.visit(target)]
        return node

    def _shape(self, target: ast.expr) -> ast.expr:
        """Return for each name that is assigned to whether it is to be a constant, nested as the names are."""
        if isinstance(target, ast.Tuple):
            return ast.Tuple([self._shape(part) for part in target.elts], ast.Load())
        is_promised = isinstance(target, ast.Name) and target.id in self._promised
        if isinstance(target, ast.Name):
            self._promised.discard(target.id)
        return ast.Constant(is_promised)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        before = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = ast.copy_location(ast.BinOp(before, node.op, node.value), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], value), node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | list[ast.stmt]:
        if node.value is None:
            if IS_CLOSE_TO_PYTHON and isinstance(node.target, ast.Name) and scopes.is_constexpr(node.annotation):
                self._promised.add(node.target.id)
            return node
        bound = self._scopes.before(node)
        if not scopes.is_constexpr(node.annotation):
            names = [self.visit(part) for part in ast.walk(node.annotation) if isinstance(part, ast.Name)]
            refused = [self._do(name, name) for name in names if isinstance(name, ast.Call)]
            value = self._call("bind", [self.visit(node.value)], node.value)
            return [*refused, ast.copy_location(ast.Assign([node.target], value), node)]
        value = self._call("constant", [self.visit(node.value)], node.value)
        if isinstance(node.target, ast.Name) and node.target.id in bound.surely:
            return self._do(self._refuse("already_defined", node.target.id, node), node)
        if isinstance(node.target, ast.Name) and node.target.id in bound.perhaps:
            value = self._call("define", [ast.Constant(node.target.id), value, _variables()], node)
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_List(self, node: ast.List) -> ast.AST:
        return self.visit(ast.copy_location(ast.Tuple(node.elts, node.ctx), node))

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        generator = node.generators[0]
        targets = (ast.Name, ast.Tuple) if IS_CLOSER_TO_PYTHON else ast.Name
        if len(node.generators) > 1 or not isinstance(generator.target, targets):
            return self._unsupported(node)
        tests = list(generator.ifs)
        with self._aside():
            self.generic_visit(node)
        generator.iter = self._call("members", [generator.iter], node)
        visited = map(self._tested, generator.ifs, tests)
        generator.ifs = [self._call("filtered", [condition], node) for condition in visited]
        return self._call("collected", [node], node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        is_constant = isinstance(node.value, ast.Name) and node.value.id in self._constants
        value = self._element(node.value, "text")
        node.value = self._call("formatted", [value, ast.Constant(is_constant)], node)
        return node

    def _element(self, node: ast.expr, use: str) -> ast.expr:
        """Visit an expression that may be an element of a constant tuple."""
        if not isinstance(node, (ast.Subscript, ast.Attribute)) or not isinstance(node.value, ast.Name):
            return self.visit(node)
        container = ast.Name(node.value.id, ast.Load())
        return self._call("element", [container, self.visit(node), ast.Constant(use)], node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        name = "all_of" if isinstance(node.op, ast.And) else "any_of"
        operands = [self._visit_late(node.values[0]), *map(self._visit_aside, node.values[1:])]
        return self._call(name, [self._lazy(operand) for operand in operands], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self._call("negate", [operand], node)
        node.operand = operand
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        branches = [self._lazy(self._visit_aside(branch)) for branch in (node.body, node.orelse)]
        are_plain = [ast.Constant(_is_plain(branch)) for branch in (node.body, node.orelse)]
        return self._call("choose", [self._visit_test(node.test), *branches, *are_plain], node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        names, in_both = self._that_it_binds(node)
        way = f"__if_{node.lineno}_{node.col_offset}"
        has_return = self._loops and scopes.has_return(*node.body, *node.orelse)
        test = self._visit_test(node.test)
        with self._aside() as refused:
            if has_return:
                self._refuse("refused", control.RETURN_IN_LOOP, node)
            self._ifs += [self._do(self._join(way, in_both, node), node)] if names else []
            promised = set(self._promised)
            node.body, self._promised = self._visit_all(node.body), promised
            node.orelse = self._visit_all(node.orelse)
            del self._ifs[len(self._ifs) - bool(names) :]
        if not names and not refused:
            node.test = self._call("decided", [test], test)
            return node
        arguments = [test, _constants(names)]
        decide = self._assign(way, self._call("branch", arguments, node), test)
        node.test = ast.copy_location(ast.Name(way, ast.Load()), test)
        statements: list[ast.stmt] = [decide, node]
        if refused:
            is_runtime = self._call("is_runtime", [ast.Name(way, ast.Load())], node)
            statements.insert(1, self._if(is_runtime, [self._do(refused[0], refused[0])], node))
        return [*statements, *(self._after(way, names, in_both, node) if names else [])]

    def _that_it_binds(self, node: ast.If) -> tuple[list[str], list[str]]:
        """Return the names that an `if` rebinds, and those of them that both branches may bind."""
        bodies = [scopes.assigned(*node.body), scopes.assigned(*node.orelse)]
        constants = scopes.constants(*node.body, *node.orelse)
        after = [self._scopes.after(node, branch).any for branch in (True, False)]
        names = (bodies[0] & after[0]) | (bodies[1] & after[1])
        in_both = (bodies[0] & after[0]) & (bodies[1] & after[1]) - constants
        return sorted(names), sorted(in_both)

    def _join(self, way: str, in_both: list[str], at: ast.If) -> ast.Call:
        return self._call("join", [ast.Name(way, ast.Load()), _constants(in_both)], at)

    def _after(self, way: str, names: list[str], in_both: list[str], at: ast.If) -> list[ast.stmt]:
        """Return the statements after an `if` on a tensor that restore what is known there."""
        restore: list[ast.stmt] = []
        for name in names:
            value = ast.Subscript(ast.Name(way, ast.Load()), ast.Constant(name), ast.Load())
            is_unbound = self._call("is_unbound", [ast.Name(name, ast.Load())], at)
            again = [self._assign(name, value, at), self._if(is_unbound, [_delete(name)], at)]
            is_restored = ast.Compare(ast.Constant(name), [ast.In()], [ast.Name(way, ast.Load())])
            restore.append(self._if(is_restored, again, at))
        return [self._assign(way, self._join(way, in_both, at), at), self._if(ast.Name(way, ast.Load()), restore, at)]

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        if node.orelse:
            return self._unsupported(node, "while ... else")
        names = scopes.assigned(*node.body)
        decisive = depends_on(node, self.globals, self.locals)
        condition = f"while {ast.unparse(node.test)}"
        test = self._visit_late(node.test)
        self._visit_body(node)
        node.test = self._call("holds", [test], node.test)
        return self._counted(node, condition, decisive, self._with_constant_types(node, names))

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.stmt]:
        if not isinstance(node.iter, ast.Call):
            return self._do(self._refuse("refused", control.ITERATORS, node), node)
        if scopes.is_unrolled(node):
            with self._aside():
                call, bounds = node.iter, [self._element(arg, "bound") for arg in node.iter.args]
                call.args = []
                self.generic_visit(node)
                call.args = bounds
                return node
        if node.orelse:
            return self._unsupported(node, "for ... else")
        names = scopes.assigned(*node.body) - {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
        head = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
        node.iter = self._call("turns", [self.visit(node.iter)], node.iter)
        self._visit_body(node)
        return self._counted(node, head, (), self._with_constant_types(node, names))

    def _counted(
        self, loop: ast.For | ast.While, head: str, decisive: tuple[str, ...], statements: list[ast.stmt]
    ) -> list[ast.stmt]:
        """Return the statements of a loop, with a count of its turns: see rounds.py."""
        name = f"{ROUNDS}_{loop.lineno}_{loop.end_lineno}"
        begin = self._assign(name, self._call("rounds", [ast.Constant(head), _constants([*decisive])], loop), loop)
        variables = _variables() if decisive else ast.Constant(None)
        turn = self._call("went_round", [ast.Name(name, ast.Load()), variables], loop)
        loop.body = [*loop.body, self._do(turn, loop)]
        return [begin, *statements]

    def _visit_body(self, loop: ast.For | ast.While) -> None:
        promised, self._promised = self._promised, set()  # the compiler goes through the body twice
        self._loops += 1
        loop.body = self._visit_all(loop.body)
        self._loops -= 1
        self._promised = promised

    def _with_constant_types(self, loop: ast.For | ast.While, names: frozenset[str]) -> list[ast.stmt]:
        """Return the loop, with a check after each turn that its variables keep their types.

        Names that its body alone binds are unknown to the compiler after the turn.
        """
        bound = self._scopes.before(loop)
        kept, open_ones, inner = (sorted(names & some) for some in (bound.surely, bound.perhaps, names - bound.any))
        begin, end = [], []
        if kept or open_ones:
            types, how = f"__types_{loop.lineno}", "_perhaps" if open_ones else ""
            values = _variables() if open_ones else ast.Tuple([ast.Name(n, ast.Load()) for n in kept], ast.Load())
            arguments = [_constants([*kept, *open_ones]), values]
            begin = [self._assign(types, self._call(f"entered{how}", arguments, loop), loop)]
            loaded = ast.Name(types, ast.Load())
            end = [self._do(self._call(f"turned{how}", [loaded, values], loop), loop)]
            for name in open_ones:
                is_inner = self._call("is_inner", [ast.Constant(name), loaded], loop)
                end.append(self._if(is_inner, [self._assign(name, ast.Constant(None), loop), _delete(name)], loop))
        for name in inner:
            end += [self._assign(name, ast.Constant(None), loop), _placed(_delete(name), loop)]
        OF_LOOPS.update(open_ones, inner)
        loop.body = [*loop.body, *end]
        return [*begin, loop]

    def visit_Return(self, node: ast.Return) -> ast.AST | list[ast.stmt]:
        node.value = self._element(node.value, "return") if node.value else None
        if self._loops:
            return self._do(self._refuse("refused", control.RETURN_IN_LOOP, node), node)
        if self._returned:
            value = node.value or ast.Constant(None)
            arguments = [value, ast.Constant(self._returned), ast.Name("__arguments", ast.Load())]
            node.value = self._call("returned", arguments, node)
        return [*copy.deepcopy(self._ifs), node] if self._ifs else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        message = self.visit(node.msg) if node.msg else ast.Constant("")
        call = self._call("check", [self._lazy(self._visit_late(node.test)), message], node)
        return ast.copy_location(ast.Expr(call), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if ast.unparse(node) == "breakpoint()" and self._is_builtin("breakpoint"):
            if not control.DEBUGGED:
                node.value = self._call("stop", [], node)
            return node
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_lazy = len(node.args) == 2 and self._is_static_assert(node.func)
        self.generic_visit(node)
        if is_lazy:  # the message is made where the condition does not hold
            node.args[1] = self._lazy(node.args[1])
        node.func = self._call("callee", [node.func], node.func)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.value = self.visit(node.value)
        if node.attr == "handle":  # the compiler's own: here it would be the values
            return self._unsupported(node)
        if node.attr in _OF_CONSTANTS:
            return self._call(_OF_CONSTANTS[node.attr], [node.value], node)
        if isinstance(node.value, ast.Name) and self._may_be_boxed(node.value.id, node.attr):
            node.value = self._call("static", [node.value], node)
        return node

    def _may_be_boxed(self, name: str, attribute: str) -> bool:
        """Return whether a name may hold a tl.constexpr, whose value has the attribute."""
        if name in self.locals:
            return name in self._parameters and not hasattr(tl.tensor, attribute)
        return IS_CLOSE_TO_PYTHON and isinstance(self.globals.get(name), tl.constexpr)

    def _is_static_assert(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return getattr(self.globals.get(function.value.id), function.attr, None) is tl.static_assert
        return isinstance(function, ast.Name) and self.globals.get(function.id) is tl.static_assert

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return node
        if node.id in _BUILTINS and self._is_builtin(node.id):
            function = ast.Attribute(ast.Name(CONTROL, ast.Load()), _BUILTINS[node.id], ast.Load())
            return ast.copy_location(function, node)
        is_pythons = node.id not in self.locals and node.id not in self.globals and hasattr(builtins, node.id)
        if is_pythons and node.id not in control.BUILTINS:
            return self._refuse("unknown", node.id, node)
        if node.id not in self.locals and not _is_readable(self.globals.get(node.id, tl)):
            return self._refuse("forbidden_global", node.id, node)
        is_nowhere = node.id not in self.locals and node.id not in self.globals and not is_pythons
        return self._refuse("undefined", node.id, node) if is_nowhere or node.id in self._unread else node


def _placed(new: Any, at: ast.AST) -> Any:
    """Give a node its position: one line of a compound statement, or all lines of anything else."""
    new = ast.copy_location(new, at)
    if isinstance(at, ast.stmt) and (hasattr(at, "body") or hasattr(at, "cases")):
        new.end_lineno, new.end_col_offset = at.lineno, at.col_offset
    return new


def _drop_dead_code(definition: ast.FunctionDef) -> None:
    """Drop the statements after a `return`, which the compiler ignores."""
    for node in ast.walk(definition):
        for block in ("body", "orelse"):
            statements = getattr(node, block, None)
            if isinstance(statements, list):
                ends = [i for i, statement in enumerate(statements) if _ends(statement)]
                del statements[ends[0] + 1 if ends else len(statements) :]


def _ends(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Return) or (isinstance(statement, ast.Raise) and _is_stub(statement))


def _is_stub(node: ast.Raise) -> bool:
    return node.exc is not None and ast.unparse(node.exc).startswith("NotImplementedError")


def _returns_differ(nodes: list[ast.AST]) -> bool:
    """Return whether there are several `return`s, with values."""
    returns = [node for node in nodes if isinstance(node, ast.Return)]
    return len(returns) > 1 and any(node.value is not None for node in returns)


def _of_lists(nodes: list[ast.AST]) -> set[str]:
    """Return the variables of list comprehensions such as [f(x) for x in values]."""
    targets = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _is_plain(expression: ast.expr) -> bool:
    """Return whether an expression computes nothing, so that evaluating it is harmless."""
    plain = (ast.Name, ast.Constant, ast.Tuple, ast.expr_context, ast.unaryop)
    others = [node for node in ast.walk(expression) if not isinstance(node, plain)]
    return all(isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant) for node in others)


def _variables() -> ast.Call:
    return ast.Call(ast.Name("locals", ast.Load()), [], [])


def _constants(names: list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


def _delete(name: str) -> ast.stmt:
    return ast.Delete([ast.Name(name, ast.Del())])


def _is_readable(value: Any) -> bool:
    """Return whether the compiler lets a kernel read this global."""
    return (
        isinstance(value, (types.ModuleType, JITCallable, InterpretedFunction, tl.constexpr, tl.dtype))
        or getattr(value, "__triton_builtin__", False)
        or getattr(value, "__triton_aggregate__", False)
        or str(getattr(value, "__module__", "")).startswith(("triton.", "assignment.simulator."))
        or hasattr(value, "_fields")
        or bool(knobs.compilation.allow_non_constexpr_globals)
    )
