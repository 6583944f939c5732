"""NVIDIA's libdevice functions that have a NumPy equivalent; the others need a GPU."""

from collections.abc import Callable

import numpy as np
import torch
from triton.language.extra import libdevice

from .numerics import fused


def with_torch(function: Callable) -> Callable[..., np.ndarray]:
    return lambda *args: function(*(torch.from_numpy(np.ascontiguousarray(x)) for x in args)).numpy()


def _wide(x: np.ndarray) -> np.ndarray:
    """Convert to more digits, so that the result is rounded once."""
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


_NUMPYS = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh exp exp2 expm1 floor fmax fmin fmod hypot isinf
isnan ldexp log log10 log1p log2 pow rint signbit sin sinh sqrt tan tanh trunc
"""
_FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(np, name) for name in _NUMPYS.split()},
    "add_rn": np.add,
    "div_rn": np.divide,
    "erf": with_torch(torch.erf),
    "erfc": with_torch(torch.erfc),
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "fabs": np.abs,
    "fast_fdividef": np.divide,
    "finite": np.isfinite,
    "fma": fused,
    "fma_rn": fused,
    "isfinited": np.isfinite,
    "isinfd": np.isinf,
    "isnand": np.isnan,
    "mul_rn": np.multiply,
    "nearbyint": np.rint,
    "powi": np.power,
    "rcp_rn": lambda x: 1 / x,
    "round": lambda x: np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1 / np.sqrt(_wide(x)),
    "sqrt_rn": np.sqrt,
    "sub_rn": np.subtract,
}
_FAST = {f"fast_{name}f": name for name in ("cos", "exp", "exp10", "log", "log10", "log2", "pow", "sin", "tan")}


def extern_function(symbol: str) -> Callable[..., np.ndarray]:
    """Return the NumPy function for a libdevice symbol such as `__nv_expf`.

    Raises NotImplementedError for a symbol without one.
    """
    name = symbol.removeprefix("__nv_")
    name = _FAST.get(name, name)
    function = next((_FUNCTIONS[short] for short in _short(name) if short in _FUNCTIONS), None)
    if function is None:
        raise NotImplementedError(
            f"libdevice.{_as_called(name)} is not supported by the simulator, run with --device cuda"
        )
    return function


def is_exact(symbol: str) -> bool:
    """Return whether a function is rounded correctly."""
    return "_rn" in symbol or "fma" in symbol


def _as_called(name: str) -> str:
    """Return Triton's name for a function that libdevice has per type: "sqrt_rn" for `fsqrt_rn`."""
    return next((short for short in _short(name) if hasattr(libdevice, short)), name)


def _short(name: str) -> tuple[str, ...]:
    """Return the names of a function that libdevice has per type: "sinf", "fsqrt_rn", "fmaf_rn"."""
    return (name, name.removesuffix("f"), *((name.replace("f_", "_"), name[1:]) if "_r" in name else ()))
