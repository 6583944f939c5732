"""Limits on arithmetic with constants, such as `2 ** 10**9`, `"a" * 10**9` or `x + x` in a loop.

Kernels compute with constants while they are compiled or simulated, and must not exhaust memory. `a
** b` becomes `(left := a) ** bounded("Pow", left, b)`, so that the operation itself still happens
in the student's own line.
"""

import ast
import itertools
import operator
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import triton.language as tl

from assignment.simulator.kernel_values import KernelValue
from assignment.whose import theirs

Bounded = TypeVar("Bounded")


MAX_BITS = 4_096
MAX_LENGTH = 100_000
NAME = "__bounded__"  # in the globals of kernels, which cannot write such a name
_SEQUENCES = (str, tuple, list)
_METHODS = {"pow": "Pow", "mul": "Mult", "lshift": "LShift", "add": "Add", "mod": "Mod"}
_OPERATIONS = {node: getattr(operator, method) for method, node in _METHODS.items()}
_count = itertools.count()


def bounded(operation: str, a: KernelValue, b: Bounded, applies: bool = False) -> Bounded:
    """Return the right operand, or the result, if that is not too large.

    `operation` is the name of a node, such as "Pow".
    """
    if type(a) in _LIMITED and type(b) in _LIMITED:
        if operation == "Mod" and isinstance(a, str):
            raise TypeError("a kernel cannot format a string by `%`: use an f-string")
        if _is_too_large(operation, a, b):
            raise TooLarge
    return theirs(_OPERATIONS[operation], a, b) if applies else b


def short_range(*limits: int) -> range:
    """Return Python's `range`, for functions that Python runs while a kernel is compiled."""
    numbers = range(*limits)
    if max(map(abs, limits)) > 2**62 or len(numbers) > MAX_LENGTH:
        raise TooLarge
    return numbers


class TooLarge(ValueError):
    """A constant that a kernel cannot compute with."""

    def __init__(self) -> None:
        super().__init__(f"a constant of more than {MAX_BITS} bits or {MAX_LENGTH} items is too large for a kernel")


_LIMITED = frozenset((int, bool, *_SEQUENCES))


def _is_too_large(operation: str, a: Any, b: Any) -> bool:
    match operation, isinstance(a, int), isinstance(b, int):
        case "Pow", True, True:
            return b > 0 and abs(a) > 1 and a.bit_length() * b > MAX_BITS
        case "LShift", True, True:
            return a.bit_length() + b > MAX_BITS
        case "Mult", True, True:
            return a.bit_length() + b.bit_length() > MAX_BITS
        case "Mult", True, False:
            return a * len(b) > MAX_LENGTH
        case "Mult", False, True:
            return len(a) * b > MAX_LENGTH
        case "Add", False, False:
            return len(a) + len(b) > MAX_LENGTH
    return False


def with_bounds(node: ast.BinOp, guard: Callable[[list[ast.expr]], ast.expr]) -> ast.BinOp:
    """Return the operation with its right operand guarded; `guard` makes the call of bounded()."""
    name = type(node.op).__name__
    if name not in _METHODS.values():
        return node
    left = f"__left_{next(_count)}"
    guarded = guard([ast.Constant(name), ast.Name(left, ast.Load()), node.right])
    named = ast.NamedExpr(ast.Name(left, ast.Store()), node.left)
    return ast.fix_missing_locations(ast.copy_location(ast.BinOp(named, node.op, guarded), node))


class _Unnamed(ast.NodeTransformer):
    """Replaces operations where Python allows no `:=`: bounded() computes them."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.left, ast.NamedExpr) or not isinstance(node.right, ast.Call):
            return node
        operation, _, right = node.right.args
        call = ast.Call(node.right.func, [operation, node.left.value, right, ast.Constant(True)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


class Bounder(ast.NodeTransformer):
    """Bounds all arithmetic of a function that Python executes as it is."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return with_bounds(node, lambda args: ast.Call(ast.Name(NAME, ast.Load()), args, []))

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return _looping(self, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        before = ast.copy_location(ast.Name(ast.unparse(node.target), ast.Load()), node.target)
        value = self.visit(ast.copy_location(ast.BinOp(before, node.op, node.value), node))
        return ast.copy_location(ast.Assign([node.target], value), node)


def install() -> None:
    """Bound what Triton's compiler, and the simulator if installed, compute with constants."""
    for cls in (tl.constexpr, tl.tuple):
        for method, operation in _METHODS.items():
            _guard(cls, f"__{method}__", operation, is_swapped=False)
            _guard(cls, f"__r{method}__", operation, is_swapped=True)
    if "assignment.simulator.rewriter" in sys.modules:
        from assignment.simulator import rewrite, rewriter  # not loaded where kernels are compiled

        rewrite.CALLED.bounded = bounded
        setattr(rewriter.Rewriter, "visit_BinOp", _in_simulator)  # noqa: B010 (mypy)
        setattr(rewriter.Rewriter, "visit_comprehension", _looping)  # noqa: B010


def _looping(transformer: ast.NodeTransformer, node: ast.comprehension) -> ast.AST:
    transformer.generic_visit(node)
    node.iter = _Unnamed().visit(node.iter)
    return node


def _in_simulator(rewriter: Any, node: ast.BinOp) -> ast.AST:
    rewriter.generic_visit(node)
    return with_bounds(node, lambda args: rewriter._call("bounded", args, node))


def _guard(cls: type, name: str, operation: str, is_swapped: bool) -> None:
    """Make an operator of Triton's check its operands first."""
    method = vars(cls).get(name)
    if method is None or hasattr(method, "is_guarded"):
        return

    def guarded(self: KernelValue, other: KernelValue, *args: KernelValue, **kwargs: KernelValue) -> KernelValue:
        operands = (_plain(other), _plain(self)) if is_swapped else (_plain(self), _plain(other))
        bounded(operation, *operands)
        return theirs(method, self, other, *args, **kwargs)

    guarded.is_guarded = True  # type: ignore[attr-defined]
    setattr(cls, name, guarded)


def _plain(value: KernelValue) -> KernelValue:
    if isinstance(value, tl.tuple):
        return value.values
    return value.value if isinstance(value, tl.constexpr) else value
