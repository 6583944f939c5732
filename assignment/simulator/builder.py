"""What each operation of Triton's intermediate language does to NumPy arrays.

`Builder` stands where Triton's compiler has its MLIR builder: `triton.language` calls `create_fadd(lhs, rhs)` and so
on, and the result is computed at once. Values are `Handle`s: an array and the Triton type of its elements; a scalar
is an array of shape (1,).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import interpreter

import triton.language as tl

from . import memory, numerics
from .libdevice import extern_function
from .numerics import BFLOAT16, convert, numpy_type

TARGET = GPUTarget("cuda", 90, 32)


class Handle:
    """A block or scalar of values: `data`, and the Triton type of one element (its shape is that of the data)."""

    __slots__ = ("data", "dtype")

    def __init__(self, data: np.ndarray, dtype: Any) -> None:
        self.data = data
        self.dtype = dtype

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        """The scalar type behind a pointer or block type."""
        ty = self.dtype
        while hasattr(ty, "element_ty"):
            ty = ty.element_ty
        return ty

    def clone(self) -> "Handle":
        return Handle(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: object) -> None:
        """Alignment hints mean nothing here."""


def _constant(ty: Any) -> Callable[[Any, Any], Handle]:
    dtype = numpy_type(ty)
    if ty.is_floating() and ty.primitive_bitwidth < 32:  # the compiler's 16-bit constants pass through float32
        return lambda self, value: Handle(convert(np.array([value], np.float32), dtype), ty)
    return lambda self, value: Handle(np.array([value], dtype), ty)


def _unary(function: Callable) -> Callable[[Any, Handle], Handle]:
    return lambda self, arg: Handle(function(arg.data), arg.dtype)


def _binary(function: Callable) -> Callable[[Any, Handle, Handle], Handle]:
    return lambda self, lhs, rhs: Handle(function(lhs.data, rhs.data), lhs.dtype)


def _compare(function: Callable) -> Callable[[Any, Handle, Handle], Handle]:
    return lambda self, lhs, rhs: Handle(function(lhs.data, rhs.data), tl.int1)


def _with_torch(function: Callable) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _divide_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero, as the hardware does and NumPy does not."""
    return (a - np.fmod(a, b)) // b


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.right_shift(a.view(f"i{a.itemsize}"), b.view(f"i{b.itemsize}"))


def _shift_right_logical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = f"u{a.itemsize}"
    return np.right_shift(a.view(bits), b.view(bits)).view(a.dtype)


def _for_all_signs(name: str, function: Callable) -> dict[str, Callable]:
    """The icmp and fcmp of one relation: NumPy's arrays know whether they are signed."""
    method = _compare(function)
    return {f"create_{kind}{name}": method for kind in ("icmpS", "icmpU", "fcmpO", "fcmpU")}


