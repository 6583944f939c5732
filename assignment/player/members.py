"""Attributes by the kind of object: a field is one of its own tuple or namespace alone.

What kernels may write after a dot is checked before anything runs, for all objects alike. `a.name`
becomes a call of member() where that is not enough: where `name` is a field of some tuple, which a
list or Triton's own objects may have too, with another meaning.
"""

import ast
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import triton.language as tl

from assignment.simulator.kernel_values import KernelValue
from assignment.simulator.triton_private import CodeGenerator
from assignment.whose import theirs

from .facades import OF_PYTHON, attributes

if TYPE_CHECKING:
    from assignment.simulator.rewriter import Rewriter

NAME = "__member__"  # in the globals of kernels, which cannot write such a name
_PYTHONS = {name for kind in (str, list) for name in dir(kind)} - OF_PYTHON
_getattr: Callable[..., KernelValue] = getattr


def member(value: KernelValue, name: str | tl.constexpr, *default: KernelValue) -> KernelValue:
    """Return what `getattr` does, if kernels can use the attribute of such a value."""
    value = value.value if isinstance(value, tl.constexpr) else value
    name = str(name.value if isinstance(name, tl.constexpr) else name)
    is_pythons = isinstance(value, tuple) and not isinstance(value, tl.tuple)
    fields = getattr(value if is_pythons else getattr(value, "type", None), "_fields" if is_pythons else "fields", None)
    allowed = OF_PYTHON if isinstance(value, (str, list)) else attributes()
    if isinstance(value, ModuleType) or name in allowed or name in (fields or ()):
        return theirs(_getattr, value, name, *default)
    if default:
        return default[0]
    raise AttributeError(
        f"a kernel cannot use the attribute .{name} of this {type(value).__name__}", name=name, obj=value
    )


class Guard(ast.NodeTransformer):
    """Has member() look up attributes in a function that Python executes as it is."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not _is_guarded(node.attr):
            return node
        call = ast.Call(ast.Name(NAME, ast.Load()), [node.value, ast.Constant(node.attr)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


def install() -> None:
    """Have member() look up attributes for Triton's compiler, and the simulator if it is there."""
    CodeGenerator.builtin_namespace["getattr"] = member
    _guard(CodeGenerator, "gscope", lambda compiler, node: member(compiler.visit(node.value), node.attr))
    if "assignment.simulator.rewriter" in sys.modules:
        from assignment.simulator import control, rewrite, rewriter  # not loaded where kernels are compiled

        rewrite.CALLED.member = member
        setattr(control, "_attribute", member)  # noqa: B010 (mypy)
        _guard(rewriter.Rewriter, "globals", _in_simulator)


def _in_simulator(rewriter: "Rewriter", node: ast.Attribute) -> ast.AST:
    return rewriter._call("member", [rewriter.visit(node.value), ast.Constant(node.attr)], node)


def _guard(cls: type[ast.NodeVisitor], names: str, look_up: Callable[..., KernelValue]) -> None:
    """Make a visitor look up guarded attributes in kernels of submissions by another function."""
    before = cls.visit_Attribute
    if hasattr(before, "is_guarded"):
        return

    def visit(visitor: ast.NodeVisitor, node: ast.Attribute) -> KernelValue:
        is_guarded = _is_guarded(node.attr) and NAME in getattr(visitor, names)
        return (look_up if is_guarded else before)(visitor, node)

    visit.is_guarded = True  # type: ignore[attr-defined]
    setattr(cls, "visit_Attribute", visit)  # noqa: B010 (mypy)


def _is_guarded(name: str) -> bool:
    return name not in attributes() or name in _PYTHONS
