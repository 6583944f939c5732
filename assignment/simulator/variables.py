"""Variables assigned in loops or in `if`s on tensors: Triton's compiler gives each one type.

It compiles both branches of an `if` that it cannot decide, and the body of a loop once. A kernel
runs here on one branch at a time, so the other branch's effect is known for its names (see
`scopes`), and for its types once a program has taken it. See `visit_then_else_blocks` and
`_verify_loop_carried_variable` in triton/compiler/code_generator.py.
"""

import re
import sys
from collections.abc import Hashable
from types import CodeType, NoneType
from typing import NoReturn

import triton.language as tl

from assignment.whose import theirs

from .kernel_values import KernelValue
from .reductions import BlockTruthError
from .semantic import semantic
from .triton_private import IS_CLOSER_TO_PYTHON

tensor = tl.tensor
_CONDITIONS = (bool, int, NoneType)
_UNBOUND = object()
OF_LOOPS: set[str] = set()  # names that some loop's body alone binds
_FORGOTTEN = {
    "if": "a name that is assigned in one branch alone of an `if` on a tensor is gone after it: assign it before it",
    "loop": "a name that is first assigned in a loop does not exist after it, nor in its next turn: give it a value of "
    "the same shape and type before the loop",
}


def truth(condition: KernelValue) -> bool:
    """Return the value of a condition: a tensor of one element, or a constant."""
    if not isinstance(condition, tensor):
        return bool(condition)
    data = condition.handle.data
    if data.size != 1:
        raise BlockTruthError(f"a block of shape {data.shape} has no single truth value; use & | or tl.where")
    return bool(data.item())


def decided(condition: KernelValue) -> bool:
    """Return the condition of an `if`: the compiler takes only some types of constants."""
    if isinstance(condition, tensor):
        return truth(condition)
    if isinstance(condition, tl.constexpr):
        condition = condition.value
    if type(condition) not in _CONDITIONS:
        known = ", ".join(ty.__name__ for ty in (NoneType, bool, int))
        raise TypeError(
            f"`if` conditionals can only accept values of type {{{known}}}, "
            f"not objects of type {type(condition).__name__}"
        )
    return bool(condition)


def holds(condition: KernelValue) -> bool:
    """Return the condition of a `while`."""
    if isinstance(condition, tl.condition):  # with a hint for the compiler
        condition = condition.condition
    if IS_CLOSER_TO_PYTHON and isinstance(condition, tensor) and condition.handle.data.size == 1:
        condition = theirs(semantic.cast, condition, tl.int1)
    if not isinstance(condition, tensor):
        raise TypeError("the condition of a `while` must be a tensor: the compiler cannot decide it, nor unroll a loop")
    if condition.type != tl.int1:
        raise TypeError(f"the condition of a `while` must be an int1, got {condition.type}: compare it, or reduce it")
    return truth(condition)


class Branch:
    """An `if` on a tensor: the branch that the program takes, and what was bound before it."""

    __slots__ = ("before", "names", "situation", "taken")

    def __init__(self, taken: bool, names: tuple[str, ...], variables: dict[str, KernelValue]) -> None:
        self.taken, self.names = taken, names
        self.before = {name: variables[name] for name in names if name in variables}
        is_new = len(self.before) < len(names)
        self.situation = tuple((n, kind(v)) for n, v in variables.items() if n[:2] != "__") if is_new else ()

    def __bool__(self) -> bool:
        return self.taken


def branch(value: KernelValue, names: tuple[str, ...]) -> Branch | bool:
    """Return the condition of an `if` that binds these names."""
    if not isinstance(value, tensor):
        return decided(value)
    return Branch(truth(value), names, sys._getframe(1).f_locals)


def is_runtime(way: Branch | bool) -> bool:
    """Return whether both branches are compiled."""
    return type(way) is Branch


def join(way: Branch | bool, in_both: tuple[str, ...]) -> dict[str, KernelValue]:
    """Return the names to restore after an `if`, with their values: `is_unbound` without one.

    Raises TypeError for a variable whose type depends on the branch taken. `in_both` are names that
    each branch may bind.
    """
    if type(way) is not Branch:
        return {}
    frame = sys._getframe(1)
    restored = {}
    for name in way.names:
        before, after = way.before.get(name, _UNBOUND), frame.f_locals.get(name, _UNBOUND)
        if after is before:
            continue
        if before is not _UNBOUND and _is_triton(before):
            _same_as_before(name, way.taken, before, after)
        elif name in in_both:
            _same_in_both(name, way, after, (frame.f_code, frame.f_lineno))
        else:
            restored[name] = before
            semantic.builder.watch.forgotten.add(name)
    return restored


def is_unbound(value: KernelValue) -> bool:
    """Return whether a restored name had no value."""
    return value is _UNBOUND


def _same_as_before(name: str, taken: bool, before: KernelValue, after: KernelValue) -> None:
    if kind(before) != kind(after):
        block = "then" if taken else "else"
        raise TypeError(
            f"initial value for `{name}` is of type {shown(before)}, but the {block} block redefines it as "
            f"{shown(after)}"
        )