class Builder(interpreter.InterpreterBuilder):
    """Triton's interpreter with the numerics of a Hopper GPU."""

    def __init__(self) -> None:
        super().__init__()
        backend: Any = CUDABackend(TARGET)
        self.options = backend.parse_options({"sanitize_overflow": False, "debug": False})
        self.codegen_fns["min_dot_size"] = backend.get_codegen_implementation(self.options)["min_dot_size"]
        self.grid_idx: tuple[int, int, int] | None = None  # None while no kernel runs
        self.grid_dim = (0, 0, 0)

    # constants

    get_bf16 = _constant(tl.bfloat16)
    get_fp16 = _constant(tl.float16)

    def get_int1(self, value: Any) -> Handle:
        return Handle(np.array([value], bool), tl.int1)

    def get_null_value(self, ty: Any) -> Handle:
        return Handle(np.zeros(1, numpy_type(ty)), ty.scalar)

    def get_all_ones_value(self, ty: Any) -> Handle:
        dtype = numpy_type(ty)
        return Handle(np.ones(1, bool) if dtype == bool else np.full(1, -1).astype(dtype), ty.scalar)

    # conversions

    def cast_impl(self, src: Handle, dst_type: Any) -> Handle:
        data = src.data
        if data.dtype.kind in "iub" and dst_type.scalar == tl.bfloat16:
            data = data.astype(np.float32)  # as the compiler does
        return Handle(convert(data, numpy_type(dst_type)), dst_type.scalar)

    def create_fp_to_fp(self, src: Handle, dst_type: Any, rounding_mode: Any) -> Handle:
        dst = dst_type.scalar
        if src.dtype.is_fp8() or dst.is_fp8():
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        if rounding_mode == ir.ROUNDING_MODE.RTZ:
            return Handle(numerics.truncate(src.data, numpy_type(dst)), dst)
        return self.cast_impl(src, dst_type)

    def create_bitcast(self, src: Handle, dst_type: Any) -> Handle:
        return Handle(src.data.view(numpy_type(dst_type)), dst_type.scalar)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    # arithmetic

    create_fadd = create_add = _binary(np.add)
    create_fsub = create_sub = _binary(np.subtract)
    create_fmul = create_mul = _binary(np.multiply)
    create_fdiv = create_precise_divf = _binary(np.divide)
    create_frem = create_srem = create_urem = _binary(np.fmod)
    create_sdiv = create_udiv = _binary(_divide_integers)
    create_shl = _binary(np.left_shift)
    create_ashr = _binary(_shift_right)
    create_lshr = _binary(_shift_right_logical)
    create_and = _binary(np.bitwise_and)
    create_or = _binary(np.bitwise_or)
    create_xor = _binary(np.bitwise_xor)
    create_minsi = create_minui = _binary(np.minimum)
    create_maxsi = create_maxui = _binary(np.maximum)
    create_minnumf = _binary(np.fmin)
    create_maxnumf = _binary(np.fmax)
    create_minimumf = _binary(np.minimum)
    create_maximumf = _binary(np.maximum)
    locals().update(_for_all_signs("LT", np.less) | _for_all_signs("LE", np.less_equal))
    locals().update(_for_all_signs("GT", np.greater) | _for_all_signs("GE", np.greater_equal))
    create_icmpEQ = create_fcmpOEQ = create_fcmpUEQ = _compare(np.equal)
    create_icmpNE = create_fcmpONE = create_fcmpUNE = _compare(np.not_equal)

    create_fabs = create_iabs = _unary(np.abs)
    create_exp = _unary(np.exp)
    create_exp2 = _unary(np.exp2)
    create_log = _unary(np.log)
    create_log2 = _unary(np.log2)
    create_sqrt = create_precise_sqrt = _unary(np.sqrt)
    create_rsqrt = _unary(lambda x: (1 / np.sqrt(x)).astype(x.dtype))
    create_sin = _unary(np.sin)
    create_cos = _unary(np.cos)
    create_floor = _unary(np.floor)
    create_ceil = _unary(np.ceil)
    create_erf = _unary(_with_torch(torch.erf))

    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        """One rounding: the product of two floats of up to 32 bits is exact in float64."""
        wide = np.longdouble if x.data.dtype == np.float64 else np.float64
        exact = x.data.astype(wide) * y.data.astype(wide) + z.data.astype(wide)
        return Handle(convert(exact, x.data.dtype) if wide is np.float64 else exact.astype(np.float64), z.dtype)

    def create_clampf(self, arg: Handle, lo: Handle, hi: Handle, propagate_nans: Any) -> Handle:
        propagate = propagate_nans == tl.PropagateNan.ALL
        low, high = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
        return Handle(high(low(arg.data, lo.data), hi.data), arg.dtype)

    def create_select(self, cond: Handle, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(np.where(cond.data, lhs.data, rhs.data.astype(lhs.data.dtype, copy=False)), lhs.dtype)

    # shapes

    def create_splat(self, ret_ty: Any, arg: Handle) -> Handle:
        return Handle(np.broadcast_to(arg.data.reshape(1), ret_ty.shape), arg.dtype)

    def create_unsplat(self, arg: Handle) -> Handle:
        return Handle(arg.data.reshape(1), arg.dtype)

    # matrix product

    def create_dot(self, a: Handle, b: Handle, d: Handle, input_precision: Any, max_num_imprecise_acc: Any) -> Handle:
        lhs, rhs = self._operand(a, input_precision), self._operand(b, input_precision)
        return Handle((np.matmul(lhs, rhs) + d.data).astype(d.data.dtype), d.dtype)

    def _operand(self, x: Handle, input_precision: Any) -> np.ndarray:
        """What the tensor core reads of `x`, in a type in which its products are exact."""
        if x.dtype.is_fp8():
            return self.create_fp_to_fp(x, tl.float32, None).data
        if x.data.dtype in (BFLOAT16, np.float16):
            return x.data.astype(np.float32)
        if x.data.dtype.itemsize == 1:
            return x.data.astype(np.int32)
        if x.data.dtype == np.float32 and input_precision == ir.INPUT_PRECISION.TF32:
            return numerics.truncate_to_tf32(x.data)
        return x.data

    # memory

    def create_load(self, ptr: Handle, cache: Any, eviction: Any, is_volatile: bool) -> Handle:
        return self.create_masked_load(ptr, None, None, cache, eviction, is_volatile)

    def create_store(self, ptr: Handle, val: Handle, cache: Any, eviction: Any) -> None:
        self.create_masked_store(ptr, val, None, cache, eviction)

    def create_masked_load(
        self,
        ptrs: Handle,
        mask: Any,
        other: Handle | None,
        cache_modifier: Any,
        eviction_policy: Any,
        is_volatile: bool,
    ) -> Handle:
        ty = ptrs.get_element_ty()
        fill = None if other is None else other.data
        return Handle(memory.load(ptrs.data, _array(mask), fill, numpy_type(ty)), ty)

    def create_masked_store(
        self, ptrs: Handle, value: Handle, mask: Any, cache_modifier: Any, eviction_policy: Any
    ) -> None:
        values = convert(value.data, numpy_type(ptrs.get_element_ty()))
        memory.store(ptrs.data, values, _array(mask))

    def create_atomic_cas(self, ptr: Handle, cmp: Handle, val: Handle, sem: Any, scope: Any) -> Handle:
        bits = f"u{val.data.itemsize}"
        new, expected = val.data.view(bits), cmp.data.view(bits)
        old = memory.update(ptr.data, None, _exchange_if_equal, new, expected)
        return Handle(old.view(val.data.dtype), val.dtype)

    def create_atomic_rmw(self, op: Any, ptr: Handle, val: Handle, mask: Handle, sem: Any, scope: Any) -> Handle:
        return Handle(memory.update(ptr.data, mask.data, _ATOMIC[op], val.data), val.dtype)

    def create_descriptor_reduce(self, kind: Any, desc: Any, value: Handle, indices: list[Handle]) -> None:
        ptrs, mask = desc.materialize_pointers(indices)
        memory.update(ptrs.data, mask, _DESCRIPTOR_REDUCE[kind], value.data)

    # the rest

    def create_histogram(self, data: Handle, bins: int, mask: Handle | None) -> Handle:
        values = data.data if mask is None else data.data[mask.data]
        values = values[(values >= 0) & (values < bins)].astype(np.int64)
        return Handle(np.bincount(values, minlength=bins).astype(np.int32), tl.int32)

    def create_extern_elementwise(
        self, lib_name: str, lib_path: str, symbol: str, args: list[Handle], ret_type: Any, is_pure: bool
    ) -> Handle:
        result = extern_function(symbol)(*(a.data for a in args))
        return Handle(np.asarray(result).astype(numpy_type(ret_type)), ret_type.scalar)

    def create_inline_asm(self, *args: Any) -> Any:
        raise NotImplementedError("inline assembly is not supported by the simulator, run with --device cuda")

    def create_assume(self, condition: Handle) -> None:
        if not condition:
            raise AssertionError("tl.assume: the condition does not hold")


def _array(mask: Any) -> np.ndarray | None:
    """The mask's array; Triton's own code passes handles and plain arrays."""
    return mask.data if isinstance(mask, Handle) else mask


def _exchange_if_equal(old: np.ndarray, new: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return np.where(old == expected, new, old)


_ATOMIC = {
    ir.ATOMIC_OP.ADD: np.add,
    ir.ATOMIC_OP.FADD: np.add,
    ir.ATOMIC_OP.MIN: np.minimum,
    ir.ATOMIC_OP.UMIN: np.minimum,
    ir.ATOMIC_OP.MAX: np.maximum,
    ir.ATOMIC_OP.UMAX: np.maximum,
    ir.ATOMIC_OP.AND: np.bitwise_and,
    ir.ATOMIC_OP.OR: np.bitwise_or,
    ir.ATOMIC_OP.XOR: np.bitwise_xor,
    ir.ATOMIC_OP.XCHG: lambda old, new: new,
}
_DESCRIPTOR_REDUCE = {
    ir.DESCRIPTOR_REDUCE_KIND.ADD: np.add,
    ir.DESCRIPTOR_REDUCE_KIND.MIN: np.minimum,
    ir.DESCRIPTOR_REDUCE_KIND.MAX: np.maximum,
    ir.DESCRIPTOR_REDUCE_KIND.AND: np.bitwise_and,
    ir.DESCRIPTOR_REDUCE_KIND.OR: np.bitwise_or,
    ir.DESCRIPTOR_REDUCE_KIND.XOR: np.bitwise_xor,
}
