"""Makes Python functions from checked definitions: defaults and decorators are never evaluated."""

import ast
import copy
import types

from assignment.simulator.scopes import parameters

from . import bounds, members
from .source import Definition
from .values import Bound, Unknown


def _bare(definition: Definition) -> ast.FunctionDef:
    """Return the function without default values and annotations, so that none is evaluated."""
    tree = copy.deepcopy(definition.tree)
    arguments = tree.args
    arguments.defaults = [ast.copy_location(ast.Constant(None), node) for node in arguments.defaults]
    arguments.kw_defaults = [node and ast.copy_location(ast.Constant(None), node) for node in arguments.kw_defaults]
    for arg in parameters(arguments):
        arg.annotation = None
    tree.returns = None
    return tree


def for_compiler(definition: Definition) -> ast.Module:
    """Return the tree that Triton compiles, with its line numbers: 1 is that of `def`."""
    tree = ast.Module([_bare(definition)], [])
    return ast.increment_lineno(tree, 1 - definition.tree.lineno)


def compiled(definition: Definition, namespace: dict[str, Bound], is_plain: bool) -> types.FunctionType:
    tree = _bare(definition)
    if is_plain:
        tree = members.Guard().visit(bounds.Bounder().visit(tree))
    path = definition.source.path
    made: dict[str, types.FunctionType] = {}
    exec(compile(ast.Module([tree], []), path, "exec", dont_inherit=True), namespace, made)
    function = made[tree.name]
    function.__qualname__ = definition.name
    return function


def set_defaults(function: types.FunctionType, definition: Definition, values: dict[str, Bound]) -> None:
    arguments = definition.tree.args
    named = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)]
    optional = named[len(named) - len(arguments.defaults) :]
    only = [a.arg for a, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if node]
    if {*optional, *only} != values.keys():
        raise Unknown("the default values are not those of the parameters: write them in the function's definition")
    function.__defaults__ = tuple(values[name] for name in optional) or None
    function.__kwdefaults__ = {name: values[name] for name in only} or None


def annotations(definition: Definition, namespace: dict[str, Bound]) -> dict[str, Bound]:
    """Return the annotations of parameters for Triton.

    They are objects for plain names, and the text of all else.
    """
    arguments = definition.tree.args
    annotated = {arg.arg: arg.annotation for arg in parameters(arguments) if arg.annotation}
    return {name: _annotation(annotation, definition, namespace) for name, annotation in annotated.items()}


def _annotation(node: ast.expr, definition: Definition, namespace: dict[str, Bound]) -> Bound:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and not definition.postpones_annotations:
        return node.value
    found = None if definition.postpones_annotations else _looked_up(node, namespace)
    return ast.unparse(node) if found is None else found


def _looked_up(node: ast.expr, namespace: dict[str, Bound]) -> Bound:
    """Return the value of a name, or of a name in a module."""
    if isinstance(node, ast.Name):
        return namespace.get(node.id)
    module = _looked_up(node.value, namespace) if isinstance(node, ast.Attribute) else None
    return vars(module).get(node.attr) if isinstance(module, types.ModuleType) else None  # type: ignore[attr-defined]
