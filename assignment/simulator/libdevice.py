"""NVIDIA's libdevice functions, as Triton links them: those of float32 flush subnormal numbers.

What they do at edges is written in the PTX ISA (rounding, cvt, subnormal numbers) and in libdevice's own bitcode, which
comes with Triton. Values between are those of NumPy and PyTorch in more digits, rounded once.
"""

import functools
import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from triton.language.extra import libdevice

from .faults import UNSUPPORTED
from .numerics import convert, flush_subnormals, fused

Function = Callable[..., np.ndarray]


def with_torch(function: Callable) -> Function:
    return lambda *args: function(*(torch.from_numpy(np.ascontiguousarray(x)) for x in args)).numpy()


def _in_float64(function: Callable) -> Function:
    """Make a function of PyTorch's one that is rounded once."""
    return lambda x: with_torch(function)(x.astype(np.float64)).astype(x.dtype)


def _wide(x: np.ndarray) -> np.ndarray:
    """Convert to more digits, so that the result is rounded once."""
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


def _each(function: Callable, *args: np.ndarray) -> np.ndarray:
    """Call a function of Python's numbers for each element."""
    return np.asarray(np.frompyfunc(function, len(args), 1)(*(x.astype(object) for x in args)))


def _of_integers(function: Callable[..., int]) -> Function:
    """Make a function of a width in bits and of Python's integers one of arrays; low bits of results are kept."""

    def of_arrays(*args: np.ndarray) -> np.ndarray:
        width = 8 * args[0].itemsize
        found = _each(lambda *values: function(width, *values) % (1 << width), *args)
        return found.astype(f"u{args[0].itemsize}").view(args[0].dtype)

    return of_arrays


def _of_floats(function: Callable[..., float]) -> Function:
    """Make a function of Python's floats one of arrays."""
    return lambda *args: _each(function, *args).astype(args[-1].dtype)


def _signed_24(value: int) -> int:
    return ((value & 0xFFFFFF) ^ 0x800000) - 0x800000


def _permuted(width: int, low: int, high: int, selector: int) -> int:
    """Return four of eight bytes, each by the low three bits of its digit of the selector."""
    given = ((high % (1 << 32)) << 32 | low % (1 << 32)).to_bytes(8, "little")
    return int.from_bytes([given[selector >> 4 * i & 7] for i in range(4)], "little")


_INTEGERS: dict[str, Function] = {
    "clz": _of_integers(lambda width, x: width - (x % (1 << width)).bit_length()),
    "popc": _of_integers(lambda width, x: (x % (1 << width)).bit_count()),
    "ffs": _of_integers(lambda width, x: (x & -x).bit_length()),
    "brev": _of_integers(lambda width, x: int(f"{x % (1 << width):0{width}b}"[::-1], 2)),
    "mulhi": _of_integers(lambda width, x, y: x * y >> width),
    "mul24": _of_integers(lambda width, x, y: _signed_24(x) * _signed_24(y)),
    "umul24": _of_integers(lambda width, x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)),
    "hadd": _of_integers(lambda width, x, y: x + y >> 1),
    "rhadd": _of_integers(lambda width, x, y: x + y + 1 >> 1),
    "sad": _of_integers(lambda width, x, y, z: abs(x - y) + z),
    "byte_perm": _of_integers(_permuted),
    "abs": np.abs,
}
_BITS: dict[str, Function] = {
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "double2hiint": lambda x: (x.view(np.int64) >> 32).astype(np.int32),
    "double2loint": lambda x: x.view(np.int64).astype(np.int32),
    "hiloint2double": lambda high, low: ((high.astype(np.int64) << 32) | low.view(np.uint32)).view(np.float64),
}


# one operation, rounded as its name says

_NEAREST: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(_wide(x)),
    "fma": fused,
}
_EXCESS: dict[str, Callable[..., Fraction]] = {  # of a result over the exact one, or a number of its sign
    "add": lambda result, x, y: result - (x + y),
    "sub": lambda result, x, y: result - (x - y),
    "mul": lambda result, x, y: result - x * y,
    "div": lambda result, x, y: result - x / y,
    "rcp": lambda result, x: result - 1 / x,
    "sqrt": lambda result, x: result * result - x,
    "fma": lambda result, x, y, z: result - (x * y + z),
    "to": lambda result, x: result - x,
}

