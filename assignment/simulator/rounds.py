"""Loops of a kernel: how often they went round, and which of them provably never end.

What the condition of a `while` depends on, directly or through other variables of its body, is read from the source.
Where none of that comes from memory, and a turn has left all of it as it was, every further turn does the same.
"""

import ast
from collections.abc import Hashable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

import triton.language as tl

from .faults import Endless, Said, at, joined, place
from .kernel_values import KernelValue
from .semantic import semantic

ROUNDS = "__rounds"  # the variables of a kernel in which its loops are counted: __rounds_FIRST_LAST, by their lines
ENOUGH = 100  # turns that change nothing, before a loop is stopped: another fault may show first
_FROM_TRITON = {
    "abs", "arange", "cdiv", "ceil", "exp", "exp2", "floor", "full", "log", "log2", "max", "maximum", "min",
    "minimum", "next_power_of_2", "num_programs", "program_id", "range", "sqrt", "static_range", "sum", "where",
    "zeros",
}  # fmt: skip
_PYTHONS = {"float", "int", "len", "max", "min", "range"}
_METHODS = {"cast", "to"}


class Rounds:
    """A loop that was entered: how often it went round, and for how many turns nothing has changed."""

    __slots__ = ("_idle", "_last", "count", "head", "names")

    def __init__(self, head: str, names: tuple[str, ...]) -> None:
        """Begin with the names that the condition depends on; none where memory is among it."""
        self.head, self.names, self.count = head, names, 0
        self._last: tuple[Hashable, ...] = ()
        self._idle = 0

    def turn(self, variables: Mapping[str, KernelValue]) -> None:
        """Count a turn; raises Endless where nothing has changed for ENOUGH of them."""
        self.count += 1
        semantic.builder.watch.step()
        if not self.names:
            return
        now = tuple(_content(variables[name]) if name in variables else None for name in self.names)
        self._idle = self._idle + 1 if now == self._last else 0
        self._last = now
        if self._idle >= ENOUGH and not semantic.builder.watch.is_rehearsal:
            raise self._endless(variables)

    def _endless(self, variables: Mapping[str, KernelValue]) -> Endless:
        watch = semantic.builder.watch
        values = self.values(variables)
        return Endless(
            f"{Endless.kind}: program {semantic.builder.grid_idx} of {watch.kernel} never leaves it",
            at(place()),
            f"  it went round {self.count} times, and its condition still holds{values and f', with {values}'}",
            "  none of what the condition depends on changes: assign to it in each turn",
        )

    def values(self, variables: Mapping[str, KernelValue]) -> str:
        """Return "start = 0, n = 64": the numbers that the condition depends on, or its own variables."""
        read = ast.walk(ast.parse(f"{self.head}: pass"))
        names = self.names or sorted({node.id for node in read if isinstance(node, ast.Name)})
        numbers = ((name, _number(variables.get(name))) for name in names)
        return ", ".join(f"{name} = {number}" for name, number in numbers if number)


def rounds(head: str, names: tuple[str, ...]) -> Rounds:
    """Return the counter of a loop that is entered."""
    return Rounds(head, names)


def went_round(counted: Rounds, variables: Mapping[str, KernelValue]) -> None:
    """Count a turn of a loop."""
    counted.turn(variables)


def _content(value: KernelValue) -> Hashable:
    """Return what is equal for equal values, to the bit; of what may change within, nothing is."""
    if isinstance(value, tl.tensor):
        return value.type.name, value.handle.data.tobytes()
    return (type(value), value) if isinstance(value, (bool, int, float, str)) else object()


def _number(value: KernelValue) -> str:
    if isinstance(value, tl.tensor):
        return str(value.handle.data.item()) if value.handle.data.size == 1 and not value.dtype.is_ptr() else ""
    return str(value) if isinstance(value, (bool, int, float)) else ""


def where(frame: FrameType | None) -> Said:
    """Return the place of a kernel that runs in this frame or calls it, and how often its loop went round."""
    while frame is not None and not _counters(frame):
        frame = frame.f_back
    if frame is None:
        return Said("")
    counted = _counters(frame)[-1]
    values = counted.values(frame.f_locals)
    here = at(((frame.f_code, frame.f_lineno),))
    return joined([here, f"  in round {counted.count + 1:,} of `{counted.head}`{values and f', with {values}'}"])


def _counters(frame: FrameType) -> list[Rounds]:
    """Return the counters of the loops around the line of a frame, the innermost last."""
    if ROUNDS not in "".join(frame.f_code.co_varnames):
        return []
    named = [name for name in frame.f_locals if name.startswith(ROUNDS)]
    spans = {name: [int(line) for line in name.removeprefix(ROUNDS).split("_")[1:]] for name in named}
    around = [name for name, (first, last) in spans.items() if first <= frame.f_lineno <= last]
    return [frame.f_locals[name] for name in sorted(around, key=lambda name: spans[name])]


def depends_on(loop: ast.While, known: Mapping[str, Any], local: set[str]) -> tuple[str, ...]:
    """Return the variables that decide how often a loop turns; none where memory, or something unknown, does too.

    known: the globals of the kernel.
    local: the names of its variables.
    """
    found, todo = set[str](), [loop.test]
    if any(not isinstance(target, ast.Name | ast.Tuple) for target in _targets(loop)):
        return ()
    while todo:
        expression = todo.pop()
        if not all(_is_pure(part, known, local) for part in ast.walk(expression)):
            return ()
        for name in {part.id for part in ast.walk(expression) if isinstance(part, ast.Name)} & local - found:
            found.add(name)
            todo += _deciding(name, loop)
    return tuple(sorted(found))


def _targets(loop: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            yield from node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
            yield node.target


def _deciding(name: str, loop: ast.While) -> Iterator[ast.expr]:
    """Yield the expressions of a loop's body that decide on the value of a name."""
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.While, ast.For)):
            continue
        if name not in {
            part.id for target in _targets(node) for part in ast.walk(target) if isinstance(part, ast.Name)
        }:
            continue
        if isinstance(node, (ast.If, ast.While)):
            yield node.test
        elif isinstance(node, ast.For):
            yield node.iter
        elif node.value is not None:
            yield node.value


def _is_pure(node: ast.AST, known: Mapping[str, Any], local: set[str]) -> bool:
    """Return whether an expression's value depends on nothing but its operands."""
    if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Starred | ast.Await | ast.ListComp):
        return False
    if not isinstance(node, ast.Call):
        return True
    match node.func:
        case ast.Name(id=name):
            return name in _PYTHONS and name not in local and name not in known
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module not in local:
            of = known.get(module)
            return isinstance(of, ModuleType) and of.__name__.startswith("triton") and name in _FROM_TRITON
        case ast.Attribute(attr=name):
            return name in _METHODS
    return False
