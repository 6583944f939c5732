"""What rewritten kernels call: Python's syntax with the meaning that Triton's compiler gives it.

See `visit_Assign`, `visit_For`, `visit_BoolOp` ... in triton/compiler/code_generator.py, which
these follow.
"""

import functools
import operator
from collections.abc import Iterator
from types import GeneratorType
from typing import NoReturn

import numpy as np
import torch
import triton.language as tl

from assignment.whose import theirs

from . import calls, constants
from .elementwise import Handle
from .faults import Endless, at, is_ours, place
from .kernel_values import KernelFunction, KernelValue, Operand, static
from .numerics import numpy_type
from .semantic import semantic
from .triton_private import (
    HAS_RETURN_TYPES,
    IS_CLOSE_TO_PYTHON,
    IS_CLOSER_TO_PYTHON,
    ConstexprFunction,
    InterpretedFunction,
)
from .variables import decided, truth

tensor = tl.tensor


def bind(value: KernelValue) -> KernelValue:
    """Return what an assignment binds a name to: numbers become tensors."""
    if isinstance(value, tensor):
        return value
    if isinstance(value, tuple):
        bound = [bind(v) for v in value]
        make: KernelFunction = type(value)
        return make(*bound) if hasattr(value, "_fields") else tuple(bound)
    value = static(value)
    if isinstance(value, (bool, int, float)):
        return theirs(semantic.to_tensor, value)
    if value is None or isinstance(value, (tl.dtype, tl.core.base_value)):
        return value
    raise TypeError(f"cannot convert {_shown(value)} to tensor: a variable holds tensors, numbers, tuples or dtypes")


Shape = bool | tuple["Shape", ...]  # of what is assigned to: for each name whether it is annotated as tl.constexpr


def bound(value: KernelValue, shape: Shape) -> KernelValue:
    """Return what an assignment binds names to; older compilers ignore elements that have no name."""
    if not isinstance(shape, tuple):
        return constant(value) if shape else bind(value)
    if not IS_CLOSER_TO_PYTHON:
        value = value[: len(shape)] if isinstance(value, tuple) else bind(value)
        return tuple(map(bound, value, shape)) if isinstance(value, tuple) and len(value) == len(shape) else value
    if not isinstance(value, (tuple, tl.tuple)):
        raise TypeError("cannot unpack non-iterable value")
    if len(value) != len(shape):
        few = f"not enough values to unpack (expected {len(shape)}, got {len(value)})"
        raise ValueError(few if len(value) < len(shape) else f"too many values to unpack (expected {len(shape)})")
    return tuple(bound(part, inner) for part, inner in zip(value, shape, strict=True))


def constant(value: KernelValue) -> KernelValue:
    """Return what a name annotated as tl.constexpr is bound to.

    With a tensor in it, older compilers can do nothing; to newer ones it is the tensor.
    """
    if IS_CLOSE_TO_PYTHON:
        return tuple(map(constant, value)) if type(value) is tuple else static(value)
    return _Constant(value) if isinstance(value, tensor) else static(value)


class _Constant(tl.constexpr):
    """A tensor that is annotated as tl.constexpr: only its methods can be used."""

    def __getattr__(self, name: str) -> KernelValue:
        return theirs(getattr, self.value, name)


def value_of(value: tl.constexpr | tl.dtype | bool | int | float | str) -> KernelValue:
    """Evaluate `x.value`: here constants are plain Python values already."""
    return value if isinstance(value, (bool, int, float, str, tl.dtype)) else value.value


def type_of(value: KernelValue) -> tl.core.base_type:
    """Evaluate `x.type`."""
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return tl.constexpr_type(value) if is_plain else value.type  # type: ignore[union-attr]


def element(container: KernelValue, value: KernelValue, use: str) -> KernelValue:
    """Return an element, or a field: one of a constant tuple is no constant, and of no use in some places."""
    if isinstance(container, tl.constexpr) and use in _NO_ELEMENTS:
        raise TypeError(_NO_ELEMENTS[use].format(value=value, kind=type(value)))
    return value


