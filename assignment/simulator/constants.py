"""Constants of a kernel: which arms its `if`s take, and what expressions are that are known before a launch.

They are noted in calls that are also compiled, by the simulator here, by the compiler in
compiling/compiled_constants.py: a kernel whose constants differ would be one program where it is graded and another one
on a GPU.
"""

import ast
from collections.abc import Sequence

import triton.language as tl

from .kernel_values import KernelValue

ARM = "if"  # the kind of a condition; of expressions it is the name of their node
NOTED = (ast.Call, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.JoinedStr)
MAX_VALUES = 64  # of an expression, in a launch
MAX_TEXT = 100  # characters of a value
MAX_PACKED = 400_000  # characters, of all launches of a call
UNKNOWN = "?"  # stands for what only the launch knows

Seen = dict[str, set[str]]  # by site, what the expression there has been


def site(path: str, line: int, column: int, kind: str) -> str:
    """Return the name of a place in the source: "cs336_kernels/rmsnorm.py:12:4:if"."""
    return f"{path}:{line}:{column}:{kind}"


def note(seen: Seen, where: str, value: KernelValue) -> None:
    """Add the value of an expression, if it is a constant."""
    values = seen.setdefault(where, set())
    if len(values) < MAX_VALUES:
        values.add(_shown(value))


def note_arm(seen: Seen, where: str, taken: bool) -> None:
    """Add the arm of an `if`."""
    seen.setdefault(where, set()).add(str(taken))


def packed(launches: Sequence[Seen]) -> tuple[list[dict[str, list[str]]], list[int]]:
    """Return what launches have seen, each once, and for each launch the number of what it has seen.

    Nothing is left of what would be too long for a reply.
    """
    told = [{where: sorted(values) for where, values in seen.items()} for seen in launches]
    numbers: dict[str, int] = {}
    of_launches = [numbers.setdefault(repr(seen), len(numbers)) for seen in told]
    if sum(map(len, numbers)) + 8 * len(told) > MAX_PACKED:
        return [], []
    return [told[of_launches.index(number)] for number in range(len(numbers))], of_launches


def _shown(value: KernelValue) -> str:
    value = value.value if isinstance(value, tl.constexpr) else value
    return repr(value)[:MAX_TEXT] if type(value) in (bool, int, float, str) else UNKNOWN