def _same_in_both(name: str, way: Branch, after: KernelValue, where: tuple[CodeType, int]) -> None:
    if not _is_triton(after):
        raise TypeError(f"'{type(after).__name__}' object has no attribute 'type': `{name}` cannot come out of an `if`")
    known = semantic.builder.watch.branch_types.setdefault((where, name, way.situation), {})
    known[way.taken] = after
    if len(known) == 2 and kind(known[True]) != kind(known[False]):
        raise TypeError(
            f"Mismatched type for {name} between then block ({shown(known[True])}) and else block "
            f"({shown(known[False])})"
        )


class Loop:
    """The variables that are bound before a loop and assigned to in it."""

    __slots__ = ("kinds", "names", "values")

    def __init__(self, names: tuple[str, ...], values: tuple[KernelValue, ...]) -> None:
        self.names, self.values = names, values
        self.kinds = [value.type if isinstance(value, tensor) else None for value in values]


def entered(names: tuple[str, ...], values: tuple[KernelValue, ...]) -> Loop:
    """Enter a loop that assigns to these names, all of them bound."""
    return Loop(names, values)


def entered_perhaps(names: tuple[str, ...], variables: dict[str, KernelValue]) -> Loop:
    """Enter a loop that assigns to these names; some may be bound."""
    bound = tuple(name for name in names if name in variables)
    return Loop(bound, tuple(variables[name] for name in bound))


def turned(loop: Loop, values: tuple[KernelValue, ...]) -> None:
    """Raise TypeError, after a turn, for a variable whose type has changed in the loop."""
    for i, value in enumerate(values):
        if not isinstance(value, tensor) or value.type is not loop.kinds[i]:
            _carried(loop.names[i], loop.values[i], value)


def turned_perhaps(loop: Loop, variables: dict[str, KernelValue]) -> None:
    """Check the variables after a turn, for a loop entered by entered_perhaps()."""
    turned(loop, tuple(variables[name] for name in loop.names))


def is_inner(name: str, loop: Loop) -> bool:
    """Return whether only the loop binds a name."""
    return name not in loop.names


def _carried(name: str, before: KernelValue, after: KernelValue) -> None:
    if after is before:
        return
    if not _is_triton(before):
        raise TypeError(f"Loop carried variable {name} is not a triton value, but {shown(before)}")
    if kind(before) != kind(after):
        raise TypeError(
            f"Loop-carried variable {name} has initial type {shown(before)} but is re-assigned to {shown(after)} in "
            "loop! Please make sure that the type stays consistent."
        )


def returned(value: KernelValue, function: str, arguments: tuple[KernelValue, ...]) -> KernelValue:
    """Return the value of one of several `return`s.

    Raises TypeError if another one gave a different type for arguments of the same kinds.
    """
    value = value.value if isinstance(value, tl.constexpr) else value
    known = semantic.builder.watch.branch_types.setdefault((function, tuple(map(kind, arguments))), value)
    kinds = [kind(known), kind(value)]
    if kinds[0] != kinds[1] and kind(_as_tensor(known)) != kind(_as_tensor(value)):
        raise TypeError(f"Return type mismatch: {shown(known)} and {shown(value)}.")
    return value


def _as_tensor(value: KernelValue) -> KernelValue:
    return theirs(semantic.to_tensor, value) if value is None or isinstance(value, (bool, int, float)) else value


def define(name: str, value: KernelValue, variables: dict[str, KernelValue]) -> KernelValue:
    """Evaluate `name: tl.constexpr = value`."""
    if name in variables:
        already_defined(name)
    return value


def already_defined(name: str) -> NoReturn:
    """Raise for a constant whose name is bound."""
    raise ValueError(f"{name} is already defined. constexpr cannot be reassigned.")


def explain(error: NameError | AttributeError) -> None:
    """Add to the error, in the compiler's words, why a name is not bound, or a number has no method of tensors."""
    match = re.search(r"variable '(\w+)'", str(error))
    if isinstance(error, AttributeError):
        if isinstance(error.obj, int | float):
            error.args = (
                f"{error}: it is a constant, as any argument is that is 1; tl.cast({error.obj}, …) takes both",
            )
    elif match:
        in_branch, in_loop = match[1] in semantic.builder.watch.forgotten, match[1] in OF_LOOPS
        why = f": in Triton {_FORGOTTEN['if' if in_branch else 'loop']}" if in_branch or in_loop else ""
        error.args = (f"{match[1]} is not defined{why}",)


def kind(value: KernelValue) -> Hashable:
    """Return a key for the type of a variable, and for the value where it is a constant."""
    if isinstance(value, tensor):
        return value.type.name
    if isinstance(value, (tuple, tl.tuple)):
        return type(value), *map(kind, value)
    if isinstance(value, tl.core.base_value) and not isinstance(value, tl.constexpr):
        return type(value), str(getattr(value, "type", None)).partition(" object at ")[0]
    return "constexpr", type(value), repr(value)


def shown(value: KernelValue) -> str:
    """Return the type of a variable, for the reader."""
    if isinstance(value, tensor):
        return str(value.type)
    if isinstance(value, (tuple, tl.tuple)):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, (bool, int, float, str)):
        return f"constexpr[{value}]"
    return str(value) if value is None else type(value).__name__


def _is_triton(value: KernelValue) -> bool:
    """Return whether it is what the compiler calls a value; None, dtypes and functions are not."""
    return isinstance(value, (bool, int, float, str, tuple, tl.core.base_value))
