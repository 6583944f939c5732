"""The operations of PyTorch that a program may use: no files, randomness or unchecked memory.

Anything else is not run: its result is NaN, and is reported with the submission's line if a result
depends on it.
"""

import functools
from collections.abc import Sequence

import torch

from assignment.pytorch_private import Argument, Keywords, OpOverload, has_kernel
from assignment.simulator.costs import tensors_in

from .labels import reach

_MAKING = """
arange empty empty_like empty_permuted empty_strided eye full full_like linspace new_empty new_empty_strided new_full
new_ones new_zeros ones ones_like scalar_tensor zeros zeros_like tril_indices triu_indices
"""
_MOVING = """
_reshape_copy _to_copy _unsafe_view alias_copy as_strided_copy block_diag cat clone constant_pad_nd
copy copy_ diag diag_embed diagonal_copy expand_copy fill fill_ flip gather index index_copy index_fill
index_put index_select lift_fresh_copy masked_fill masked_fill_ masked_scatter masked_select narrow_copy
permute_copy reflection_pad1d replication_pad1d repeat repeat_interleave roll rot90 scatter select_backward select_copy
select_scatter slice_backward slice_copy slice_scatter split_copy squeeze_copy stack t_copy take transpose_copy tril
tril_ triu triu_ unbind_copy unfold_copy unsqueeze_copy view_copy where zero zero_ index_put_ index_fill_ index_copy_
scatter_ diagonal_scatter
"""
_COMPUTING = """
abs abs_ acos add add_ addbmm addcdiv addcdiv_ addcmul addcmul_ addmm addmm_ addmv all amax amin aminmax any argmax
argmin argsort asin atan atan2 baddbmm baddbmm_ bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor bmm bucketize ceil ceil_ clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ cos
cosh count_nonzero cummax cummin cumprod cumsum cumsum_ div div_ dot eq erf erfc exp exp_ exp2 exp2_ expm1 expm1_ floor
floor_ floor_divide fmax fmin fmod frac ge gelu gt heaviside hypot index_add index_add_ isfinite isinf isnan isneginf
isposinf ldexp le lerp log log_ log10 log1p log2 log2_ logaddexp logaddexp2 logcumsumexp logical_and logical_not
logical_or logical_xor logsumexp lt matmul max maximum mean min minimum mm mul mul_ mv nan_to_num nan_to_num_
nansum native_layer_norm ne neg neg_ nonzero norm outer pow pow_ prod reciprocal reciprocal_ relu relu_ remainder round
rsqrt rsqrt_ rsub scatter_add scatter_add_ scatter_reduce scatter_reduce_
segment_reduce sgn sigmoid sign signbit silu sin sinh softplus sort sqrt
sqrt_ square std sub sub_ sum tan tanh topk true_divide trunc unique_dim var var_mean vdot xlogy _softmax
_softmax_backward_data _log_softmax _log_softmax_backward_data linalg_vector_norm
"""
MAX_REPEATS = 1 << 24
MAX_LAID_OUT = 1 << 30  # bytes that are looked at one by one; farther apart, tensors share memory if their reach does
CHOOSING = ("index", "indices", "mask", "condition", "repeats", "source_mask")  # arguments that say which, not what
PLAYED = frozenset((_MAKING + _MOVING + _COMPUTING).split())
USUAL = PLAYED - frozenset(  # in the problems for PyTorch; others are for staff to look at
    [
        "native_layer_norm",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "cumsum_",
        "logcumsumexp",
        "sort",
        "topk",
        "argsort",
        "unique_dim",
        "nonzero",
        "bucketize",
        "segment_reduce",
    ]
)


