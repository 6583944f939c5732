"""Allow-lists of nodes, names, attributes and keywords in a kernel, checked before anything runs.

A kernel is executed as Python by the simulator and evaluated, expression by expression, by Triton's
compiler. What is allowed depends on what a node could do to either; whether a kernel is valid
Triton is left to them, who report it in Triton's words. Decorators and defaults are never
evaluated, and annotations of parameters are only looked up.
"""

import ast
from collections.abc import Iterator, Set
from typing import Any

from assignment.simulator.scopes import parameters
from assignment.simulator.triton_private import IS_CLOSE_TO_PYTHON, IS_CLOSER_TO_PYTHON

from .source import Definition

MAX_INT = 2**64
MAX_STRING = 10_000

_STATEMENTS = "Assign AnnAssign AugAssign Expr For While If Pass Break Continue Return Assert Raise"
_EXPRESSIONS = """Constant Name Attribute Subscript Slice Tuple List ListComp comprehension Starred Call keyword BinOp
    UnaryOp BoolOp Compare IfExp JoinedStr FormattedValue Load Store"""
_OPERATORS = """Add Sub Mult Div FloorDiv Mod Pow LShift RShift BitAnd BitOr BitXor UAdd USub Not Invert And Or Eq NotEq
    Lt LtE Gt GtE Is IsNot In NotIn"""
_NEWER = "NamedExpr" if IS_CLOSE_TO_PYTHON else ""
ALLOWED = frozenset(f"{_STATEMENTS} {_EXPRESSIONS} {_OPERATORS} {_NEWER}".split())
_IN_ANNOTATIONS = frozenset(("Name", "Attribute", "Constant", "Subscript", "Tuple", "List", "BinOp", "BitOr", "Load"))
_CONSTANTS = (bool, int, float, str, type(None), type(...))
_BY_NAME = ("getattr", "hasattr")
_RAISED = ("NotImplementedError", "ValueError", "TypeError", "AssertionError", "RuntimeError")

_FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")
_INSTEAD = {
    "Lambda": "define a function with @triton.jit",
    **dict.fromkeys(_FUNCTIONS, "move the inner function out of the kernel and put @triton.jit before it"),
    "ClassDef": "use a NamedTuple that is defined outside of the kernel",
    **dict.fromkeys(("Import", "ImportFrom"), "import at the top of the file"),
    **dict.fromkeys(("Global", "Nonlocal"), "pass the value as an argument, or return it"),
    **dict.fromkeys(("Try", "TryStar"), "use masks or tl.where; a kernel catches nothing"),
    **dict.fromkeys(("With", "AsyncWith"), "write the body without `with`"),
    "NamedExpr": "assign on a line of its own",
    "Delete": "leave the name as it is",
    "Dict": "use a tuple, or constexpr arguments",
    "Set": "use a tuple",
    **dict.fromkeys(("DictComp", "SetComp", "GeneratorExp"), "use a loop over tl.static_range"),
    **dict.fromkeys(("Yield", "YieldFrom"), "return the value"),
    "Await": "call the function",
    "Match": "use `if` and `elif`",
    "MatMult": "use tl.dot",
}


def check(definition: Definition, attributes: Set[str]) -> None:
    """Raise Refused if anything in the function is not on the lists."""
    for node in _evaluated(definition.tree):
        kind = type(node).__name__
        if kind not in ALLOWED:
            raise definition.refused(
                f"a kernel cannot have {_shown(node)}: {_INSTEAD.get(kind, 'write it without')}", node
            )
        if why := _why_not(node, attributes):
            raise definition.refused(why, node)
    _check_parameters(definition)
    _check_lookups(definition, attributes)


