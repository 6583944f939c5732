"""Mathematical functions, those of libdevice among them: of usual values, special ones, integers."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .conversions import TYPES
from .table import APPROXIMATE, EXACT, SIZE, Closeness, construct, integers, normal, out


@triton.jit
def function_kernel(x_ptr, y_ptr, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    if FUNCTION == "exp":
        y = tl.exp(x)
    elif FUNCTION == "exp2":
        y = tl.exp2(x)
    elif FUNCTION == "log":
        y = tl.log(tl.abs(x))
    elif FUNCTION == "log2":
        y = tl.math.log2(tl.abs(x))
    elif FUNCTION == "sqrt":
        y = tl.sqrt(tl.abs(x))
    elif FUNCTION == "sqrt_rn":
        y = tl.sqrt_rn(tl.abs(x))
    elif FUNCTION == "rsqrt":
        y = tl.rsqrt(tl.abs(x))
    elif FUNCTION == "sin":
        y = tl.sin(x)
    elif FUNCTION == "cos":
        y = tl.cos(x)
    elif FUNCTION == "erf":
        y = tl.erf(x)
    elif FUNCTION == "sigmoid":
        y = tl.sigmoid(x)
    elif FUNCTION == "softmax":
        y = tl.softmax(x)
    elif FUNCTION == "floor":
        y = tl.floor(x)
    elif FUNCTION == "ceil":
        y = tl.ceil(x)
    elif FUNCTION == "div_rn":
        y = tl.div_rn(x, 3.0 + x * x)
    elif FUNCTION == "fma":
        y = tl.fma(x, x, x)
    elif FUNCTION == "libdevice tanh":
        y = libdevice.tanh(x)
    elif FUNCTION == "libdevice exp":
        y = libdevice.exp(x)
    elif FUNCTION == "libdevice log1p":
        y = libdevice.log1p(tl.abs(x))
    elif FUNCTION == "libdevice rsqrt":
        y = libdevice.rsqrt(tl.abs(x))
    else:
        tl.static_assert(False, "no such function")
    tl.store(y_ptr + at, y)


_QUOTIENT = Closeness(relative=2e-7, reason="its divisor may be one fused multiply-add")
_NAMES = "exp exp2 log log2 sqrt rsqrt sin cos erf sigmoid softmax sqrt_rn floor ceil fma div_rn"
for _name in (*_NAMES.split(), "libdevice tanh", "libdevice exp", "libdevice log1p", "libdevice rsqrt"):
    _close = EXACT if _name in ("sqrt_rn", "floor", "ceil", "fma") else _QUOTIENT if _name == "div_rn" else APPROXIMATE
    construct(
        f"{_name} of fp32", function_kernel, lambda x, name=_name: (x, out(SIZE), name, SIZE), _close,
        x=normal(SIZE) * 5,
    )  # fmt: skip


@triton.jit
def library_kernel(a_ptr, b_ptr, c_ptr, y_ptr, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b, c = tl.load(a_ptr + at), tl.load(b_ptr + at), tl.load(c_ptr + at)
    if FUNCTION == "add_rn":
        y = libdevice.add_rn(a, b)
    elif FUNCTION == "sub_rn":
        y = libdevice.sub_rn(a, b)
    elif FUNCTION == "mul_rn":
        y = libdevice.mul_rn(a, b)
    elif FUNCTION == "div_rn":
        y = libdevice.div_rn(a, b)
    elif FUNCTION == "fma_rn":
        y = libdevice.fma_rn(a, b, c)
    elif FUNCTION == "sqrt_rn":
        y = libdevice.sqrt_rn(a)
    elif FUNCTION == "rcp_rn":
        y = libdevice.rcp_rn(a)
    elif FUNCTION == "rsqrt_rn":
        y = libdevice.rsqrt_rn(a)
    elif FUNCTION == "fast_dividef":
        y = libdevice.fast_dividef(a, b)
    elif FUNCTION == "fast_log2f":
        y = libdevice.fast_log2f(a)
    elif FUNCTION == "fast_log10f":
        y = libdevice.fast_log10f(a)
    elif FUNCTION == "fast_tanf":
        y = libdevice.fast_tanf(a)
    else:
        y = libdevice.fast_exp10f(a)
    tl.store(y_ptr + at, y)


def _library(function: str, name: str, closeness: Closeness) -> None:
    inputs = {key: normal(SIZE, seed=seed).to(TYPES[name]) * 5 for seed, key in enumerate("abc")}
    construct(
        f"libdevice {function} of {name}", library_kernel,
        lambda a, b, c: (a, b, c, out(SIZE, dtype=a.dtype), function, SIZE), closeness, (1,), **inputs,
    )  # fmt: skip


for _name in ("add_rn", "sub_rn", "mul_rn", "div_rn", "fma_rn", "sqrt_rn", "rcp_rn"):
    _library(_name, "fp32", EXACT)
    _library(_name, "fp64", EXACT)
_library("rsqrt_rn", "fp32", EXACT)
for _name in ("fast_dividef", "fast_log2f", "fast_log10f", "fast_exp10f"):
    _library(_name, "fp32", APPROXIMATE)
_library("fast_tanf", "fp32", Closeness(1e-4, 1e-5, reason="a quotient of fast sine and cosine"))


@triton.jit
def exponential_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.exp(x))
    tl.store(y_ptr + SIZE + at, tl.exp2(x))
    tl.store(y_ptr + 2 * SIZE + at, tl.log(x))
    tl.store(y_ptr + 3 * SIZE + at, tl.sqrt(x))
    tl.store(y_ptr + 4 * SIZE + at, tl.rsqrt(x))
    tl.store(y_ptr + 5 * SIZE + at, 1.0 / x)


_inf = float("inf")
SPECIAL = [0.0, -0.0, float("nan"), _inf, -_inf, 1.0, -1.0, 88.0, 89.0, -87.0, -104.0, 128.0, -150.0, 2.0, 0.5, 1e30]
_x = torch.tensor(SPECIAL)
construct("functions at special values", exponential_kernel, lambda x: (x, out(6 * 16), 16), APPROXIMATE, x=_x)
_x = integers(-126, 128, 256).float()
construct("exp2 of integers is exact", function_kernel, lambda x: (x, out(256), "exp2", 256), x=_x)
