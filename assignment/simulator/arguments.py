"""The arguments of a launch as a kernel sees them: pointers, typed scalar tensors, constants."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import triton.language as tl

from assignment.pytorch_private import is_in_memory
from assignment.whose import theirs

from . import calls
from .elementwise import Handle
from .kernel_values import KernelFunction, KernelValue, LaunchArgument
from .numerics import numpy_type
from .semantic import semantic
from .triton_private import KernelParam, TensorDescriptor, TensorWrapper, mangle_type

AddressOf = Callable[[torch.Tensor], np.uint64]
Admit = Callable[[str, torch.Tensor], np.uint64]  # a tensor's address, given its name


def typed(value: LaunchArgument, param: KernelParam, admit: Admit) -> KernelValue:
    """Return `value` as parameter `param` receives it.

    A constexpr stays a Python value, and so does the integer 1, which the compiler specialises on.
    """
    if param.is_constexpr:
        return value.value if isinstance(value, tl.constexpr) else value
    specialize = not param.do_not_specialize
    if param.annotation_type and isinstance(value, (bool, int, float)):
        return _scalar(value, theirs(tl.str_to_ty, param.annotation_type, None))
    found = _typed(value, specialize, lambda tensor: admit(param.name, tensor))
    if param.is_const and isinstance(found, tl.tensor) and found.type.is_ptr():
        return tl.tensor(found.handle, tl.pointer_type(found.type.element_ty, found.type.address_space, const=True))
    return found


def _typed(value: LaunchArgument, specialize: bool, address_of: AddressOf) -> KernelValue:
    if isinstance(value, tl.constexpr):
        return value.value
    if isinstance(value, (bool, int, float)):
        is_constant = specialize and value == 1 and type(value) is int
        return value if is_constant else _scalar(value, theirs(tl.str_to_ty, theirs(mangle_type, value), None))
    if hasattr(value, "data_ptr"):
        return _pointer(value, address_of)
    if isinstance(value, tuple):
        items = [_typed(v, specialize, address_of) for v in value]
        make: KernelFunction = type(value)
        return make(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, TensorDescriptor):
        return _descriptor(value, address_of)
    if value is None or callable(value) or isinstance(value, tl.dtype):
        return value
    raise TypeError(f"a kernel takes tensors and numbers, and tl.constexpr parameters; got a {type(value).__name__}")


def _scalar(value: float, ty: tl.dtype) -> tl.tensor:
    dtype = numpy_type(ty)
    wrapped = np.array([value]).astype(dtype) if isinstance(value, float) else _wrapped(value, dtype)
    return tl.tensor(Handle(wrapped, ty), ty)


def _wrapped(value: int, dtype: np.dtype) -> np.ndarray:
    """Convert an int to a type that may be too narrow for it."""
    return np.array([value], np.uint64 if value >= 2**63 else np.int64).astype(dtype)


def _pointer(value: torch.Tensor | TensorWrapper, address_of: AddressOf) -> tl.tensor:
    """Return the address of a tensor's first element."""
    base = getattr(value, "base", value)
    if isinstance(base, torch.Tensor) and not is_in_memory(base):
        raise ValueError(f"the simulator runs kernels on CPU tensors, got one on {base.device}")
    refuses = calls.current().refuses
    if refuses and isinstance(base, torch.Tensor) and (why := refuses(base)):
        raise ValueError(why)
    try:
        ty = theirs(tl.str_to_ty, theirs(mangle_type, value), None)
    except KeyError as error:
        remedy = ": pass x.view(torch.uint8)" if value.dtype.itemsize == 1 else ""
        raise TypeError(f"Triton has no type for a tensor of {value.dtype}{remedy}") from error
    ty.element_ty.to_ir(semantic.builder)  # which some 8-bit floats have none of
    tensor = getattr(value, "base", value)  # triton.reinterpret(tensor, dtype) wraps one
    address = address_of(tensor) if isinstance(tensor, torch.Tensor) else value.data_ptr()
    return tl.tensor(Handle(np.array([address], np.uint64), ty), ty)


def _descriptor(value: TensorDescriptor, address_of: AddressOf) -> tl.core.tensor_descriptor:
    """Convert a tensor descriptor made on the host."""
    integers: Callable[[Sequence[int]], list[tl.tensor]] = lambda sizes: [_scalar(int(s), tl.int64) for s in sizes]  # noqa: E731
    descriptor = theirs(
        semantic.make_tensor_descriptor,
        base=_pointer(value.base, address_of),
        shape=integers(value.shape),
        strides=[*integers(value.strides[:-1]), tl.constexpr(int(value.strides[-1]))],
        block_shape=[tl.constexpr(b) for b in value.block_shape],
        padding_option=value.padding,
    )
    descriptor.handle.round_f32_to_tf32 = getattr(value, "round_f32_to_tf32", False)
    return descriptor
