"""The labels of a PyTorch operation's results, given those of its operands.

Moving values, casting them and scaling them by constants keeps their labels. A sum of what kernels
wrote is a SUM, and rowsum(A ∘ B), where the call may need it, is DELTA. What cleans values up, or
works with parts of numbers, is a doubt, which stands for what it was before: all rules take it as
that, and what comes of it is a doubt too. Anything else that depends on data is computation.
"""

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assignment.pytorch_private import Argument, Keywords, OpOverload, tree_map
from assignment.simulator.costs import tensors_in

from . import operations
from .known_values import KnownValues
from .labels import CHOICE, CONSTANT, DELTA, FIRST_SOURCE, FOREIGN, FRESH, INPUT, KERNEL, PRODUCT, STALE, SUM

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
# run on the labels as on the values
_MOVING = """
cat stack constant_pad_nd index_select gather index take flip roll repeat repeat_interleave tril triu slice_backward
select_backward slice_scatter select_scatter diagonal_scatter index_put _index_put_impl index_copy index_fill scatter
masked_fill masked_scatter masked_select where rot90 diag_embed expand_copy view_copy permute_copy transpose_copy
slice_copy select_copy narrow_copy unbind_copy split_copy reflection_pad1d reflection_pad2d replication_pad1d
replication_pad2d _pad_circular block_diag
"""
_MOVED = frozenset(_MOVING.split())
_CHOOSING = operations.CHOOSING
_ADDING = ("accumulate", "reduce")  # arguments that turn a move into a sum
_PUTTING = ("index_put", "_index_put_impl", "index_copy", "scatter")  # values to places that a tensor names
# arguments that may be a number instead of a tensor
NUMBERS = ("value", "self", "other", "fill_value")
_SCALED = ("mul", "div", "multiply", "divide", "true_divide", "neg", "negative")
# sums: the arguments that are added up, and those that are multiplied before, of which one may vary
_SUMS: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(["sum", "mean", "nansum", "cumsum"], (("self",),)),
    **dict.fromkeys(["add", "sub", "rsub"], (("self",), ("other",))),
    "lerp": (("self", "weight"), ("end", "weight")),
    **dict.fromkeys(["addcmul", "addcdiv"], (("self",), ("tensor1", "tensor2"))),
    **dict.fromkeys(["mm", "bmm"], (("self", "mat2"),)),
    "mv": (("self", "vec"),),
    "dot": (("self", "tensor"),),
    **dict.fromkeys(["matmul", "vdot"], (("self", "other"),)),
    "addmm": (("self",), ("mat1", "mat2")),
    "addmv": (("self",), ("mat", "vec")),
    **dict.fromkeys(["baddbmm", "addbmm"], (("self",), ("batch1", "batch2"))),
    "index_add": (("self",), ("source",)),
    **dict.fromkeys(["scatter", "scatter_add", "scatter_reduce"], (("self",), ("src",), ("value",))),
    "index_put": (("self",), ("values",)),
    "segment_reduce": (("data",),),
}
_DIVISORS = {"addcdiv": "tensor2"}  # factors that must be constants
_SUMMING = ("add", "sum", "mean")  # what `reduce` may be
_PRODUCTS = ("mm", "bmm", "mv", "dot", "matmul", "addmm", "addmv", "baddbmm", "vdot")
_CLEANING = ("where", "masked_fill", "nan_to_num", "clamp", "clamp_min", "clamp_max", "maximum", "minimum")
_CHOICES = {"where": ("condition", "self", "other"), "masked_fill": ("mask", "value", "self")}
_COMPARING = (  # what may choose in a `where`, and is nothing else
    "isnan", "isinf", "isfinite", "eq", "ne", "lt", "le", "gt", "ge", "any", "all",
    "logical_not", "logical_and", "logical_or", "bitwise_not", "bitwise_and", "bitwise_or",
)  # fmt: skip
MAX_DEPTH = 8  # times that values are cleaned up, one after the other: circuits take more
# labels that scaling leaves as they are
_KEPT = {CONSTANT, INPUT, KERNEL, SUM, DELTA, FRESH, STALE, PRODUCT}
_SUMMANDS = {CONSTANT, KERNEL, SUM, FRESH}  # what a launch of this call stored, or a constant
_FACTORS = {CONSTANT, INPUT, KERNEL, SUM}
_OF_PYTORCH = {PRODUCT, SUM, DELTA}  # what it has computed
_MAY_BE_CLEANED = {PRODUCT, STALE, INPUT, DELTA, SUM, KERNEL, FRESH, CONSTANT, CHOICE}


