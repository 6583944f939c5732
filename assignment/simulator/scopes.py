"""Which names of a kernel are bound where, by the scopes of Triton's compiler.

Names that only a loop's body binds, or only one branch of an `if` on a tensor, are unknown after
it. Whether an `if` is on a tensor only shows when the kernel runs, so some names are bound here
*perhaps*.
"""

import ast
from collections.abc import Iterable
from typing import NamedTuple


class Bound(NamedTuple):
    """The names that are bound at a place for certain, and those that perhaps are."""

    surely: frozenset[str]
    perhaps: frozenset[str]

    @property
    def any(self) -> frozenset[str]:
        """All that can be bound."""
        return self.surely | self.perhaps

    def also(self, names: Iterable[str]) -> "Bound":
        """Return this with `names` bound for certain."""
        names = frozenset(names)
        return Bound(self.surely | names, self.perhaps - names)

    def either(self, other: "Bound") -> "Bound":
        """Return what is bound after one of two branches."""
        surely = self.surely & other.surely
        return Bound(surely, (self.any | other.any) - surely)


class Scopes:
    """What is bound before each statement of a function, and after the branches of an `if`."""

    def __init__(self, definition: ast.FunctionDef) -> None:
        self._before: dict[ast.stmt, Bound] = {}
        self._after: dict[tuple[ast.If, bool], Bound] = {}
        names = [arg.arg for arg in parameters(definition.args)]
        self._through(definition.body, Bound(frozenset(names), frozenset()))

    def before(self, statement: ast.stmt) -> Bound:
        """Return what is bound when a statement begins."""
        return self._before[statement]

    def after(self, node: ast.If, branch: bool) -> Bound:
        """Return what is bound at the end of the branch for a condition that is `branch`."""
        return self._after[node, branch]

    def _through(self, statements: list[ast.stmt], bound: Bound) -> Bound:
        for statement in statements:
            self._before[statement] = bound
            bound = self._past(statement, bound)
        return bound

    def _past(self, node: ast.stmt, bound: Bound) -> Bound:
        bound = bound.also(_named(node))
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            return bound.also(_targets(node))
        if isinstance(node, ast.If):
            ways = [self._through(node.body, bound), self._through(node.orelse, bound)]
            self._after[node, True], self._after[node, False] = ways
            return ways[0].either(ways[1])
        if isinstance(node, ast.For) and is_unrolled(node):
            again = Bound(bound.surely, bound.perhaps | (assigned(node) - bound.surely))
            return bound.either(self._through(node.body, again.also(_names(node.target))))
        if isinstance(node, ast.For):
            bound = bound.also(_names(node.target))
        if isinstance(node, (ast.For, ast.While)):
            self._through(node.body, bound)
        return bound


def parameters(args: ast.arguments) -> list[ast.arg]:
    """Return the parameters of a function."""
    return [*args.posonlyargs, *args.args, *filter(None, [args.vararg]), *args.kwonlyargs]


def is_unrolled(loop: ast.For) -> bool:
    """Return whether a loop's body is compiled anew for each turn."""
    callee = loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter
    return ast.unparse(callee).rpartition(".")[2] == "static_range"


def is_constexpr(annotation: ast.expr) -> bool:
    """Return whether an annotation is tl.constexpr; the compiler does not read a quoted one."""
    return ast.unparse(annotation).rpartition(".")[2] == "constexpr"


def assigned(*nodes: ast.AST) -> frozenset[str]:
    """Return the names that the nodes assign to, loop variables excluded."""
    statements = (inner for node in nodes for inner in ast.walk(node))
    return frozenset(name for statement in statements for name in _targets(statement))


def constants(*nodes: ast.AST) -> frozenset[str]:
    """Return the assigned names that are annotated as tl.constexpr."""
    annotated = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.AnnAssign))
    return frozenset(name for one in annotated if is_constexpr(one.annotation) for name in _targets(one))


def has_return(*nodes: ast.AST) -> bool:
    """Return whether there is a `return` in the nodes."""
    return any(isinstance(inner, ast.Return) for node in nodes for inner in ast.walk(node))


def _targets(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Assign):
        return [name for target in node.targets for name in _names(target)]
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        return _names(node.target)
    return ()


def _named(statement: ast.stmt) -> Iterable[str]:
    """Return the names that a statement's own expressions bind by `:=`, without those of its body."""
    expressions = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]
    nodes = (inner for expression in expressions for inner in ast.walk(expression))
    return [name for node in nodes if isinstance(node, ast.NamedExpr) for name in _names(node.target)]


def _names(target: ast.expr) -> list[str]:
    stores = (node for node in ast.walk(target) if isinstance(node, ast.Name))
    return [node.id for node in stores if isinstance(node.ctx, ast.Store)]
