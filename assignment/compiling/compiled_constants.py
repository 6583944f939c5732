"""Constants as Triton's compiler sees them, beside those of the simulator: see simulator/constants.py."""

import ast
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import triton.language as tl

from assignment.simulator import constants
from assignment.simulator.constants import ARM, NOTED, UNKNOWN, Seen
from assignment.simulator.triton_private import CodeGenerator

ARMS = {"True": "its body", "False": "the other arm"}
_IS_TEST = "is_a_test"  # set on nodes that are the condition of an `if`


@contextlib.contextmanager
def noted(seen: Seen) -> Iterator[None]:
    """Note the constants of all functions that are compiled inside."""
    before = CodeGenerator.visit

    def visit(generator: CodeGenerator, node: ast.AST) -> tl.core.base_value | None:
        for test in _tests(node):
            setattr(test, _IS_TEST, True)
        value = before(generator, node)
        if isinstance(node, ast.expr):
            _note(seen, generator, node, value)
        return value

    CodeGenerator.visit = visit
    try:
        yield
    finally:
        CodeGenerator.visit = before


def _tests(node: ast.AST) -> Sequence[ast.expr]:
    if isinstance(node, (ast.If, ast.IfExp)):
        return [node.test]
    return [test for part in node.generators for test in part.ifs] if isinstance(node, ast.ListComp) else []


def _note(seen: Seen, generator: CodeGenerator, node: ast.expr, value: Any) -> None:
    if not hasattr(node, "lineno"):  # made by the compiler
        return
    place = generator.file_name, generator.begin_line + node.lineno, node.col_offset
    if isinstance(node, NOTED):
        constants.note(seen, constants.site(*place, type(node).__name__), value)
    if hasattr(node, _IS_TEST):
        where = constants.site(*place, ARM)
        is_known = not isinstance(value, tl.tensor)
        for arm in (bool(getattr(value, "value", value)),) if is_known else (True, False):
            constants.note_arm(seen, where, arm)


def differing(played: Mapping[str, Sequence[str]], compiled: Mapping[str, Sequence[str]]) -> list[tuple[str, int, str]]:
    """Return where a launch had other constants as it was played than as it was compiled: path, line, and how.

    What ran must have been compiled; what no program has reached may be compiled too.
    """
    found = []
    for where, values in played.items():
        path, line, _, kind = where.rsplit(":", 3)
        others = compiled.get(where, [] if kind == ARM else [UNKNOWN])
        missing = sorted({*values} - {*others, UNKNOWN})
        if missing and UNKNOWN not in others:
            found.append((path, int(line), _told(kind, missing[0], others)))
    return sorted(found, key=lambda one: one[:2])


def _told(kind: str, played: str, compiled: Sequence[str]) -> str:
    if kind != ARM:
        return f"a constant is {played} where it is played and {' or '.join(sorted(compiled))} where it is compiled"
    other = f"compiled is {ARMS[compiled[0]]} alone" if compiled else "nothing of it is compiled"
    return f"this `if` takes {ARMS[played]} where it is played; {other}"
