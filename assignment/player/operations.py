"""The operations of PyTorch that a program may use: no files, randomness or unchecked memory.

Anything else is not run: its result is NaN, and is reported with the submission's line if a result
depends on it.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import TypeAlias

import torch

from assignment.protocol.messages import Value
from assignment.pytorch_private import Argument, Keywords, OpOverload, OpOverloadPacket, has_kernel, tree_map
from assignment.simulator.costs import tensors_in
from assignment.whose import theirs

from .storages import CannotFollow

Call: TypeAlias = tuple[OpOverload, Sequence[Argument], Keywords]

_MAKING = """
arange empty empty_like empty_permuted empty_strided eye full full_like linspace logspace new_empty new_empty_strided
new_full new_ones new_zeros ones ones_like scalar_tensor zeros zeros_like tril_indices triu_indices
"""
_MOVING = """
_reshape_copy _to_copy _unsafe_view alias_copy as_strided_copy block_diag cat constant_pad_nd copy diag diag_embed
diagonal_copy expand_copy fill flip gather index index_copy index_fill index_put index_select lift_fresh_copy
masked_scatter masked_select narrow_copy permute_copy put reflection_pad1d replication_pad1d repeat repeat_interleave
roll rot90 scatter select_backward select_copy select_scatter slice_backward slice_copy slice_scatter split_copy
squeeze_copy stack t_copy take transpose_copy tril triu unbind_copy unfold_copy unsqueeze_copy view_copy zero
diagonal_scatter fill_diagonal
"""
_COMPUTING = """
addbmm addmm addmv addr all amax amin aminmax any argmax argmin argsort avg_pool2d baddbmm bmm bucketize complex
count_nonzero cummax cummin cumprod cumsum dist dot embedding floor_divide glu hardswish histc huber_loss im2col
index_add index_reduce isin kthvalue linalg_vector_norm log_sigmoid_forward logcumsumexp logsumexp matmul max
max_pool2d_with_indices mean median min mm mse_loss mv nanmedian nansum native_layer_norm nonzero nonzero_static norm
outer polar prod renorm scatter_add scatter_reduce searchsorted segment_reduce smooth_l1_loss sort std std_mean sum
topk trace unique_dim var var_mean vdot _cdist_forward _log_softmax _log_softmax_backward_data _softmax
_softmax_backward_data
"""
CHOOSING = ("index", "indices", "mask", "condition", "repeats", "source_mask")  # arguments that say which, not what
PLAYED = frozenset((_MAKING + _MOVING + _COMPUTING).split())  # beside what goes element by element
NOT_PLAYED = {  # parts of names, although they go element by element
    "_polynomial_": "it loops as often as a value says",
    "polygamma": "it loops as often as a value says",
    "zeta": "it loops as often as a value says",
    "gcd": "the least integer by -1 ends the process",
    "lcm": "the least integer by -1 ends the process",
}
_UNPLAYED_TAGS = {torch.Tag.inplace_view, torch.Tag.nondeterministic_seeded}  # a view's shape changes; random
UNUSUAL = frozenset(  # in the problems for PyTorch: staff look at it
    [
        "native_layer_norm", "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "sort", "topk", "argsort",
        "unique_dim", "nonzero", "bucketize", "segment_reduce",
    ]
)  # fmt: skip
# PyTorch leaves the memory of a tensor whose elements overlap
_LEFT = ("median", "nanmedian", "kthvalue", "gelu_backward")
OVERWRITING = ("copy", "fill", "zero")  # in place: what was there before is not read
_INSTEAD = {  # by what is in the name of an operation that is not played
    ("rand", "normal", "bernoulli", "uniform", "dropout", "multinomial", "exponential"): "what is random is not the "
    "same for the graded inputs: use tl.rand in a kernel, with a seed",
    ("unique", "bincount", "nonzero"): "a shape must not depend on values: use a mask, torch.where, scatter_add",
    ("linalg", "convolution", "cholesky", "fft"): "write it as matmul, mul and sum",
    ("nested", "sparse", "padded"): "use an ordinary tensor, with padding and a mask",
}
_EACH = "_foreach_"  # an operation on each element of lists
# an operation on each whose own has another name, where an argument is a number
_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max", "norm": "linalg_vector_norm"}


@functools.cache
def find(name: str) -> OpOverload | None:
    """Return the overload with a name such as "aten::add.Tensor"; None if it is not played."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    found = _overload(base, overload or "default") if namespace == "aten" else None
    is_played = found is not None and (each_of(found) or _is_step(found))
    return found if is_played else None


