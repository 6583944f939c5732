"""NVIDIA's libdevice functions that have a NumPy meaning; the others say that they need a GPU."""

from collections.abc import Callable

import numpy as np
import torch
from triton.language.extra import libdevice


def _with_torch(function: Callable) -> Callable[..., np.ndarray]:
    return lambda *args: function(*(torch.from_numpy(np.ascontiguousarray(x)) for x in args)).numpy()


_FUNCTIONS: dict[str, Callable] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _with_torch(torch.erf),
    "erfc": _with_torch(torch.erfc),
    "exp": np.exp,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "floor": np.floor,
    "fma": lambda x, y, z: x.astype(np.float64) * y + z,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "isfinited": np.isfinite,
    "finite": np.isfinite,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "ldexp": np.ldexp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "pow": np.power,
    "powi": np.power,
    "rint": np.rint,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_FAST = {"fast_expf": "exp", "fast_logf": "log", "fast_sinf": "sin", "fast_cosf": "cos", "fast_powf": "pow"}


def extern_function(symbol: str) -> Callable[..., np.ndarray]:
    """The NumPy function for a libdevice symbol such as `__nv_expf`.

    Raises NotImplementedError for a symbol without one.
    """
    name = symbol.removeprefix("__nv_")
    name = _FAST.get(name, name)
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(
            f"libdevice.{_as_called(name)} is not supported by the simulator, run with --device cuda"
        )
    return function


def _as_called(name: str) -> str:
    """Triton's name for a function that libdevice has once for each type: "sqrt_rn" for `fsqrt_rn`."""
    return next((short for short in (name, name.removesuffix("f"), name[1:]) if hasattr(libdevice, short)), name)