_ADDENDS: dict[str, Callable[..., tuple[float, float]]] = {  # whose exact sum 0 is -0 when it is rounded down
    "add": lambda x, y: (x, y),
    "sub": lambda x, y: (x, -y),
    "fma": lambda x, y, z: (math.copysign(1, x) * math.copysign(1, y), z),
}


def _directed(name: str, mode: str, nearest: np.ndarray, *args: np.ndarray) -> np.ndarray:
    """Return what a result that is rounded to nearest is, rounded towards zero ("z"), down ("d") or up ("u")."""

    def one(result: float, *operands: float) -> float:
        is_pole = name in ("div", "rcp") and operands[-1] == 0
        if is_pole or math.isnan(result) or not all(map(math.isfinite, operands)):
            return result
        excess = result if math.isinf(result) else _EXCESS[name](Fraction(result), *map(Fraction, operands))
        if excess == 0:
            addends = map(functools.partial(math.copysign, 1), _ADDENDS[name](*operands)) if name in _ADDENDS else ()
            return -0.0 if mode == "d" and result == 0 and -1 in addends else result
        is_off = {"d": excess > 0, "u": excess < 0, "z": (excess > 0) == (result > 0) and result != 0}[mode]
        towards = {"d": -math.inf, "u": math.inf, "z": 0.0}[mode]
        return float(np.nextafter(nearest.dtype.type(result), nearest.dtype.type(towards))) if is_off else result

    return _each(one, nearest, *args).astype(nearest.dtype)


def _arithmetic(name: str, mode: str) -> Function:
    def of_arrays(*args: np.ndarray) -> np.ndarray:
        nearest = _NEAREST[name](*args).astype(args[0].dtype)
        return nearest if mode == "n" else _directed(name, mode, nearest, *args)

    return of_arrays


_TYPES = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "uint": np.uint32,
    "ll": np.int64,
    "ull": np.uint64,
}
_TO_INTEGER = {"n": np.rint, "z": np.trunc, "d": np.floor, "u": np.ceil}


def _conversion(to: str, mode: str) -> Function:
    dtype = np.dtype(_TYPES[to])

    def of_array(x: np.ndarray) -> np.ndarray:
        if dtype.kind in "iu":
            return convert(_TO_INTEGER[mode](x), dtype)
        nearest = x.astype(dtype)
        return nearest if mode == "n" else _directed("to", mode, nearest, x)

    return of_array


_ROUNDED = re.compile(r"[fd]?(add|sub|mul|div|rcp|r?sqrt|fma)f?_r([nzdu])")
_CONVERSION = re.compile(r"(?:float|double|u?int|u?ll)2(float|double|u?int|u?ll)_r([nzdu])")


# floats


def _half_turns(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sin(π x) and cos(π x): x is reduced before, exactly."""
    turned = np.fmod(x, 2)
    quarter = np.rint(2 * turned)
    angle = np.pi * (turned - quarter / 2).astype(np.float64)
    of = (quarter % 4).astype(np.float64)
    sine = np.choose(np.nan_to_num(of).astype(int), [np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)])
    cosine = np.choose(np.nan_to_num(of).astype(int), [np.cos(angle), -np.sin(angle), -np.cos(angle), np.sin(angle)])
    sine = np.where(turned == np.trunc(turned), np.copysign(0, x), sine)
    nan = np.isnan(turned)
    return np.where(nan, np.nan, sine).astype(x.dtype), np.where(nan, np.nan, cosine + 0.0).astype(x.dtype)


def _round(x: np.ndarray) -> np.ndarray:
    """Round to the nearest integer, halves away from zero: x plus a half, towards zero, has that integer's part."""
    whole = np.trunc(x)
    return np.copysign(whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0), x).astype(x.dtype)


def _length(*args: np.ndarray) -> np.ndarray:
    """Return the Euclidean norm in more digits; infinite beside an infinity, whatever else there is."""
    wide = [_wide(flush_subnormals(x)) for x in args]
    return np.where(np.isinf(wide).any(axis=0), np.inf, np.sqrt(sum(x**2 for x in wide)))


def _norm(*args: np.ndarray) -> np.ndarray:
    return _length(*args).astype(args[0].dtype)