_NO_CONSTANT = "Cannot evaluate f-string containing non-constexpr conversion values, found conversion of type {kind}"
_NO_ELEMENTS = {  # in the compiler's words
    "bound": "{value} used as tl.static_range start value is not a constexpr",
    "text": _NO_CONSTANT,
    **({"return": "{kind} object has no attribute 'type'"} if HAS_RETURN_TYPES else {}),
}


def noted(value: KernelValue, where: str) -> KernelValue:
    """Return the value of an expression, noted if it is a constant."""
    constants.note(calls.current().constants[-1], where, value)
    return value


def noted_arm(condition: KernelValue, where: str) -> KernelValue:
    """Return the condition of an `if`, whose arm is noted if it can be told."""
    if not isinstance(condition, tensor) or condition.handle.data.size == 1:
        constants.note_arm(calls.current().constants[-1], where, bool(_plain_truth(condition)))
    return condition


def _plain_truth(condition: KernelValue) -> KernelValue:
    return condition.handle.data.item() if isinstance(condition, tensor) else static(condition)


def loop(*bounds: KernelValue) -> Iterator[tl.tensor]:
    """Yield what `range` gives in a kernel: scalar tensors, int32 unless a bound is wider."""
    given = [static(bound) for bound in ((0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3])]
    if is_reversed := not isinstance(given[2], tensor) and given[2] < 0:
        given[2] = -given[2]
    tensors = [theirs(semantic.to_tensor, bound) for bound in given]
    for bound in tensors:
        if not bound.dtype.is_int():
            raise TypeError(f"for loop bounds and step must all be ints, got {bound.dtype}")
        if bound.handle.data.size != 1:
            raise TypeError(f"for loop bounds and step must be scalars, got {bound.type}")
    ty = theirs(semantic.integer_promote_impl, tensors[0].dtype, tensors[1].dtype)
    ty = theirs(semantic.integer_promote_impl, ty, tensors[2].dtype)
    first, last, step = (_counted(bound, ty) for bound in tensors)
    if step <= 0:
        told = f"goes from {first} to {last} by {step}: only a step that is known at compile time may be negative"
        if first < last:
            raise Endless(f"{Endless.kind}: it {told}", at(place()))
        calls.current().warn(f"no turn is taken by a loop that {told}\n{at(place())}", (place(), "range"))
        return
    dtype = numpy_type(ty)
    for i in range(first, last, -step if is_reversed else step):
        yield tensor(Handle(np.array([i]).astype(dtype), ty), ty)


