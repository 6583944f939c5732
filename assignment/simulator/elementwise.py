"""Constants, conversions and elementwise operations: methods of the builder, on NumPy arrays."""

from collections.abc import Callable

import numpy as np
import torch
import triton.language as tl

from . import numerics
from .known import KnownAxes
from .libdevice import with_torch
from .numerics import convert, flush_subnormals, numpy_type
from .triton_private import AnyVersionBuilder, ir
from .watch import Watch


class Handle:
    """A block or scalar: an array, and the Triton type of one element."""

    __slots__ = ("data", "dtype", "known")
    known: KnownAxes  # when compiled, in kernels with hints: alignment.py

    def __init__(self, data: np.ndarray, dtype: tl.dtype) -> None:
        self.data = data
        self.dtype = dtype

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> tl.dtype:
        """Return the scalar type behind a pointer or block type."""
        ty = self.dtype
        while hasattr(ty, "element_ty"):
            ty = ty.element_ty
        return ty

    def clone(self) -> "Handle":
        return Handle(self.data.copy(), self.dtype)


class NoticedResult(Handle):
    """A result whose use is noticed: `use` returns it."""

    __slots__ = ("_use",)

    def __init__(self, dtype: tl.dtype, use: Callable[[], np.ndarray]) -> None:
        self.dtype = dtype
        self._use = use

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        return self._use()


def _constant(ty: tl.dtype) -> Callable[["Elementwise", float], Handle]:
    dtype = numpy_type(ty)
    # the compiler's 16-bit constants pass through float32
    if ty.is_floating() and ty.primitive_bitwidth < 32:
        return lambda self, value: Handle(convert(np.array([value], np.float32), dtype), ty)
    return lambda self, value: Handle(np.array([value], dtype), ty)


def _unary(function: Callable) -> Callable[["Elementwise", Handle], Handle]:
    return lambda self, arg: Handle(function(arg.data), arg.dtype)


def _binary(function: Callable) -> Callable[["Elementwise", Handle, Handle], Handle]:
    return lambda self, lhs, rhs: Handle(function(lhs.data, rhs.data), lhs.dtype)


def _compare(function: Callable) -> Callable[["Elementwise", Handle, Handle], Handle]:
    return lambda self, lhs, rhs: Handle(function(lhs.data, rhs.data), tl.int1)


def _not_of_8_bits(create: Callable) -> Callable[..., Handle]:
    """Make an operation on floats that refuses 8-bit floats, as every GPU does."""

    def checked(self: "Elementwise", lhs: Handle, *others: Handle) -> Handle:
        if lhs.data.dtype.itemsize == 1:
            raise ValueError(f"there is no arithmetic of {lhs.dtype} and no comparison: convert to float32 before")
        return create(self, lhs, *others)

    return checked


class Unrounded(Handle):
    """A product of float32 numbers, which the compiler may add to something without rounding it before."""

    __slots__ = ("factors",)

    def __init__(self, lhs: Handle, rhs: Handle) -> None:
        super().__init__(np.multiply(lhs.data, rhs.data), lhs.dtype)
        self.factors = lhs.data, rhs.data

    def plus(self, term: np.ndarray, sign: int = 1) -> Handle:
        """Return the sum, or the term less the product, rounded once but for rare ties of the sum in float64."""
        wide = self.factors[0].astype(np.float64) * self.factors[1]
        return Handle((wide + term if sign > 0 else term - wide).astype(np.float32), self.dtype)


def _of_floats(name: str, function: Callable, precise: bool = False) -> Callable[["Elementwise", Handle], Handle]:
    """Make an operation that the compiler has for floats alone; 16-bit ones use float32."""

    def create(self: "Elementwise", arg: Handle) -> Handle:
        is_short = arg.data.dtype.itemsize == 2
        if not arg.dtype.is_floating() or (precise and is_short):
            raise ValueError(f"{name} expects {'float32' if precise else 'floating point'} numbers, got {arg.dtype}")
        if is_short:
            result = self.watch.draws.moved(function, arg.data.astype(np.float32))
            return Handle(convert(result, arg.data.dtype), arg.dtype)
        return Handle(function(arg.data) if precise else self.watch.draws.moved(function, arg.data), arg.dtype)

    return create