@functools.cache
def find(name: str) -> OpOverload | None:
    """Return the overload with a name such as "aten::add.Tensor"; None if it is not played."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if namespace != "aten" or base not in PLAYED:
        return None
    packet = getattr(torch.ops.aten, base, None)
    found = getattr(packet, overload or "default", None) if packet else None
    return found if isinstance(found, OpOverload) and _is_step(found) else None


def _is_step(operation: OpOverload) -> bool:
    """Return whether it makes or changes memory as its name says.

    Views need no steps, and may reach beyond their memory.
    """
    if operation.is_view or not has_kernel(operation.name()):
        return False  # the second: what TorchScript alone has, such as methods of lists
    if operation.name() == "aten::view_copy.dtype":  # bytes read as another type are no values moved
        return False
    return not ("empty" in operation._schema.name and operation._schema.is_mutable)


def is_usual(operation: OpOverload) -> bool:
    """Return whether a PyTorch problem routinely needs it."""
    return operation._schema.name.removeprefix("aten::") in USUAL


def misplaced(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> str:
    """Return the name of an argument of another sort than the operation's own, or "".

    The value of a tensor in a number's place would decide; a number in a layout's is not looked at.
    """
    types = {argument.name: str(argument.type) for argument in operation._schema.arguments}
    named = {**dict(zip(types, args, strict=False)), **kwargs}
    for name, value in named.items():
        is_wrong = value is not None and not isinstance(value, _SORTS.get(name, object))
        if is_wrong or ("Tensor" not in types.get(name, "") and _holds_tensor(value)):
            return name
    return ""


_SORTS: dict[str, type | tuple[type, ...]] = {  # of arguments that PyTorch takes by number, unchecked
    **dict.fromkeys(("dtype", "input_dtype", "out_dtype"), torch.dtype),
    "memory_format": torch.memory_format,
    **dict.fromkeys(("layout", "device", "pin_memory"), ()),
}


def _holds_tensor(value: Argument) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, list) and any(map(_holds_tensor, value)))


def written_by(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> list[torch.Tensor]:
    """Return the tensors that an operation writes to, those in lists included.

    Raises ValueError if it is one that writes to arguments, and none of them is there.
    """
    schema = operation._schema
    if not schema.is_mutable:
        return []
    named = {**dict(zip([a.name for a in schema.arguments], args, strict=False)), **kwargs}
    changed = [named.get(a.name) for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    written = tensors_in(changed)
    if not written:
        raise ValueError(f"{schema.name} writes to an argument, and is given none to write to")
    return written


def overlapping(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> str:
    """Return the name of an argument that lies partly where the operation writes, or is read after that; or "".

    What such an operation gives depends on the order in which it goes along. An operation that works element by
    element may write to the very elements that it reads.
    """
    if not operation._schema.is_mutable:
        return ""
    named = {**dict(zip([a.name for a in operation._schema.arguments], args, strict=False)), **kwargs}
    places = {a.name for a in operation._schema.arguments if a.alias_info and a.alias_info.is_write}
    written = [(name, tensor) for name in places for tensor in tensors_in(named.get(name))]
    for i, (name, tensor) in enumerate(written):
        if any(_share_memory(tensor, other) for _, other in written[:i]):
            return name
    read = [(name, tensor) for name, value in named.items() if name not in places for tensor in tensors_in(value)]
    for name, tensor in read:
        for _, target in written:
            if not _share_memory(tensor, target):
                continue
            is_same = _place(tensor) == _place(target) and tensor.dtype == target.dtype
            goes_along = torch.Tag.pointwise in operation.tags or operation._schema.name == "aten::copy_"
            if not (is_same and goes_along and name not in CHOOSING):
                return name
    return ""


def _place(tensor: torch.Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether any byte belongs to elements of both."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not one.numel() or not other.numel():
        return False
    (first, end), (others_first, others_end) = _reach(one), _reach(other)
    if first >= others_end or others_first >= end:
        return False
    origin, size = min(first, others_first), max(end, others_end) - min(first, others_first)
    if size > MAX_LAID_OUT:
        return True
    is_taken = torch.zeros(size, dtype=torch.bool)
    _bytes_of(one, is_taken, origin).fill_(True)
    return bool(_bytes_of(other, is_taken, origin).any())


def _reach(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor's elements in its storage, and the one past the last."""
    first = int(tensor.storage_offset()) * tensor.itemsize
    return first, first + reach(tensor) * tensor.itemsize


def _bytes_of(tensor: torch.Tensor, laid_out: torch.Tensor, origin: int) -> torch.Tensor:
    """Return the bytes of a tensor's elements in a storage of which one element stands for each byte."""
    shape = [1 if not stride else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    strides = [stride * tensor.itemsize for stride in tensor.stride()]
    first = tensor.storage_offset() * tensor.itemsize - origin
    return laid_out.as_strided([*shape, tensor.itemsize], [*strides, 1], first)


def outputs_of(operation: OpOverload) -> set[str]:
    """Return the names of the arguments that are only written to: `out`, `values`."""
    return {argument.name for argument in operation._schema.arguments if argument.is_out}


def out_of_range(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> str:
    """Return what is wrong with what an operation takes for places without a look at it; or ""."""
    named = {**dict(zip([a.name for a in operation._schema.arguments], args, strict=False)), **kwargs}
    match operation._schema.name.removeprefix("aten::"):
        case "repeat_interleave" if isinstance(repeats := named.get("repeats"), torch.Tensor):
            is_whole = repeats.dtype in (torch.int32, torch.int64)
            is_few = is_whole and bool(((repeats >= 0) & (repeats <= MAX_REPEATS)).all())
            if not is_few or (repeats.dim() and named.get("output_size") not in (None, int(repeats.sum()))):
                return f"repeats must be 0 to {MAX_REPEATS:,}, and output_size their sum"
        case "segment_reduce":
            if named.get("unsafe") or named.get("offsets") is not None or named.get("indices") is not None:
                return "segments are given by their lengths alone, and are checked"
        case "_softmax_backward_data" | "_log_softmax_backward_data":
            shapes = [getattr(named.get(name), "shape", None) for name in ("grad_output", "output")]
            if shapes[0] != shapes[1]:
                return "a gradient has the shape of the result"
    outputs = tensors_in([named.get(name) for name in outputs_of(operation)])
    if "_softmax" in operation._schema.name and not all(tensor.is_contiguous() for tensor in outputs):
        return "PyTorch writes to `out` as if it were contiguous: pass one that is"
    return ""