def _counted(bound: tl.tensor, ty: tl.dtype) -> int:
    """Return a bound of a loop over this type as it counts: extended by that type's sign, and compared with one."""
    value, own, all_ = int(bound.handle.data.item()), 1 << bound.dtype.int_bitwidth, 1 << ty.int_bitwidth
    extended = value % own - (own if ty.is_int_signed() and 2 * (value % own) >= own else 0)
    counted = (extended + all_ // 2) % all_ - all_ // 2
    if counted != value:
        where, is_bool = place(), bound.dtype.is_bool()
        given, remedy = ("True", "an int32: 1 if ... else 0") if is_bool else (f"{value} in {bound.dtype}", "an int64")
        calls.current().warn(
            f"{given} counts as {counted} in the range of this loop, whose bounds have signs\n{at(where)}\n"
            f"  write {remedy}",
            (where, "range"),
        )
    return counted


def turns(values: GeneratorType | tl.range | tl.static_range) -> GeneratorType | tl.range | tl.static_range:
    """Return what a `for` iterates over."""
    if not isinstance(values, (GeneratorType, tl.range, tl.static_range)):
        refused(ITERATORS)
    return values


def all_of(*operands: Operand) -> KernelValue:
    """Evaluate `a and b`: all operands that are not known before the launch."""
    return _fold(operands, "logical_and", decisive=False)


def any_of(*operands: Operand) -> KernelValue:
    """Evaluate `a or b`, likewise."""
    return _fold(operands, "logical_or", decisive=True)


def _fold(operands: tuple[Operand, ...], method: str, decisive: bool) -> KernelValue:
    value, tensors = None, []
    for operand in operands:
        value = static(theirs(operand))
        if isinstance(value, tensor):
            tensors.append(value)
        elif bool(value) is decisive:
            return value
    if not tensors:
        return value
    result = tensors.pop()
    while tensors:
        result = getattr(tensors.pop(), method)(result)
    return result


def compared(left: KernelValue, names: tuple[str, ...], *others: Operand) -> KernelValue:
    """Evaluate `a < b < c`, each operand once: as `a < b and b < c`."""

    def compare(name: str, other: Operand) -> KernelValue:
        nonlocal left
        right = theirs(other)
        operands = (static(left), static(right)) if name.startswith("is_") else (left, right)
        left = right
        return theirs(getattr(operator, name), *operands)

    pairs = zip(names, others, strict=True)
    return _fold(tuple(functools.partial(compare, *pair) for pair in pairs), "logical_and", decisive=False)


def filtered(condition: KernelValue) -> bool:
    """Return whether an element stays in a list: the compiler takes a tensor for true."""
    if isinstance(condition, tensor):
        raise TypeError("the `if` of a list must be known at compile time: use tl.where, or a tl.constexpr")
    return bool(static(condition))


def negate(value: KernelValue) -> KernelValue:
    """Evaluate `not value`."""
    return value.__not__() if isinstance(value, tensor) else not static(value)


def choose(
    condition: KernelValue, if_true: Operand, if_false: Operand, true_is_plain: bool, false_is_plain: bool
) -> tl.tensor:
    """Evaluate `a if condition else b`.

    Numbers become tensors when the condition is one, and both must have one type. The operand that
    is not chosen is evaluated, too, if it is plain: free of effects and of cost.
    """
    if not isinstance(condition, tensor):
        return theirs(if_true if decided(condition) else if_false)
    taken = truth(condition)
    if_true_is, if_false_is = (
        _operand(theirs(way)) if is_taken or is_plain else None
        for way, is_taken, is_plain in ((if_true, taken, true_is_plain), (if_false, not taken, false_is_plain))
    )
    if if_true_is is not None and if_false_is is not None and if_true_is.type != if_false_is.type:
        types = f"{if_true_is.type} and {if_false_is.type}"
        text = "Ternary expression with dynamic condition has inconsistent types"
        raise TypeError(f"{text} {types}")
    return if_true_is if taken else if_false_is


def _operand(value: KernelValue) -> tl.tensor:
    value = static(value)
    if isinstance(value, (bool, int, float)):
        return theirs(semantic.to_tensor, value)
    if not isinstance(value, tensor):
        raise TypeError(f"cannot convert {_shown(value)} to tensor")
    return value


def _shown(value: KernelValue) -> str:
    if isinstance(value, InterpretedFunction):
        return f"the function {value.__name__}"
    return f"{str(value)[:80]} of type {type(value)}"


def check(condition: Operand, message: KernelValue) -> None:
    """Evaluate `assert`: compiled away unless the launch asks for debug=True."""
    if semantic.builder.options.debug and not truth(theirs(condition)):
        raise AssertionError(message)


def members(values: tuple[KernelValue, ...] | tl.tuple) -> tuple[KernelValue, ...] | tl.tuple:
    """Return what a list comprehension iterates over."""
    if not isinstance(values, (tuple, tl.tuple)):
        raise TypeError("only tuple comprehensions are supported")
    return values


def collected(values: list[KernelValue]) -> tuple[KernelValue, ...]:
    """Return a list that a kernel makes, as a tuple: Triton has no lists."""
    return tuple(values)


def formatted(value: KernelValue, is_constant: bool) -> KernelValue:
    """Return a value to be put in an f-string; a type must be one of tl.constexpr, and so must a tuple's own object."""
    is_boxed, value = isinstance(value, tl.constexpr), static(value)
    is_tuple = isinstance(value, (tuple, tl.tuple)) and (IS_CLOSE_TO_PYTHON or not is_constant)
    is_type = isinstance(value, tl.dtype) and not is_constant
    if isinstance(value, tensor) or (not is_boxed and (is_type or is_tuple)):
        raise TypeError(_NO_CONSTANT.format(kind=type(value)))
    return value


def maximum(*args: KernelValue) -> KernelValue:
    """Evaluate Python's `max` in a kernel."""
    return static(theirs(tl.core.builtin_max, *args))


def minimum(*args: KernelValue) -> KernelValue:
    """Evaluate Python's `min` in a kernel."""
    return static(theirs(tl.core.builtin_min, *args))


def callee(function: KernelFunction) -> KernelFunction:
    """Return what a kernel calls in place of `function`.

    That is any function of Triton's, and Python's own functions on constants, as when it is
    compiled.
    """
    if function is getattr:
        return _attribute
    if function is isinstance:
        return _is_instance
    if function is hasattr:
        return _has_attribute
    if function is float or function is int:
        return functools.partial(_number, function)
    if function is len or function is list:
        return functools.partial(_of_value, function)
    if function is tl.constexpr:
        return static
    if isinstance(function, ConstexprFunction) and _is_triton_code(function.fn):
        return functools.partial(_of_constants, function)
    if isinstance(function, InterpretedFunction) or _is_triton_code(function):
        return function
    if isinstance(function, type) and (hasattr(function, "_fields") or function.__module__.startswith("triton.")):
        return function
    if getattr(function, "__triton_aggregate__", False) or any(function is known for known in _PYTHONS):
        return function
    return functools.partial(_on_constants, function)


# CodeGenerator.builtin_namespace; others are replaced
_PYTHONS = (len, list, float, int, isinstance, hasattr)


def _is_triton_code(function: KernelFunction) -> bool:
    """Return whether a function or a method is written in Triton's or the simulator's files."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code is not None and is_ours(code.co_filename)


def _number(ty: type[int] | type[float], *args: float | str | tl.tensor, **kwargs: KernelValue) -> KernelValue:
    """Evaluate `float(x)` or `int(x)`."""
    if any(isinstance(value, tensor) for value in args):
        raise TypeError(f"{ty.__name__}() argument must be a string or a real number, not 'tensor': write x.to(dtype)")
    return theirs(ty, *map(static, args), **kwargs)


def _of_value(function: KernelFunction, *args: KernelValue) -> KernelValue:
    """Call Python's own `len` or `list`, to which a constant is its value."""
    return theirs(function, *map(static, args))


def _of_constants(function: KernelFunction, *args: KernelValue, **kwargs: KernelValue) -> KernelValue:
    """Call a function of Triton's that Python runs: triton.cdiv or triton.next_power_of_2."""
    if any(isinstance(value, tensor) for value in (*args, *kwargs.values())):
        name = function.__name__
        raise TypeError(f"Did you forget to add @triton.jit ? {name} takes constants, not tensors: call tl.cdiv")
    return theirs(function, *args, **kwargs)


def _root(function: KernelFunction | type) -> str:
    return str(getattr(function, "__module__", None) or "builtins").partition(".")[0]


WHOSE_TUPLE = "whether a tuple is a constant or Triton's own depends on where it was made: ask for its length"


def _attribute(value: KernelValue, name: str | tl.constexpr, *default: KernelValue) -> KernelValue:
    if static(name) == "handle":
        unsupported("handle")
    if default and not _has_attribute(value, name):
        return default[0]
    return theirs(getattr, static(value), static(name))


def _is_instance(value: KernelValue, kind: type | tl.constexpr) -> bool:
    """Answer as the compiler does: to Python's own functions a constant is its value."""
    kind = static(kind)
    if not isinstance(kind, type):
        raise TypeError(f"isinstance() takes one type in a kernel, got {kind}: write `or` between several")
    if kind is tl.tuple and type(value) is tuple:
        raise TypeError(WHOSE_TUPLE)
    return isinstance(static(value), kind)


def _has_attribute(value: KernelValue, name: str | tl.constexpr) -> bool:
    """Answer as the compiler does, for which constants and functions are other objects than here."""
    if static(name) == "type" and type(value) is tuple:
        raise TypeError(WHOSE_TUPLE)
    is_function = isinstance(value, InterpretedFunction)
    return (is_function and static(name) == "type") or theirs(hasattr, static(value), static(name))


def _on_constants(function: KernelFunction, *args: KernelValue, **kwargs: KernelValue) -> KernelValue:
    """Call a function that is not Triton's.

    The compiler calls it while compiling, so it takes and returns constants alone.
    """
    values = [static(value) for value in (*args, *kwargs.values())]
    name = getattr(function, "__name__", repr(function))
    if not all(_is_constant(value) for value in values):
        raise TypeError(f"a kernel cannot call {name}, which is no function of Triton's; put @triton.jit before it")
    theirs(hash, function)  # of which Triton asks what the function refers to
    key = function, repr(args), repr(kwargs)
    if key not in _called_before:
        _called_before[key] = theirs(function, *args, **kwargs)
    result = _called_before[key]
    if not _is_constant(result):
        raise TypeError(f"a kernel cannot use what {name} returns, a {type(result).__name__}")
    return result


_called_before: dict[tuple[KernelFunction, str, str], KernelValue] = {}


def _is_constant(value: KernelValue) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    is_library = _root(type(value)) in ("torch", "numpy") and not isinstance(
        value, (torch.dtype, torch.finfo, torch.iinfo)
    )
    return not isinstance(value, tensor) and not is_library


def show(*args: KernelValue) -> None:
    """Evaluate Python's `print` in a kernel."""
    tl.device_print(*args)


def refused(words: str) -> NoReturn:
    """Raise the compiler's own message."""
    raise TypeError(words)


RETURN_IN_LOOP = "Cannot have `return` statements inside `while` or `for` statements in triton."
ITERATORS = "Only `range` and `static_range` iterators are currently supported"


def undefined(name: str) -> NoReturn:
    """Raise for a name that is not bound, or that the compiler ignores as a parameter."""
    raise NameError(f"{name} is not defined")


def unsupported(code: str) -> NoReturn:
    """Raise for Python syntax that the compiler does not support."""
    raise TypeError(f"Triton's compiler does not support `{code}` in a kernel")


DEBUGGED: list[bool] = []  # not empty where kernels may stop


def stop() -> None:
    """Refuse `breakpoint()` outside of a debugger."""
    raise NameError(
        "breakpoint() needs a debugger: run the command that the report calls debug, uv run pytest --inline --pdb …; "
        "Triton's compiler knows no breakpoint, so take it out in the end"
    )


def let_stop() -> None:
    """Let `breakpoint()` stop in kernels that are built from now on, for a debugger."""
    DEBUGGED.append(True)


def unknown(name: str) -> NoReturn:
    """Raise for a Python builtin that the compiler does not know."""
    raise NameError(f"{name} is not defined: of Python's functions Triton's compiler knows {', '.join(BUILTINS)}")


BUILTINS = (*(function.__name__ for function in _PYTHONS), "range", "getattr", "print", "min", "max")


def forbidden_global(name: str) -> NoReturn:
    """Raise for a global that the compiler refuses to read."""
    raise NameError(
        f"Cannot access global variable {name} from within @jit'ed function: kernels can only use globals that are "
        f"instantiated as constexpr ({name} = triton.language.constexpr(...)); or pass it as an argument"
    )