def _partly(what: str, function: Callable, is_undefined: Callable) -> Callable[["Elementwise", Handle, Handle], Handle]:
    """Make an operation that the language leaves undefined for some operands."""

    def create(self: "Elementwise", lhs: Handle, rhs: Handle) -> Handle:
        result, lanes = function(lhs.data, rhs.data), is_undefined(lhs.data, rhs.data)
        return Handle(self.watch.undefined_result(what, result, lanes) if np.any(lanes) else result, lhs.dtype)

    return create


def _has_no_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray | bool:
    if b.size == 1 and b.item() not in (0, -1):
        return False
    return (b == 0) | ((b == -1) & (a == np.iinfo(a.dtype).min)) if a.dtype.kind == "i" else b == 0


def _is_too_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray | bool:
    width = 1 if a.dtype == bool else 8 * a.itemsize
    return not 0 <= b.item() < width if b.size == 1 else (b < 0) | (b >= width)


def _divide_integers(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divide towards zero, as the hardware does and NumPy does not."""
    return (a - np.fmod(a, b)) // b


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.left_shift(a, b).astype(a.dtype)


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.right_shift(a.view(f"i{a.itemsize}"), b.view(f"i{b.itemsize}"))


def _shift_right_logical(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = f"u{a.itemsize}"
    return np.right_shift(a.view(bits), b.view(bits)).view(a.dtype)


_NO_QUOTIENT = "divides integers that have no quotient: by 0, or the lowest by -1"
_TOO_WIDE = "shifts an integer by its width or more, or by less than 0"


class Elementwise(AnyVersionBuilder):
    """The part of the builder that works element by element."""

    watch: Watch  # of the launch that runs

    # constants

    get_bf16 = _constant(tl.bfloat16)
    get_fp16 = _constant(tl.float16)

    def get_int1(self, value: bool) -> Handle:
        return Handle(np.array([value], bool), tl.int1)

    def get_null_value(self, ty: tl.dtype) -> Handle:
        return Handle(np.zeros(1, numpy_type(ty)), ty.scalar)

    def get_all_ones_value(self, ty: tl.dtype) -> Handle:
        dtype = numpy_type(ty)
        return Handle(np.full(1, -1).astype(dtype), ty.scalar)

    # conversions

    def cast_impl(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return Handle(convert(src.data, numpy_type(dst_type)), dst_type.scalar)

    def create_fp_to_fp(self, src: Handle, dst_type: tl.dtype, rounding_mode: ir.ROUNDING_MODE | None) -> Handle:
        dst = dst_type.scalar
        # 8-bit floats of other hardware
        if src.data.dtype == np.uint8 or numpy_type(dst) == np.uint8:
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        if rounding_mode == ir.ROUNDING_MODE.RTZ:
            if numpy_type(dst) == numerics.FP8E4NV:
                raise ValueError(f"fp_downcast_rounding='rtz' is not supported for {dst}, only for fp8e5 and 16 bits")
            return Handle(numerics.truncate(src.data, numpy_type(dst)), dst)
        return self.cast_impl(src, dst_type)

    def create_fp_trunc(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return self.create_fp_to_fp(src, dst_type, None)

    def create_bitcast(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return Handle(src.data.view(numpy_type(dst_type)), dst_type.scalar)

    def create_ptr_to_int(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return Handle(self.watch.untagged(src.data).astype(numpy_type(dst_type)), dst_type.scalar)

    def create_int_to_ptr(self, src: Handle, dst_type: tl.dtype) -> Handle:
        return Handle(self.watch.tagged(src.data.astype(np.uint64)), dst_type.scalar)

    # arithmetic

    create_add = _binary(lambda a, b: a ^ b if a.dtype == bool else np.add(a, b))  # of one bit, they wrap
    create_sub = _binary(lambda a, b: a ^ b if a.dtype == bool else np.subtract(a, b))
    create_mul = _binary(np.multiply)
    create_srem = create_urem = _partly(_NO_QUOTIENT, np.fmod, _has_no_quotient)
    create_precise_divf = _not_of_8_bits(_binary(np.divide))
    create_frem = _not_of_8_bits(_binary(np.fmod))
    create_fneg = _not_of_8_bits(_unary(np.negative))
    create_sdiv = create_udiv = _partly(_NO_QUOTIENT, _divide_integers, _has_no_quotient)
    create_shl = _partly(_TOO_WIDE, _shift_left, _is_too_wide)
    create_ashr = _partly(_TOO_WIDE, _shift_right, _is_too_wide)
    create_lshr = _partly(_TOO_WIDE, _shift_right_logical, _is_too_wide)
    create_and = _binary(np.bitwise_and)
    create_or = _binary(np.bitwise_or)
    create_xor = _binary(np.bitwise_xor)
    create_minsi = create_minui = _binary(np.minimum)
    create_maxsi = create_maxui = _binary(np.maximum)
    create_minnumf = _binary(np.fmin)
    create_maxnumf = _binary(np.fmax)
    create_minimumf = _binary(np.minimum)
    create_maximumf = _binary(np.maximum)

    create_fabs = create_iabs = _unary(np.abs)
    create_exp = _of_floats("exp", np.exp)
    create_exp2 = _of_floats("exp2", lambda x: flush_subnormals(np.exp2(x)))
    create_log = _of_floats("log", np.log)
    create_log2 = _of_floats("log2", np.log2)
    create_precise_sqrt = _of_floats("sqrt_rn", np.sqrt, precise=True)
    create_sqrt = _of_floats("sqrt", lambda x: np.sqrt(flush_subnormals(x)))
    create_rsqrt = _of_floats("rsqrt", lambda x: (1 / np.sqrt(flush_subnormals(x))).astype(x.dtype))
    create_sin = _of_floats("sin", np.sin)
    create_cos = _of_floats("cos", np.cos)
    create_floor = _of_floats("floor", lambda x: np.floor(flush_subnormals(x)))
    create_ceil = _of_floats("ceil", lambda x: np.ceil(flush_subnormals(x)))
    create_erf = _of_floats("erf", with_torch(torch.erf))

    @_not_of_8_bits
    def create_fadd(self, lhs: Handle, rhs: Handle) -> Handle:
        for product, term in ((lhs, rhs), (rhs, lhs)):
            if isinstance(product, Unrounded):
                return product.plus(term.data)
        return Handle(np.add(lhs.data, rhs.data), lhs.dtype)

    @_not_of_8_bits
    def create_fsub(self, lhs: Handle, rhs: Handle) -> Handle:
        if isinstance(lhs, Unrounded):
            return lhs.plus(-rhs.data)
        if isinstance(rhs, Unrounded):
            return rhs.plus(lhs.data, sign=-1)
        return Handle(np.subtract(lhs.data, rhs.data), lhs.dtype)

    @_not_of_8_bits
    def create_fmul(self, lhs: Handle, rhs: Handle) -> Handle:
        if self.watch.draws.moves and lhs.data.dtype == np.float32 and self.options.enable_fp_fusion:
            return Unrounded(lhs, rhs)
        return Handle(np.multiply(lhs.data, rhs.data), lhs.dtype)

    @_not_of_8_bits
    def create_fdiv(self, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(self.watch.draws.moved(np.divide, lhs.data, rhs.data), lhs.dtype)

    create_approx_divf = create_fdiv

    @_not_of_8_bits
    def create_fma(self, x: Handle, y: Handle, z: Handle) -> Handle:
        """Round once."""
        return Handle(numerics.fused(x.data, y.data, z.data), z.dtype)

    def create_clampf(self, arg: Handle, lo: Handle, hi: Handle, propagate_nans: ir.PROPAGATE_NAN) -> Handle:
        propagate = propagate_nans == tl.PropagateNan.ALL
        low, high = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
        result, lanes = high(low(arg.data, lo.data), hi.data), lo.data > hi.data
        if lanes.any():
            result = self.watch.undefined_result("clamps to bounds of which the lower is larger", result, lanes)
        return Handle(result, arg.dtype)

    def create_select(self, cond: Handle, lhs: Handle, rhs: Handle) -> Handle:
        return Handle(np.where(cond.data, lhs.data, rhs.data.astype(lhs.data.dtype, copy=False)), lhs.dtype)


_RELATIONS = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}
for _relation, _function in _RELATIONS.items():
    # arrays know whether they are signed, and the hardware's comparisons with NaN are NumPy's
    for _kind in ("icmp", "icmpS", "icmpU"):
        setattr(Elementwise, f"create_{_kind}{_relation}", _compare(_function))
    for _kind in ("fcmpO", "fcmpU"):
        setattr(Elementwise, f"create_{_kind}{_relation}", _not_of_8_bits(_compare(_function)))
