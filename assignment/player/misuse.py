"""What is wrong with the arguments of PyTorch's operations, where PyTorch itself does not look."""

from collections.abc import Sequence

import torch

from assignment.pytorch_private import Argument, Keywords, OpOverload
from assignment.simulator.costs import tensors_in

from .labels import reach
from .operations import CHOOSING, each_of, form_of, is_pointwise, named_of

MAX_REPEATS = 1 << 24
MAX_LAID_OUT = 1 << 30  # bytes that are looked at one by one; farther apart, tensors share memory if their reach does


def misplaced(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> str:
    """Return the name of an argument of another sort than the operation's own, or "".

    The value of a tensor in a number's place would decide; a number in a layout's is not looked at.
    """
    types = {argument.name: str(argument.type) for argument in operation._schema.arguments}
    for name, value in named_of(operation, args, kwargs).items():
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
    named = named_of(operation, args, kwargs)
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
    named = named_of(operation, args, kwargs)
    places = {a.name for a in operation._schema.arguments if a.alias_info and a.alias_info.is_write}
    written = [(name, tensor) for name in places for tensor in tensors_in(named.get(name))]
    for i, (name, tensor) in enumerate(written):
        if any(_share_memory(tensor, other) for _, other in written[:i]):
            return name
    each, _ = each_of(operation) or (operation, {})
    goes_along = is_pointwise(each) or form_of(each) == "copy"
    for name, value in named.items():
        for j, tensor in enumerate(tensors_in(value) if name not in places else ()):
            for i, (_, target) in enumerate(written):
                is_same = _place(tensor) == _place(target) and tensor.dtype == target.dtype
                is_turn = i == j and isinstance(value, list) if len(written) > 1 else True
                may_share = is_same and is_turn and goes_along and name not in CHOOSING
                if not may_share and _share_memory(tensor, target):
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


def out_of_range(operation: OpOverload, args: Sequence[Argument], kwargs: Keywords) -> str:
    """Return what is wrong with values that an operation uses as places without a look at them; or ""."""
    named = named_of(operation, args, kwargs)
    match operation._schema.name.removeprefix("aten::"):
        case "repeat_interleave" if isinstance(repeats := named.get("repeats"), torch.Tensor):
            is_whole = repeats.dtype in (torch.int32, torch.int64)
            is_few = is_whole and bool(((repeats >= 0) & (repeats <= MAX_REPEATS)).all())
            if not is_few or (repeats.dim() and named.get("output_size") not in (None, int(repeats.sum()))):
                return f"repeats must be 0 to {MAX_REPEATS:,}, and output_size their sum"
        case "segment_reduce":
            if named.get("unsafe") or named.get("offsets") is not None or named.get("indices") is not None:
                return "segments are given by their lengths alone, and are checked"
        case "_softmax_backward_data" | "_log_softmax_backward_data" | "gelu_backward":
            shapes = [getattr(named.get(name), "shape", None) for name in ("grad_output", "output", "self")]
            if shapes[0] not in shapes[1:]:
                return "a gradient has the shape of the result"
    return ""
