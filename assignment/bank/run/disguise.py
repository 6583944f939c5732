"""A copy that its author hopes not to be known by: other names, another order of functions, no comments.

What it computes is the same: a name that is anything to somebody else, such as a keyword of a library's function, an
attribute or a string, stays.
"""

import ast
import random
from collections.abc import Iterable, Iterator

from assignment.judge.pool import FUNCTIONS

SYLLABLES = ["ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu"]


def disguised(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Return a package's files with every private name changed, functions in another order, comments left out."""
    trees = {path: ast.parse(content) for path, content in files.items()}
    public = {*FUNCTIONS, *(name for tree in trees.values() for name in _fixed(tree))}
    renamed = {}
    for path, tree in trees.items():
        new = _new_names([name for name in _own(tree) if name not in public], rng)
        tree = ast.fix_missing_locations(_Renamer(new).visit(tree))
        tree.body = _reordered(tree.body, rng)
        renamed[path] = (ast.unparse(tree) + "\n").encode()
    return renamed


def _own(tree: ast.Module) -> list[str]:
    """Return what a module's code names itself: functions, parameters, variables."""
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = None
        elif isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return [name for name in found if not name.startswith("__")]


def _fixed(tree: ast.Module) -> Iterator[str]:
    """Yield the names that others know: of imports, attributes, methods, strings and keywords, and what is global."""
    ours = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        match node:
            case ast.alias():
                yield from (node.name, node.asname or "")
            case ast.Attribute():
                yield node.attr
            case ast.Constant(value=str(text)):
                yield text
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name):
                yield name
                yield from _parameters(node)
            case ast.FunctionDef(name=name) if name in FUNCTIONS:
                yield from _parameters(node)
            case ast.Call(func=func) if not (isinstance(func, ast.Subscript) or getattr(func, "id", "") in ours):
                yield from (keyword.arg or "" for keyword in node.keywords)


def _parameters(node: ast.AST) -> Iterator[str]:
    """Yield the parameters of a function, or the names of a class's methods and their parameters."""
    if isinstance(node, ast.ClassDef):
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                yield part.name
                yield from _parameters(part)
    elif isinstance(node, ast.FunctionDef):
        yield from (argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg))


def _new_names(names: Iterable[str], rng: random.Random) -> dict[str, str]:
    """Return a name for each, of the same case, that no other has."""
    new: dict[str, str] = {}
    for number, name in enumerate(names):
        made = "".join(rng.choices(SYLLABLES, k=3)) + str(number)
        new[name] = made.upper() if name.isupper() else f"_{made}" if name.startswith("_") else made
    return new


class _Renamer(ast.NodeTransformer):
    """Changes names, and leaves docstrings out."""

    def __init__(self, new: dict[str, str]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._new.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._new.get(node.arg, node.arg)
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        node.arg = self._new.get(node.arg or "", node.arg)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self._new.get(node.name, node.name)
        if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
            del node.body[0]
        self.generic_visit(node)
        return node


def _reordered(body: list[ast.stmt], rng: random.Random) -> list[ast.stmt]:
    """Return a module's statements with neighbouring functions shuffled, where none needs another to be defined."""
    result: list[ast.stmt] = []
    run: list[ast.stmt] = []
    for statement in [*body, ast.Pass()]:
        needs = _needed_at_once(statement) if isinstance(statement, ast.FunctionDef) else set()
        if isinstance(statement, ast.FunctionDef) and not needs & {getattr(one, "name", "") for one in run}:
            run.append(statement)
            continue
        rng.shuffle(run)
        result += run
        run = []
        if isinstance(statement, ast.FunctionDef):
            run.append(statement)
        else:
            result.append(statement)
    return result[:-1]


def _needed_at_once(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function's definition reads: decorators, defaults and annotations."""
    parts = [*function.decorator_list, function.args, *([function.returns] if function.returns else [])]
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
