"""The labels of a PyTorch operation's results, given those of its operands.

Moving values, casting them and scaling them by constants keeps their labels. A sum of what kernels
wrote is a SUM, and rowsum(A ∘ B), where the call may need it, is DELTA. Anything else that depends
on data is computation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_map

from .labels import CONSTANT, DELTA, FIRST_SOURCE, FOREIGN, FRESH, INPUT, KERNEL, PRODUCT, STALE, SUM, Memory

Labels = torch.Tensor  # uint8, in the shape of the values
Rule = Callable[..., Any]

FRESH_MEMORY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize")
_SHAPED = tuple(  # of a tensor that they take, only its shape counts
    f"{form}{name}{end}"
    for name in ("zeros", "ones", "full", "rand", "randn", "randint")
    for form, end in (("new_", ""), ("", "_like"))
)
_OVERWRITTEN = ("fill", "zero", "uniform", "normal", "random", "bernoulli", "exponential")
_SAME_SHAPE = ("clone", "_to_copy", "copy", "lift_fresh", "lift_fresh_copy", "contiguous", "positive", "alias_copy")
_MOVED = (  # run on the labels as on the values
    *("cat", "stack", "constant_pad_nd", "index_select", "gather", "index", "take", "flip"),
    *("roll", "repeat"),
    *("repeat_interleave", "tril", "triu", "slice_backward", "select_backward"),
    *("slice_scatter", "select_scatter"),
    *("diagonal_scatter", "as_strided_scatter", "index_put", "_index_put_impl", "index_copy"),
    *("index_fill", "scatter"),
    *("masked_fill", "masked_scatter", "masked_select", "where", "rot90", "diag_embed"),
    *("expand_copy", "view_copy"),
    *("permute_copy", "transpose_copy", "slice_copy", "select_copy", "narrow_copy"),
    *("unbind_copy", "split_copy"),
    *("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d"),
    *("_pad_circular", "block_diag"),
)
# arguments that say which, not what
_CHOOSING = ("index", "indices", "mask", "condition", "repeats", "source_mask")
_ADDING = ("accumulate", "reduce")  # arguments that turn a move into a sum
# arguments that may be a number instead of a tensor
NUMBERS = ("value", "self", "other", "fill_value")
_ADDED_UP = (  # moves that may put several values in one place
    *("index_put", "_index_put_impl", "index_add", "scatter_add"),
    *("scatter", "embedding_dense_backward"),
    *("unfold_backward", "replication_pad1d_backward", "reflection_pad1d_backward", "cumsum"),
)
_SCALED = ("mul", "div", "multiply", "divide", "true_divide", "neg", "negative")
_SUMMED = ("sum", "mean", "nansum")
_ADDED = ("add", "sub", "rsub")
_PRODUCTS = ("mm", "bmm", "mv", "dot", "matmul", "addmm", "addmv", "baddbmm", "vdot")
_CLEANING = (  # what an anxious but honest wrapper may do to what it has: for staff to judge
    *("where", "masked_fill", "nan_to_num", "clamp", "clamp_min", "clamp_max", "isnan", "isinf"),
    *("isfinite", "eq", "ne"),
    *("lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "bitwise_not"),
    *("bitwise_and", "bitwise_or"),
    *("any", "all", "maximum", "minimum"),
)
# labels that scaling leaves as they are
_KEPT = {CONSTANT, INPUT, KERNEL, SUM, DELTA, FRESH, STALE}
_SUMMANDS = {CONSTANT, KERNEL, SUM, FRESH}  # what a launch of this call stored, or a constant
_FACTORS = {CONSTANT, INPUT, KERNEL, SUM}


@dataclass(frozen=True)
class Computed:
    """Values that PyTorch computed from data; whether it is for staff to judge."""

    is_doubt: bool = False


class Known(Protocol):
    """What is known about memory."""

    def memory(self, tensor: torch.Tensor) -> Memory | None:
        """Return the labels of a tensor; None if there is nothing to track."""

    def is_doubt(self, label: int) -> bool:
        """Return whether values with this label are for staff to judge."""


@dataclass(frozen=True)
class Operation:
    """A call of an operation: its name and its arguments by name.

    The name is without "aten::" and the "_" of an in-place form.
    """

    name: str
    arguments: dict[str, Any]
    known: Known
    result: torch.Tensor  # the first
    max_delta: int  # elements that a result of rowsum(A ∘ B) may have in this call
    has_short_rows: bool = False  # rows have one element: A ∘ B is its own sum

    def labels(self, tensor: torch.Tensor) -> Labels:
        memory = self.known.memory(tensor)
        return memory.of(tensor) if memory else torch.full((), CONSTANT, dtype=torch.uint8).expand(tensor.shape)

    def of(self, value: Any) -> set[int]:
        """Return all labels of the tensors in an argument."""
        found = [(self.known.memory(tensor), tensor) for tensor in _tensors(value)]
        return {label for memory, tensor in found if memory for label in memory.labels_in(tensor)}

    def is_of_floats(self) -> bool:
        """Return whether it computes with numbers as such: not with their bits, nor modulo."""
        return self.result.is_floating_point() and all(
            tensor.is_floating_point() or self.of(tensor) <= {CONSTANT} for tensor in _tensors(self.arguments)
        )


def derive(
    operation: Operation, call: Callable[..., Any], args: Any, kwargs: Any
) -> Labels | list[Labels] | int | Computed:
    """Return the labels of an operation's result, or of each of several.

    `call(*args, **kwargs)` is the operation itself, to be run on labels.
    """
    name = operation.name
    if name in FRESH_MEMORY:
        return FRESH
    present = operation.of(operation.arguments)
    others = operation.of({key: value for key, value in operation.arguments.items() if key != "self"})
    if ((name in _SHAPED or name in _OVERWRITTEN) and others <= {CONSTANT}) or present <= {CONSTANT}:
        return CONSTANT
    if name in _SAME_SHAPE:
        source = _tensors(operation.arguments.get("src", operation.arguments))[0]
        is_cast = source.is_floating_point() == operation.result.is_floating_point()
        # `!= 0`, a whole part, or bits as a number
        return operation.labels(source) if is_cast else Computed()
    rules: list[tuple[tuple[str, ...], Rule]] = [(_MOVED, _moved), (_ADDED_UP, _added_up), (_SCALED, _scaled)]
    for names, rule in [*rules, (_SUMMED, _summed), (_ADDED, _added), (_PRODUCTS, _multiplied)]:
        if name in names and (found := rule(operation, call, args, kwargs)) is not None:
            return found
    is_clean = all((label < FIRST_SOURCE and label != FOREIGN) or operation.known.is_doubt(label) for label in present)
    return Computed(is_doubt=is_clean and name in _CLEANING)


def _moved(operation: Operation, call: Callable[..., Any], args: Any, kwargs: Any) -> Labels | list[Labels] | None:
    choosing = [value for key, value in operation.arguments.items() if key in _CHOOSING]
    if operation.of(choosing) - {CONSTANT} or any(operation.arguments.get(key) for key in _ADDING):
        return None
    chosen = {id(tensor) for tensor in _tensors(choosing)}

    def twin(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if id(value) in chosen else operation.labels(value).clone()
        return value

    args, kwargs = tree_map(twin, (args, kwargs))
    names = list(operation.arguments)
    args = [CONSTANT if _is_number(n, a) else a for n, a in zip(names, args, strict=False)]
    kwargs = {key: CONSTANT if _is_number(key, value) else value for key, value in kwargs.items()}
    if "out" in kwargs:
        kwargs["out"] = torch.empty(0, dtype=torch.uint8)
    try:
        result = call(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):  # it does not take labels: then it has computed something
        return None
    return list(result) if isinstance(result, list | tuple) else result


def _added_up(operation: Operation, *_: Any) -> int | None:
    if operation.arguments.get("reduce", "add") != "add" or not operation.is_of_floats():
        return None
    values = {key: value for key, value in operation.arguments.items() if key not in _CHOOSING}
    choosing = [value for key, value in operation.arguments.items() if key in _CHOOSING]
    return SUM if operation.of(values) <= _SUMMANDS and operation.of(choosing) <= {CONSTANT} else None


def _is_number(name: str, value: Any) -> bool:
    return name in NUMBERS and isinstance(value, (bool, int, float))


def _scaled(operation: Operation, *_: Any) -> Labels | int | None:
    if operation.arguments.get("rounding_mode") or not operation.is_of_floats():
        return None
    operands = [value for key, value in operation.arguments.items() if key in ("self", "other")]
    varying = [value for value in operands if operation.of(value) - {CONSTANT}]
    if len(varying) == 2 and operation.name in ("mul", "multiply"):
        same_size = all(value.numel() == operation.result.numel() for value in varying)
        if not same_size or not operation.of(varying) <= _FACTORS:
            return None
        return DELTA if operation.has_short_rows and operation.result.numel() <= operation.max_delta else PRODUCT
    if len(varying) != 1 or (varying[0] is not operands[0] and operation.name not in ("mul", "multiply")):
        return None
    labels = operation.labels(varying[0])
    kept = _KEPT | {label for label in operation.of(varying) if label >= FIRST_SOURCE or label == FOREIGN}
    return labels.expand(operation.result.shape) if operation.of(varying) <= kept else None


def _summed(operation: Operation, *_: Any) -> int | None:
    present = operation.of(operation.arguments)
    if not operation.is_of_floats():
        return None
    if present <= _SUMMANDS:
        return SUM
    return (
        DELTA if present - {CONSTANT} <= {PRODUCT, DELTA} and operation.result.numel() <= operation.max_delta else None
    )


def _added(operation: Operation, *_: Any) -> Labels | int | None:
    operands = [operation.arguments[key] for key in ("self", "other")]
    if any(isinstance(value, int | float) and value == 0 for value in operands):
        return next(operation.labels(value) for value in operands if isinstance(value, torch.Tensor))
    present = operation.of(operation.arguments)
    if not operation.is_of_floats():
        return None
    if DELTA in present:  # rowsum(A ∘ B), piece by piece
        return DELTA if present <= {DELTA, CONSTANT, FRESH} else None
    return SUM if present <= _SUMMANDS else None


def _multiplied(operation: Operation, *_: Any) -> int | None:
    *added, left, right = _tensors(operation.arguments)
    factors, bias = [left, right], operation.of(added)
    if not operation.is_of_floats():
        return None
    if _has_constant(operation, factors) and operation.of(factors) | bias <= _SUMMANDS:
        return SUM
    is_small = operation.result.numel() <= operation.max_delta and bias <= {CONSTANT}
    if is_small and operation.of(factors) == {PRODUCT, CONSTANT} and _has_constant(operation, factors):
        return DELTA  # (A ∘ B) @ ones
    is_row_by_row = operation.result.numel() * left.shape[-1] == left.numel() == right.numel()
    return DELTA if is_small and is_row_by_row and operation.of(factors) <= _FACTORS else None


def _has_constant(operation: Operation, factors: list[torch.Tensor]) -> bool:
    return any(operation.of(factor) <= {CONSTANT} for factor in factors)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in _tensors(item)] if isinstance(value, list | tuple) else []
