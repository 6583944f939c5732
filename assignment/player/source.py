"""Finds kernels in the text of a submission's files, by hash, line and qualified name.

The result is a syntax tree with the file's line numbers; nothing of it is evaluated here.
"""

import ast
import codecs
import copy
import functools
import hashlib
import inspect
import linecache
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from assignment.protocol.said import Telling, at

MAX_TEXT = 1_000_000
MAX_NODES = 20_000
# Triton's compiler and the simulator recurse four calls a level; Python stops at a thousand
MAX_DEPTH = 150
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_BROKEN = (SyntaxError, ValueError, RecursionError, MemoryError)


class Refused(Telling):
    """A kernel that is not built: what to write instead, and in a second line the place."""


class SourceFile:
    """The text of one file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = [f"{line}\n" for line in self.text.split("\n")]
        self.sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def find(self, name: str, line: int) -> "Definition":
        """Return the function of this name whose first decorator or `def` is at this line."""
        found = [node for qualified, node in self._functions if qualified == name and line in _first_lines(node)]
        if len(found) != 1:
            raise self.refused(
                f"expected one function {name} there, got {len(found)}: define kernels with `def` in a file", line, name
            )
        if isinstance(found[0], ast.AsyncFunctionDef):
            raise self.refused("a kernel cannot be async: write `def`", line, name)
        definition = self._alone(found[0], name)
        self._remember()
        return definition

    def refused(self, sentence: str, line: int, name: str) -> Refused:
        """Return the exception for something at this line."""
        text = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return Refused(sentence, at(self.path, line, f" in {name.rpartition('.')[2]}", text[:200]))

    @functools.cached_property
    def _functions(self) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
        """Return every function of the file with its qualified name."""
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise self.refused("the file is not UTF-8: save it as UTF-8", 1, self.path) from error
        for cookie in (match.group(1) for line in self.lines[:2] if (match := _COOKIE.match(line))):
            if not _reads_alike(cookie, self.text):
                raise self.refused(f"the file says that it is in {cookie}: save it as UTF-8", 1, self.path)
        return list(_functions(self._tree))

    @functools.cached_property
    def _tree(self) -> ast.Module:
        if len(self.text) > MAX_TEXT:
            raise self.refused(f"the file has more than {MAX_TEXT} characters: divide it", 1, self.path)
        try:
            return _parsed(self.text)
        except _BROKEN as error:
            line = getattr(error, "lineno", None) or 1
            raise self.refused(f"the file cannot be parsed: {error}", line, self.path) from error

    @functools.cached_property
    def _postpones(self) -> bool:
        """Whether annotations stay text: `from __future__ import annotations`."""
        imports = (node for node in self._tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
        return any(alias.name == "annotations" for node in imports for alias in node.names)

    def _alone(self, node: ast.FunctionDef, name: str) -> "Definition":
        """Return the function as Triton and the simulator will parse it, from its own lines."""
        last = node.end_lineno or node.lineno
        if sum(1 for _ in ast.walk(node)) > MAX_NODES or _depth(node) > MAX_DEPTH:
            raise self.refused("the kernel is too large or too deeply nested: divide it", node.lineno, name)
        try:
            alone = _parsed_alone(self.lines[node.lineno - 1 : last], node.lineno)
        except _BROKEN as error:
            raise self.refused(f"the kernel cannot be parsed by itself: {error}", node.lineno, name) from error
        bare = copy.copy(node)
        bare.decorator_list = []
        if not re.match(r"\s*def[ \t]+\w+[ \t]*\(", self.lines[node.lineno - 1]) or ast.dump(bare) != ast.dump(alone):
            raise self.refused("write `def name(` on one line of its own", node.lineno, name)
        return Definition(self, name, alone, self._postpones)

    def _remember(self) -> None:
        """Make `inspect` and tracebacks find the text, whether or not there is such a file."""
        linecache.cache[self.path] = (len(self.text), None, self.lines, self.path)


@dataclass(frozen=True)
class Definition:
    """A function of a file, without its decorators."""

    source: SourceFile
    name: str  # qualified
    tree: ast.FunctionDef
    postpones_annotations: bool

    def refused(self, sentence: str, node: ast.AST | None = None) -> Refused:
        """Return the exception for something in this function."""
        return self.source.refused(sentence, getattr(node, "lineno", self.tree.lineno), self.name)

    def is_source_of(self, function: Callable) -> bool:
        """Return whether Python's source of the function parses to this very tree."""
        lines, first = inspect.getsourcelines(function)
        return ast.dump(_parsed_alone(lines, first)) == ast.dump(self.tree)


def _reads_alike(encoding: str, text: str) -> bool:
    """Return whether Python reads UTF-8's bytes as this very text when a comment names that encoding."""
    try:
        return codecs.lookup(encoding)._is_text_encoding and text.encode().decode(encoding) == text
    except (LookupError, UnicodeDecodeError):
        return False


def _parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes, for the author of the file
        return ast.parse(text)


def _parsed_alone(lines: list[str], first_line: int) -> ast.FunctionDef:
    """Return the only statement of the lines, with the line numbers of their file."""
    tree = _parsed("if True:\n" + "".join(lines) if lines[0][:1].isspace() else "\n" + "".join(lines))
    ast.increment_lineno(tree, first_line - 2)
    body = tree.body[0].body if isinstance(tree.body[0], ast.If) else tree.body
    if len(tree.body) != 1 or len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
        raise ValueError("not one function")
    return body[0]


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    todo: list[tuple[str, ast.AST]] = [("", tree)]
    while todo:
        prefix, parent = todo.pop()
        for node in ast.iter_child_nodes(parent):
            inner = prefix
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield f"{prefix}{node.name}", node
                inner = f"{prefix}{node.name}.<locals>."
            elif isinstance(node, ast.ClassDef):
                inner = f"{prefix}{node.name}."
            todo.append((inner, node))


def _first_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return {node.lineno, *(decorator.lineno for decorator in node.decorator_list[:1])}


def _depth(node: ast.AST) -> int:
    depth, level = 0, [node]
    while level:
        depth, level = (depth + 1, [child for parent in level for child in ast.iter_child_nodes(parent)])
    return depth