def _evaluated(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    return (node for statement in tree.body for node in ast.walk(statement))


def _shown(node: ast.AST) -> str:
    try:
        return f"`{ast.unparse(node).splitlines()[0][:80]}`"
    except (ValueError, AttributeError, IndexError):
        return type(node).__name__


def _why_not(node: ast.AST, attributes: Set[str]) -> str:
    """Return why a kernel cannot have a node of an allowed kind, or an empty string."""
    match node:
        case ast.Name(id=name):
            return name_refused(name)
        case ast.Constant(value=value):
            return _constant_refused(value)
        case ast.Attribute(ctx=ast.Load(), attr=name):
            return attribute_refused(name, attributes)
        case ast.Attribute():
            return f"a kernel cannot assign to {_shown(node)}: assign to a variable, and return it"
        case ast.Subscript(ctx=ast.Store() | ast.Del()):
            return f"a kernel cannot assign to {_shown(node)}: use tl.store for memory, tl.where for a tile"
        case ast.Starred(ctx=ast.Store() | ast.Del()):
            return "a kernel cannot unpack with `*`: name each of the values"
        case ast.keyword(arg=None):
            return "a kernel cannot pass `**` arguments: write them out"
        case ast.keyword(arg=str(name)) if name.startswith("_"):
            return f"{name}= is Triton's own argument: leave it out"
        case ast.FormattedValue() if node.format_spec:
            return "a kernel cannot format values: write {value} without `:`"
        case ast.comprehension() if not _is_plain(node):
            return "a kernel cannot make this list: write [f(x) for x in values], without `if`"
        case ast.ListComp(generators=[_, _, *_]):
            return "a kernel cannot make a list by two loops: use tl.static_range"
        case ast.For() if not isinstance(node.target, ast.Name):
            return "a loop in a kernel has one variable: write `for i in ...`"
        case ast.AnnAssign() | ast.AugAssign() if not isinstance(node.target, ast.Name):
            return "a kernel can only assign to names: use tl.store for memory"
        case ast.Raise(cause=None, exc=ast.Name(id=name) | ast.Call(func=ast.Name(id=name))) if name in _RAISED:
            return ""
        case ast.Raise():
            return "a kernel cannot raise this: use tl.static_assert, or tl.device_assert"
    return ""


def name_refused(name: str) -> str:
    """Return why a kernel cannot have a variable of that name, or an empty string."""
    is_reserved = name.startswith("__") or name == "locals"
    return f"the name {name} is reserved: choose another one" if is_reserved else ""


def attribute_refused(name: str, attributes: Set[str]) -> str:
    """Return why a kernel cannot use the attribute, or an empty string."""
    if name in attributes and not name.startswith("_"):
        return ""
    return f"a kernel cannot use the attribute .{name}: use Triton's public functions, dtypes and tensor methods"


def _constant_refused(value: Any) -> str:
    if type(value) not in _CONSTANTS:
        return f"a kernel cannot have a constant of type {type(value).__name__}: use numbers and strings"
    if type(value) is int and abs(value) >= MAX_INT:
        return "the number does not fit in 64 bits: use a smaller one, or a float"
    if type(value) is str and len(value) > MAX_STRING:
        return f"the string has more than {MAX_STRING} characters: use a shorter one"
    return ""


def _is_plain(node: ast.comprehension) -> bool:
    """Return whether a list's loop is one that the compiler takes."""
    return not node.is_async and (IS_CLOSER_TO_PYTHON or (isinstance(node.target, ast.Name) and not node.ifs))


def _check_parameters(definition: Definition) -> None:
    """Check the names of the function and its parameters, and the form of annotations."""
    arguments = definition.tree.args
    is_starred = arguments.kwarg or (arguments.vararg and not IS_CLOSE_TO_PYTHON)
    if is_starred or getattr(definition.tree, "type_params", None):
        kinds = "`**`" if IS_CLOSE_TO_PYTHON else "`*` or `**`"
        raise definition.refused(f"a kernel cannot take {kinds} parameters: name each of them")
    annotated = parameters(arguments)
    for node, name in [(definition.tree, definition.tree.name), *((arg, arg.arg) for arg in annotated)]:
        if why := name_refused(name):
            raise definition.refused(why, node)
    for annotation in [*(arg.annotation for arg in annotated), definition.tree.returns]:
        for node in ast.walk(annotation) if annotation else ():
            if why := _in_annotation(node):
                raise definition.refused(why, node)


def _in_annotation(node: ast.AST) -> str:
    if type(node).__name__ not in _IN_ANNOTATIONS or (isinstance(node, ast.Attribute) and node.attr.startswith("_")):
        return f"{_shown(node)} in an annotation: write tl.constexpr, a dtype, or nothing"
    return name_refused(node.id) if isinstance(node, ast.Name) else ""


def _check_lookups(definition: Definition, attributes: Set[str]) -> None:
    """Check that `getattr` and `hasattr` are called directly, with a plain attribute name."""
    nodes = list(_evaluated(definition.tree))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _is_lookup(node.func)]
    called = {id(call.func) for call in calls}
    for node in nodes:
        if _is_lookup(node) and id(node) not in called:
            raise definition.refused("getattr and hasattr can only be called: write getattr(x, 'name')", node)
    for call in calls:
        if why := _lookup_refused(call, attributes):
            raise definition.refused(why, call)


def _is_lookup(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in _BY_NAME


def _lookup_refused(call: ast.Call, attributes: Set[str]) -> str:
    name = call.args[1] if len(call.args) in (2, 3) else None
    is_plain = isinstance(name, ast.Constant) and isinstance(name.value, str) and not call.keywords
    if not is_plain or any(isinstance(arg, ast.Starred) for arg in call.args):
        return "getattr and hasattr take a name written out in quotes: write x.name where it is known"
    return attribute_refused(name.value, attributes)  # type: ignore[union-attr]