def _inverse_norm(*args: np.ndarray) -> np.ndarray:
    return (1 / _length(*args)).astype(args[0].dtype)


def _by_squares(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return a power to an integer, each product of which is rounded."""
    result, left = np.ones_like(x), np.abs(exponent.astype(np.int64))
    while left.any():
        result = np.where(left & 1, result * x, result)
        x, left = x * x, left >> 1
    return np.where(exponent < 0, 1 / result, result)


def _remainder(x: float, y: float) -> float:
    return math.remainder(x, y) if math.isfinite(x) and y != 0 else math.nan


def _gamma(x: float) -> float:
    if x == 0 or math.isinf(x):
        return math.copysign(math.inf, x) if x == 0 or x > 0 else math.nan
    try:
        return math.gamma(x)
    except OverflowError:
        return math.copysign(math.inf, x) if abs(x) < 1 else math.inf
    except ValueError:  # a negative integer
        return math.nan


def _exponent(x: np.ndarray, of_zero: float, of_infinity: float, of_nan: float) -> np.ndarray:
    exponent = np.frexp(x)[1] - 1.0
    for lanes, value in ((x == 0, of_zero), (np.isinf(x), of_infinity), (np.isnan(x), of_nan)):
        exponent = np.where(lanes, value, exponent)
    return exponent


def _vanishing(function: Callable) -> Function:
    """Make a function of PyTorch's that has no value at infinity 0 there."""
    return lambda x: np.where(np.isinf(x) & (x > 0), np.copysign(0, x), _in_float64(function)(x)).astype(x.dtype)


def _bessel(first: Function, second: Function, *, of_second_kind: bool) -> Function:
    """Make a Bessel function of any order of those of orders 0 and 1.

    By the recurrence upwards where that is stable, else by Bessel's integral (DLMF 10.6.1 and 10.9.2).
    """

    def one(order: int, x: float) -> float:
        if math.isnan(x) or order < 0:
            return math.nan
        if order > _MOST_ORDERS:
            raise NotImplementedError(_OTHER_ORDERS)
        if not of_second_kind and order > abs(x):
            turns = (np.arange(2 * order + 64) + 0.5) * np.pi / (2 * order + 64)
            return float(np.mean(np.cos(order * turns - x * np.sin(turns))))
        before, now = (float(f(np.array([x]))[0]) for f in (first, second))
        for n in range(1, order):
            before, now = now, (2 * n / x) * now - before if math.isfinite(now) else now
        return before if order == 0 else now

    return _of_floats(one)


_MOST_ORDERS = 4096
_OTHER_ORDERS = f"libdevice.jn or yn of an order above {_MOST_ORDERS} {UNSUPPORTED}"
_J, _Y = ([_vanishing(getattr(torch.special, f"bessel_{kind}{order}")) for order in "01"] for kind in ("j", "y"))
_NUMPYS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin fmod hypot isinf isnan
ldexp log log10 log1p log2 nextafter pow rint signbit sin sinh sqrt tan tanh trunc
"""
_FLOATS: dict[str, Function] = {
    **{name: getattr(np, name) for name in _NUMPYS.split()},
    "cospi": lambda x: _half_turns(x)[1],
    "cyl_bessel_i0": _in_float64(torch.special.i0),
    "cyl_bessel_i1": lambda x: np.where(np.isinf(x), x, np.copysign(_in_float64(torch.special.i1)(x), x)),
    "erf": with_torch(torch.erf),
    "erfc": with_torch(torch.erfc),
    "erfcinv": lambda x: (_in_float64(torch.special.ndtri)(_wide(x) / 2) / -np.sqrt(2)).astype(x.dtype),
    "erfcx": _in_float64(torch.special.erfcx),
    "erfinv": _in_float64(torch.erfinv),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "fabs": np.abs,
    "fast_fdividef": np.divide,
    "fast_powf": lambda x, y: np.exp2(y * np.log2(x)),
    "fdim": lambda x, y: np.where(x <= y, x.dtype.type(0), x - y),
    "finite": np.isfinite,
    "fma": fused,
    "ilogb": lambda x: convert(_exponent(x, -math.inf, math.inf, -math.inf), np.dtype(np.int32)),
    "isfinited": np.isfinite,
    "isinfd": np.isinf,
    "isnand": np.isnan,
    "j0": _J[0],
    "j1": _J[1],
    "jn": _bessel(_J[0], _J[1], of_second_kind=False),
    "lgamma": _in_float64(torch.lgamma),
    "llrint": _conversion("ll", "n"),
    "llround": lambda x: convert(_round(x), np.dtype(np.int64)),
    "logb": lambda x: _exponent(x, -math.inf, math.inf, math.nan).astype(x.dtype),
    "nearbyint": np.rint,
    "norm3d": _norm,
    "norm4d": _norm,
    "normcdf": _in_float64(lambda x: torch.erfc(x / -math.sqrt(2)) / 2),
    "normcdfinv": _in_float64(torch.special.ndtri),
    "powi": _by_squares,
    "rcbrt": lambda x: (1 / np.cbrt(_wide(x))).astype(x.dtype),
    "remainder": _of_floats(_remainder),
    "round": _round,
    "rhypot": _inverse_norm,
    "rnorm3d": _inverse_norm,
    "rnorm4d": _inverse_norm,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "saturatef": lambda x: np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1)),
    "scalbn": np.ldexp,
    "signbitd": np.signbit,
    "sinpi": lambda x: _half_turns(x)[0],
    "tgamma": _of_floats(_gamma),
    "y0": _Y[0],
    "y1": _Y[1],
    "yn": _bessel(_Y[0], _Y[1], of_second_kind=True),
}

_FAST = {f"__nv_fast_{name}f": name for name in ("cos", "exp", "exp10", "log", "log10", "log2", "sin", "tan")}
_PER_TYPE = {  # of integers, by the name that Triton has for both
    **{f"{name}ll": name for name in ("clz", "popc", "ffs", "brev")},
    **{f"u{name}": name for name in ("mulhi", "hadd", "rhadd", "sad")},
    **dict.fromkeys(("mul64hi", "umul64hi"), "mulhi"),
    "llabs": "abs",
}
_KEEP_SUBNORMALS = """
copysign erfinv exp exp10 finite isinf isnan ldexp llrint llround log log10 log2 logb nearbyint nextafter rhypot rint
rnorm3d rnorm4d round scalbn signbit trunc
"""
# rounded correctly, or chosen from what there is: nothing about them is left open
_EXACT = """
ceil copysign fabs fdim floor fma fmax fmin fmod ldexp nearbyint nextafter remainder rint round saturatef scalbn trunc
"""


def extern_function(symbol: str) -> Function:
    """Return the function of arrays for a libdevice symbol such as `__nv_expf`.

    Raises NotImplementedError for a symbol without one.
    """
    found = _found(symbol.removeprefix("__nv_"))
    if found is None:
        name = _as_called(symbol.removeprefix("__nv_"))
        raise NotImplementedError(f"libdevice.{name} {UNSUPPORTED}")
    name, function = found
    keeps = name in _BITS or (name in _KEEP_SUBNORMALS.split() and symbol not in _FAST)
    return function if keeps else _flushing(function)


def is_exact(symbol: str) -> bool:
    """Return whether a function is rounded correctly."""
    name = symbol.removeprefix("__nv_")
    found = _found(name)
    return bool(_ROUNDED.fullmatch(name)) or (found is not None and found[0] in _EXACT.split())


def _found(name: str) -> tuple[str, Function] | None:
    """Return a function and its name in the tables."""
    if match := _ROUNDED.fullmatch(name):
        return name, _arithmetic(*match.groups())
    if match := _CONVERSION.fullmatch(name):
        return name, _conversion(*match.groups())
    for table in (_INTEGERS, _BITS, _FLOATS):
        for short in _short(name):
            if short in table:
                return short, table[short]
    return None


def _flushing(function: Function) -> Function:
    return lambda *args: flush_subnormals(np.asarray(function(*map(flush_subnormals, args))))


def _as_called(name: str) -> str:
    """Return Triton's name for a function that libdevice has per type."""
    return next((short for short in _short(name) if hasattr(libdevice, short)), name)


def _short(name: str) -> tuple[str, ...]:
    """Return the names of a function that libdevice has per type, "sinf" and "sin", as it is called first."""
    return name, _PER_TYPE.get(name) or _FAST.get(f"__nv_{name}", name), name.removesuffix("f")
