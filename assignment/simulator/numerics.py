"""Number formats: the NumPy type for each Triton type, and the GPU's conversions, bit for bit."""

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    import triton.language as tl


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FP8E4NV = np.dtype(ml_dtypes.float8_e4m3fn)
FP8E5 = np.dtype(ml_dtypes.float8_e5m2)

_INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_NUMPY_TYPE = {
    **{name: np.dtype(name) for name in _INTEGERS.split()},
    "int1": np.dtype(bool),
    "fp16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp8e4nv": FP8E4NV,
    "fp8e5": FP8E5,
    **dict.fromkeys(("fp8e5b16", "fp8e4b8", "fp8e4b15"), np.dtype(np.uint8)),  # of other hardware: held as bits
}
FP8 = (FP8E4NV, FP8E5)  # those of a Hopper GPU
_POINTER = np.dtype(np.uint64)
_TINY = np.finfo(np.float32).tiny
_LARGE = 2.0**900  # products this large or small have errors that float64 does not hold
_CANONICAL_NAN = {1: 0x7F, 2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}  # by size in bytes

# the bits of an address; those above hold the number of its tensor
ADDRESS = np.uint64((1 << 48) - 1)


def numpy_type(ty: "tl.dtype") -> np.dtype:
    """Return the NumPy type of the elements of a Triton type: a scalar, pointer or block type."""
    return _NUMPY_TYPE.get(ty.scalar.name, _POINTER)