def _overloads(base: str) -> list[OpOverload]:
    """Return all forms of an operation that have one name."""
    packet = getattr(torch.ops.aten, base, None)
    names = packet.overloads() if isinstance(packet, OpOverloadPacket) else ()
    return [form for name in names if isinstance(form := getattr(packet, name, None), OpOverload)]


def _overload(base: str, name: str) -> OpOverload | None:
    return next((form for form in _overloads(base) if form._overloadname == name), None)


def _is_step(operation: OpOverload) -> bool:
    """Return whether it makes memory, or changes its own operand or outputs, as a form of what is played does.

    Views need no steps, and may reach beyond their memory.
    """
    if operation.is_view or not has_kernel(operation.name()):
        return False  # the second: what TorchScript alone has, such as methods of lists
    if operation.name() == "aten::view_copy.dtype":  # bytes read as another type are no values moved
        return False
    schema, form = operation._schema, form_of(operation)
    is_in_place = schema.name != f"aten::{form}"
    changed = [argument for argument in schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if not all(argument.name == "self" if is_in_place else argument.is_out for argument in changed):
        return False
    if not _UNPLAYED_TAGS.isdisjoint(operation.tags) or any(part in form for part in NOT_PLAYED):
        return False
    is_of_tensors = all("Tensor" in str(returned.type) for returned in schema.returns)
    # PyTorch makes some of its own `_x`
    is_known = not PLAYED.isdisjoint([form, f"_{form}"]) or is_pointwise(operation)
    return is_of_tensors and not (changed and "empty" in form) and is_known


@functools.cache
def form_of(operation: OpOverload) -> str:
    """Return the name of the operation whose values it gives: without "aten::", and as not in place."""
    name = operation._schema.name.removeprefix("aten::")
    if name.startswith("__i"):
        return f"__{name[3:]}"
    return name if name.endswith("__") else name.removesuffix("_")


@functools.cache
def is_pointwise(operation: OpOverload) -> bool:
    """Return whether it goes element by element, as PyTorch says of it or of its form that makes new memory."""
    if torch.Tag.pointwise in operation.tags:
        return True
    making = _making(operation) if operation._schema.is_mutable else None
    return making is not None and torch.Tag.pointwise in making.tags


def _taken(operation: OpOverload) -> list[tuple[str, str]]:
    """Return the names and types of its arguments, without outputs."""
    return [(argument.name, str(argument.type)) for argument in operation._schema.arguments if not argument.is_out]


@functools.cache
def each_of(operation: OpOverload) -> tuple[OpOverload, dict[str, str]] | None:
    """Return what a `_foreach_` operation does with each element of its lists, and the names of its arguments there.

    None of another.
    """
    schema, form = operation._schema, form_of(operation)
    if not form.startswith(_EACH) or any(argument.is_out for argument in schema.arguments):
        return None
    in_place, base = "_" * schema.is_mutable, form.removeprefix(_EACH)
    for name in (base, _OF_NUMBERS.get(base, base)):
        for overload in _overloads(name + in_place):
            each = find(f"aten::{name}{in_place}.{overload._overloadname}")
            if each and each._schema.is_mutable == schema.is_mutable and (names := _names_in(each, operation)):
                return each, names
    return None


def _names_in(each: OpOverload, operation: OpOverload) -> dict[str, str] | None:
    """Return the names of a `_foreach_` operation's arguments in one on each; None if it does not take these."""
    theirs = each._schema.arguments
    found: dict[str, str] = {}
    for argument, there in itertools.zip_longest(
        operation._schema.arguments, theirs[: len(operation._schema.arguments)]
    ):
        kind = str(argument.type)
        kind = kind[5:-1] if kind.startswith("List[") else kind
        fits = [a.name for a in theirs if str(a.type) == kind and (a is there or a.name == argument.name)]
        if not fits:
            return None
        found[argument.name] = fits[0]
    is_enough = all(a.name in found.values() or a.has_default_value() for a in theirs)
    return found if is_enough else None


def calls_of(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> list[Call]:
    """Return the calls that a call is: of a `_foreach_` operation one for each element of its lists.

    Raises ValueError if these are not of one length.
    """
    if (of_each := each_of(operation)) is None:
        return [(operation, args, kwargs)]
    each, names = of_each
    named = named_of(operation, args, kwargs)
    lists = [value for value in named.values() if isinstance(value, list)]
    if len({len(value) for value in lists}) != 1:
        raise ValueError(f"{operation._schema.name} is given lists of several lengths")
    return [
        (each, (), {names[key]: value[i] if isinstance(value, list) else value for key, value in named.items()})
        for i in range(len(lists[0]))
    ]


def call(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> Argument:
    """Return what an operation returns.

    Outputs get a copy of what the form without them makes: PyTorch itself looks at few of them, and leaves the memory
    of one that overlaps.
    """
    if form_of(operation) in _LEFT:
        args, kwargs = tree_map(lambda v: v.contiguous() if isinstance(v, torch.Tensor) else v, (args, kwargs))
    outputs = outputs_of(operation)
    if not outputs or (making := _making(operation)) is None:
        return theirs(operation, *args, **kwargs)
    named = named_of(operation, args, kwargs)
    targets = tensors_in([named.pop(name, None) for name in outputs])
    if "dtype" in dict(_taken(making)) and named.get("dtype") is None:
        named["dtype"] = targets[0].dtype
    made = tensors_in(call(making, (), named))
    if [tensor.shape for tensor in made] != [target.shape for target in targets]:
        raise CannotFollow(f"{operation._schema.name} gives an output another size: make it in the result's shape")
    for target, tensor in zip(targets, made, strict=True):
        theirs(target.copy_, tensor)
    return targets if operation._schema.returns else None


@functools.cache
def _making(operation: OpOverload) -> OpOverload | None:
    """Return the form of an operation that makes new memory in place of outputs."""
    taken, forms = _taken(operation), _overloads(form_of(operation))
    return next((form for form in forms if not form._schema.is_mutable and _taken(form) == taken), None)


def changed_by(name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> list[Value]:
    """Return the arguments, as a program has them, that an operation of this name writes to; played or not."""
    base, _, overload = name.removeprefix("aten::").partition(".")
    if (operation := _overload(base, overload or "default")) is None:
        return []
    schema = operation._schema.arguments
    named = {**dict(zip([argument.name for argument in schema], args, strict=False)), **kwargs}
    changed = [argument.name for argument in schema if argument.alias_info and argument.alias_info.is_write]
    return [named[argument] for argument in changed if argument in named]


def instead_of(name: str) -> str:
    """Return what to write in place of an operation that is not played."""
    reason = next((f"{reason}; " for part, reason in NOT_PLAYED.items() if part in name), "")
    found = (remedy for parts, remedy in _INSTEAD.items() if any(part in name for part in parts))
    return reason + next(found, "write it with ordinary ones, such as add, mul, where and matmul, or in a kernel")


def named_of(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> Keywords:
    """Return the arguments of a call by name."""
    return {**dict(zip([a.name for a in operation._schema.arguments], args, strict=False)), **kwargs}


def loaded_by(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> list[torch.Tensor]:
    """Return the tensors that an operation reads."""
    named = named_of(operation, args, kwargs)
    is_overwritten = operation._schema.is_mutable and form_of(operation) in OVERWRITING
    unread = {*outputs_of(operation), *([operation._schema.arguments[0].name] if is_overwritten else [])}
    return tensors_in([value for name, value in named.items() if name not in unread])


@functools.cache
def outputs_of(operation: OpOverload) -> tuple[str, ...]:
    """Return the names of the arguments that are only written to: `out`, `values`."""
    return tuple(argument.name for argument in operation._schema.arguments if argument.is_out)