@dataclass(frozen=True)
class Computed:
    """Values that PyTorch computed from data; of a doubt, the labels that it stands for."""

    stands_for: frozenset[int] = frozenset()
    depth: int = 0


@dataclass(frozen=True)
class OperationCall:
    """A call of an operation: its name and its arguments by name.

    The name is without "aten::" and the "_" of an in-place form.
    """

    name: str
    arguments: dict[str, Any]
    known: KnownValues  # about memory
    result: torch.Tensor  # the first
    max_delta: int  # elements that a result of rowsum(A ∘ B) may have in this call
    has_short_rows: bool = False  # rows have one element: A ∘ B is its own sum

    def labels(self, tensor: torch.Tensor) -> Labels:
        memory = self.known.memory(tensor)
        return memory.of(tensor) if memory else torch.full((), CONSTANT, dtype=torch.uint8).expand(tensor.shape)

    def of(self, value: Argument | Keywords) -> set[int]:
        """Return all labels of the tensors in an argument, of doubts what they stand for."""
        return {under for label in self._present(value) for under in self.known.stands_for(label)}

    def depth(self) -> int:
        """Return how often the operands were cleaned up at most; 0 if none is a doubt."""
        return max((self.known.depth(label) for label in self._present(self.arguments)), default=0)

    def _present(self, value: Argument | Keywords) -> set[int]:
        found = [(self.known.memory(tensor), tensor) for tensor in tensors_in(value)]
        return {label for memory, tensor in found if memory for label in memory.labels_in(tensor)}

    def unwritten(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return which of a tensor's elements depend on unwritten memory."""
        return self.known.are_unwritten(self.labels(tensor))

    def takes_apart(self) -> bool:
        """Return whether it computes with numbers that PyTorch put together of parts, or with parts of its own."""
        computing = tensors_in(self.arguments)
        if self.name in _SAME_SHAPE or self.name in _MOVED:
            computing = [tensor for tensor in computing if tensor.dtype != self.result.dtype]
        found = ((self.known.memory(tensor), tensor) for tensor in computing)
        return any(memory is not None and not memory.are_whole(tensor) for memory, tensor in found)

    def is_of_floats(self) -> bool:
        """Return whether it computes with numbers as such: not with their bits, nor modulo."""
        return self.result.is_floating_point() and all(
            tensor.is_floating_point() or self.of(tensor) <= {CONSTANT} for tensor in tensors_in(self.arguments)
        )


def derive(
    operation: OperationCall, call: OpOverload, args: Sequence[Argument], kwargs: Keywords
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
    if operation.takes_apart():
        return _doubted(operation, _derived(operation, call, args, kwargs))
    return _derived(operation, call, args, kwargs)


def _derived(
    operation: OperationCall, call: OpOverload, args: Sequence[Argument], kwargs: Keywords
) -> Labels | list[Labels] | int | Computed:
    name = operation.name
    if name in _SAME_SHAPE:
        source = tensors_in(operation.arguments.get("src", operation.arguments))[0]
        is_cast = kind_of(source.dtype) == kind_of(operation.result.dtype)
        # `!= 0`, a whole part, or bits as a number
        return operation.labels(source) if is_cast else Computed()
    rules: list[tuple[Collection[str], Rule]] = [
        (_MOVED, _moved),
        (_SCALED, _scaled),
        (_SUMS, _summed),
        (_PRODUCTS, _multiplied),
    ]
    for names, rule in rules:
        if name in names and (found := rule(operation, call, args, kwargs)) is not None:
            depth = operation.depth() if isinstance(found, int) else 0
            return Computed(frozenset([found]), depth) if depth else found
    return _cleaned(operation) if name in (*_CLEANING, *_COMPARING) else Computed()


def _doubted(operation: OperationCall, found: Labels | list[Labels] | int | Computed) -> int | Computed:
    """Return a doubt about results with these labels."""
    if isinstance(found, int):
        return _doubt({found}, operation.depth() + 1)
    under = found.stands_for if isinstance(found, Computed) else operation.of(operation.arguments)
    return _doubt(set(under), operation.depth() + 1)


def _doubt(under: set[int], depth: int) -> int | Computed:
    """Return a doubt that stands for these labels; or what was computed before, which it stays."""
    if computed := under - _MAY_BE_CLEANED:
        return min(computed)
    under = under - {CONSTANT, FRESH} or under
    return Computed(frozenset(under), depth) if depth <= MAX_DEPTH else Computed()


def of_unwritten(
    operation: OperationCall, call: OpOverload, args: Sequence[Argument], kwargs: Keywords, label: int | Computed
) -> torch.Tensor | None:
    """Return which elements of a result with this label depend on unwritten memory.

    None if there are none, or if the label says so, or is evidence anyway.
    """
    is_known = label in (FRESH, CONSTANT) or (isinstance(label, Computed) and not label.stands_for)
    if is_known or FRESH not in operation.of(operation.arguments):
        return None
    if operation.name in _SUMS:
        found = ~_as_numbers(operation, call, args, kwargs).isfinite()
    elif operations.is_pointwise(call):
        found = functools.reduce(torch.logical_or, _unwritten_operands(operation))
    else:
        found = torch.ones((), dtype=torch.bool)
    return found.expand(operation.result.shape)


def _unwritten_operands(operation: OperationCall) -> list[torch.Tensor]:
    """Return which elements of the operands depend on unwritten memory; of what is chosen from, the chosen."""
    arguments = operation.arguments
    masks = {
        key: operation.unwritten(value) if isinstance(value, torch.Tensor) else torch.zeros((), dtype=torch.bool)
        for key, value in arguments.items()
    }
    if operation.name in _CHOICES:
        condition, yes, no = _CHOICES[operation.name]
        return [masks[condition], torch.where(arguments[condition], masks[yes], masks[no])]
    return list(masks.values())


def _as_numbers(operation: OperationCall, call: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> torch.Tensor:
    """Return a sum of ones, with an infinity for each element that depends on unwritten memory."""

    def twin(value: Argument) -> Argument:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return torch.ones_like(value).masked_fill_(operation.unwritten(value), torch.inf)

    return call(*tree_map(twin, args), **tree_map(twin, kwargs))


def _cleaned(operation: OperationCall) -> int | Computed:
    """Return a doubt, which stands for all that is under it; or what was computed before, which it stays."""
    present = operation.of(operation.arguments)
    if computed := present - _MAY_BE_CLEANED:
        return min(computed)
    values = {key: value for key, value in operation.arguments.items() if key not in _CHOOSING}
    under, depth = operation.of(values), operation.depth() + 1
    if operation.name in _COMPARING:
        under = present | {CHOICE} if operation.result.dtype == torch.bool else set()
    elif under <= {CONSTANT, FRESH}:  # which of several constants says what was compared
        under = present
    under |= present & _OF_PYTORCH  # also what chooses
    return _doubt(under, depth)


def kind_of(dtype: torch.dtype) -> str:
    """Return what sort of number a dtype holds: a cast to another sort computes."""
    if dtype.is_complex or dtype.is_floating_point:
        return "complex" if dtype.is_complex else "float"
    return "bool" if dtype == torch.bool else "integer"


def _moved(
    operation: OperationCall, call: OpOverload, args: Sequence[Argument], kwargs: Keywords
) -> Labels | list[Labels] | None:
    choosing = [value for key, value in operation.arguments.items() if key in _CHOOSING]
    if operation.of(choosing) - {CONSTANT} or any(operation.arguments.get(key) for key in _ADDING):
        return None
    chosen = {id(tensor) for tensor in tensors_in(choosing)}
    moved = [tensor for tensor in tensors_in(operation.arguments) if id(tensor) not in chosen]
    if any(kind_of(t.dtype) != kind_of(operation.result.dtype) and operation.of(t) - {CONSTANT} for t in moved):
        return None  # a cast to another sort computes
    if operation.name in _PUTTING and _puts_twice(operation):
        return None

    def twin(value: Argument) -> Argument:
        if isinstance(value, torch.Tensor):
            return value if id(value) in chosen else operation.labels(value).clone()
        return value

    args, kwargs = tree_map(twin, (args, kwargs))
    names = list(operation.arguments)
    args = [CONSTANT if _is_number(n, a) else a for n, a in zip(names, args, strict=False)]
    kwargs = {key: CONSTANT if _is_number(key, value) else value for key, value in kwargs.items()}
    if "out" in kwargs:
        outputs = tree_map(lambda tensor: torch.empty(tensor.shape, dtype=torch.uint8), kwargs["out"])
        kwargs["out"] = outputs
    try:
        result = call(*args, **kwargs)
        result = outputs if result is None else result
    except (RuntimeError, TypeError, ValueError, IndexError):  # it does not take labels: then it has computed something
        return None
    return list(result) if isinstance(result, list | tuple) else result


def _puts_twice(operation: OperationCall) -> bool:
    """Return whether values of different labels go to one place: which of them stays is not known."""
    arguments = operation.arguments
    values = [arguments[name] for name in ("values", "source", "src") if name in arguments]
    if not any(len(operation.labels(value).unique()) > 1 for value in tensors_in(values)):
        return False
    counts = torch.zeros(operation.result.shape, dtype=torch.int32)
    match operation.name:
        case "index_copy":
            index = arguments["index"].reshape(-1)
            return index.unique().numel() < index.numel()
        case "scatter":
            ones = torch.ones(arguments["index"].shape, dtype=torch.int32)
            counts.scatter_add_(arguments["dim"], arguments["index"], ones)
        case _:
            counts.index_put_(tuple(arguments["indices"]), torch.ones((), dtype=torch.int32), accumulate=True)
    return bool((counts > 1).any())


def _is_number(name: str, value: Argument) -> bool:
    return name in NUMBERS and isinstance(value, (bool, int, float))


def _scaled(operation: OperationCall, *_: Argument) -> Labels | int | None:
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


def _summed(operation: OperationCall, *_: Any) -> Labels | int | None:
    """Return SUM for a sum of what launches stored; DELTA for one of rows of a product."""
    if operation.name in ("add", "sub", "rsub") and (same := _plus_zero(operation)) is not None:
        return same
    present = operation.of(operation.arguments)
    if not operation.is_of_floats() or operation.arguments.get("reduce", "add") not in _SUMMING:
        return None
    if _is_linear(operation) and present <= _SUMMANDS:
        return SUM
    if operation.name in ("add", "sub", "rsub"):  # rowsum(A ∘ B), piece by piece
        return DELTA if DELTA in present and present <= {DELTA, CONSTANT, FRESH} else None
    is_of_rows = operation.name in ("sum", "mean", "nansum") and operation.result.numel() <= operation.max_delta
    return DELTA if is_of_rows and present - {CONSTANT} <= {PRODUCT, DELTA} else None


def _plus_zero(operation: OperationCall) -> Labels | None:
    operands = [operation.arguments[key] for key in ("self", "other")]
    if not any(isinstance(value, int | float) and value == 0 for value in operands):
        return None
    source = next(value for value in operands if isinstance(value, torch.Tensor))
    return operation.labels(source) if kind_of(source.dtype) == kind_of(operation.result.dtype) else None


def _is_linear(operation: OperationCall) -> bool:
    """Return whether each term has at most one factor that varies, and what chooses is constant."""
    varying = {key for key, value in operation.arguments.items() if operation.of(value) - {CONSTANT}}
    terms = _SUMS[operation.name]
    is_listed = varying <= {name for term in terms for name in term}
    is_divided = _DIVISORS.get(operation.name) in varying
    return is_listed and not is_divided and all(len(varying.intersection(term)) < 2 for term in terms)


def _multiplied(operation: OperationCall, *_: Argument) -> int | None:
    """Return DELTA for products of matrices that are rowsum(A ∘ B)."""
    *added, left, right = tensors_in(operation.arguments)
    factors, bias = [left, right], operation.of(added)
    is_small = operation.result.numel() <= operation.max_delta and bias <= {CONSTANT}
    if not is_small or not operation.is_of_floats():
        return None
    if operation.of(factors) == {PRODUCT, CONSTANT} and any(operation.of(x) <= {CONSTANT} for x in factors):
        return DELTA  # (A ∘ B) @ ones
    is_row_by_row = operation.result.numel() * left.shape[-1] == left.numel() == right.numel()
    return DELTA if is_row_by_row and operation.of(factors) <= _FACTORS else None