def convert(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Convert `values` between NumPy types as the GPU's cvt instructions do, to nearest even."""
    source = values.dtype
    if source == to:
        return values
    if source in FP8:
        return convert(values.astype(np.float32), to)
    if to in FP8:
        return _to_fp8(values.astype(np.float32), to)
    if to.kind in "iu" and source.kind not in "iub":
        return _float_to_integer(values, to)
    if to.itemsize == 2 and to.kind != "i" and source.kind in "iu":
        values = _sticky_float64(values)
    if to == BFLOAT16 and values.dtype == np.float64:
        values = _round_to_odd_float32(values)
    converted = values.astype(to)
    if source == np.float64 or to == np.float64:  # the only conversions that keep a NaN's bits
        return converted
    return _canonical_nan(converted) if source == np.float16 or to in (BFLOAT16, np.float16) else converted


def truncate(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Round float32 `values` towards zero to a 16-bit or 8-bit float.

    As on the GPU, the 8 bits are cut out of a 16-bit float.
    """
    if to == FP8E5:
        return (truncate(values, np.dtype(np.float16)).view(np.uint16) >> 8).astype(np.uint8).view(to)
    nearest = values.astype(to)
    too_far = np.abs(nearest.astype(np.float32)) > np.abs(values)
    one_towards_zero = (nearest.view(np.uint16) - 1).view(to)
    return _canonical_nan(np.where(too_far, one_towards_zero, nearest))


def truncate_to_tf32(values: np.ndarray) -> np.ndarray:
    """Clear the 13 mantissa bits of float32 `values` that a tensor core does not read."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def round_to_tf32(values: np.ndarray) -> np.ndarray:
    """Round float32 `values` to 10 mantissa bits, to nearest even; infinities and NaNs stay."""
    bits = values.view(np.uint32)
    rounded = bits + (((bits >> 13) & np.uint32(1)) + np.uint32(0xFFF))
    return np.where(np.isfinite(values), truncate_to_tf32(rounded.view(np.float32)), values)


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x · y + z, rounded once.

    Sums are rounded to odd where they are rounded again (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums: proved algorithms using rounding to odd", 2008).
    """
    wide = np.float64
    plain = x.astype(wide) * y.astype(wide) + z.astype(wide)
    with np.errstate(all="ignore"):  # what makes a NaN has been told
        if x.dtype != np.float64:  # the product is exact in float64
            return convert(_added_to_odd(x.astype(wide) * y.astype(wide), z.astype(wide)), x.dtype)
        product, product_error = _product(x, y)
        low, low_error = _sum(z, product_error)
        high, high_error = _sum(product, low)
        nearest = high + _added_to_odd(low_error, high_error)
        is_known = np.isfinite(nearest) & np.isfinite(plain) & (nearest != 0)
        result = np.where(is_known, nearest, plain)
        finite = np.isfinite(x) & np.isfinite(y)
        size = np.abs(x * y)
        far = finite & np.isfinite(z) & ((size > _LARGE) | (np.abs(z) > _LARGE) | ((size < 1 / _LARGE) & (x * y != 0)))
        for at in zip(*np.nonzero(far), strict=True):
            result[at] = _as_float(Fraction(x[at]) * Fraction(y[at]) + Fraction(z[at]), plain[at])
        return np.where(finite & np.isinf(z), z, result)


def _as_float(exact: Fraction, plain: float) -> float:
    """Round a number; `plain` is its sign where it is 0 or too large."""
    try:
        return float(exact) or math.copysign(0, plain)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a + b in float64, rounded, and the error."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a · b in float64, rounded, and the error."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    product = a * b
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * (2.0**27 + 1)
    high = scaled - (scaled - a)
    return high, a - high


def _added_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a + b in float64, rounded to odd: rounding it again then rounds the exact sum once."""
    total, error = _sum(a, b)
    is_even = total.view(np.int64) & 1 == 0
    inexact = is_even & (error != 0) & np.isfinite(error)
    return np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def flush_subnormals(values: np.ndarray) -> np.ndarray:
    """Replace subnormal float32 `values` by zeros, as the .ftz instructions do."""
    if values.dtype != np.float32:
        return values
    small = np.abs(values) < _TINY
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


def _to_fp8(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Round float32 `values` to nearest even, saturating at the largest finite number."""
    limit = np.float32(ml_dtypes.finfo(to).max)
    return _canonical_nan(np.clip(values, -limit, limit).astype(to))


def _canonical_nan(values: np.ndarray) -> np.ndarray:
    """Replace all NaNs of a float array by the GPU's, in place."""
    nan = np.isnan(values)
    if nan.any():
        values.view(f"u{values.itemsize}")[nan] = _CANONICAL_NAN[values.itemsize]
    return values


def _sticky_float64(values: np.ndarray) -> np.ndarray:
    """Convert integers to float64; low bits that do not fit are gathered in a sticky bit."""
    if values.dtype.itemsize < 8:
        return values.astype(np.float64)
    low = values & 0x7FF
    gathered = (values ^ low) | ((low != 0).astype(values.dtype) << 11)
    is_long = (values > 2**53) | ((values < 0) & ~(values >> 53 == -1) if values.dtype.kind == "i" else False)
    return np.where(is_long, gathered, values).astype(np.float64)


def _round_to_odd_float32(values: np.ndarray) -> np.ndarray:
    """Round float64 `values` to odd in float32, so that rounding them again rounds only once."""
    nearest = values.astype(np.float32)
    bits = nearest.view(np.uint32)
    widened = nearest.astype(np.float64)
    bits = bits - (np.abs(widened) > np.abs(values)).astype(np.uint32)
    inexact = (widened != values) & ~np.isnan(values)
    return (bits | inexact.astype(np.uint32)).view(np.float32)


def _float_to_integer(values: np.ndarray, to: np.dtype) -> np.ndarray:
    """Convert as cvt.rzi: towards zero, saturating.

    There are no 8-bit registers: 8 bits are the low half of 16.
    """
    register = np.dtype(f"{to.kind}{max(2, to.itemsize)}")
    limits = np.iinfo(register)
    wide = values.astype(np.float64)
    # float(limits.max) of a 64-bit type rounds up to a value that no longer fits
    low, high = wide <= float(limits.min), wide >= float(limits.max)
    nan = np.isnan(wide)
    integers = np.where(low | high | nan, 0.0, wide).astype(register)
    integers = np.where(high, limits.max, np.where(low, limits.min, integers)).astype(register)
    is_wide = register.itemsize == 8 or values.dtype == np.float64
    indefinite = np.array([1 << (8 * register.itemsize - 1)], dtype=f"u{register.itemsize}").view(register)
    return np.where(nan, indefinite if is_wide else register.type(0), integers).astype(to)
