"""Elementwise operations: arithmetic by type, mixed types, numbers, comparisons, functions."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from .conversions import TYPES
from .table import APPROXIMATE, EXACT, SIZE, Closeness, construct, every_kind, integers, normal

DIVISION = Closeness(relative=3e-7, reason="div.full.f32: 2 ulp")


@triton.jit
def binary_kernel(a_ptr, b_ptr, y_ptr, OP: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    if OP == "add":
        y = a + b
    elif OP == "subtract":
        y = a - b
    elif OP == "multiply":
        y = a * b
    elif OP == "divide":
        y = a / b
    elif OP == "floor divide":
        y = a // b
    elif OP == "modulo":
        y = a % b
    elif OP == "maximum":
        y = tl.maximum(a, b)
    elif OP == "minimum":
        y = tl.minimum(a, b)
    elif OP == "maximum with NaN":
        y = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "minimum with NaN":
        y = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "and":
        y = a & b
    elif OP == "or":
        y = a | b
    elif OP == "xor":
        y = a ^ b
    elif OP == "where":
        y = tl.where(a > b, a, b)
    else:
        tl.static_assert(False, "no such operation")
    tl.store(y_ptr + at, y)


def _binary(
    op: str,
    left: str,
    right: str,
    out: str,
    closeness: Closeness = EXACT,
    tame: bool = False,
) -> None:
    a_type, b_type = TYPES[left], TYPES[right]
    make = (lambda t, s: normal(SIZE, dtype=t, seed=s)) if tame else every_kind
    types = left if left == right else f"{left} and {right}"

    @construct(
        f"{op} {types} to {out}",
        closeness,
        a=lambda: make(a_type, 0),
        b=lambda: make(b_type, 1),
    )
    def run(a: Tensor, b: Tensor) -> Tensor:
        b = b.flip(0).contiguous()
        if op in ("floor divide", "modulo"):
            b = torch.where(b == 0, 3, b)  # dividing by zero is undefined
        y = torch.zeros(SIZE, dtype=TYPES[out], device=a.device)
        binary_kernel[(1,)](a, b, y, op, SIZE)
        return y


for _type in ("fp32", "fp16", "bf16", "fp64", "int32", "int64", "int16", "int8", "uint8"):
    for _op in ("add", "subtract", "multiply"):
        _binary(_op, _type, _type, _type)
    _binary("maximum", _type, _type, _type)
    _binary("minimum", _type, _type, _type)
for _type in ("fp32", "fp16", "bf16", "fp64"):
    _binary("where", _type, _type, _type)
    _binary("maximum with NaN", _type, _type, _type)
    _binary("minimum with NaN", _type, _type, _type)
for _type in ("fp32", "fp16", "bf16"):
    _binary("divide", _type, _type, "fp32", DIVISION, tame=True)
for _type in ("int32", "int64", "int8"):
    _binary("floor divide", _type, _type, _type)
    _binary("modulo", _type, _type, _type)
for _type in ("int32", "int1", "uint8"):
    for _op in ("and", "or", "xor"):
        _binary(_op, _type, _type, _type)
# two types: the result, stored in float32 or int64, shows what type the compiler chose
for _left, _right in (
    ("bf16", "fp32"),
    ("fp16", "bf16"),
    ("fp16", "fp32"),
    ("int32", "fp16"),
    ("int32", "bf16"),
):
    _binary("multiply", _left, _right, "fp32")
for _left, _right in (("int8", "int32"), ("uint8", "int8"), ("int32", "int64"), ("int1", "int32")):
    _binary("add", _left, _right, "int64")


@triton.jit
def number_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * 1.1)
    tl.store(y_ptr + SIZE + at, 3 - x)
    tl.store(y_ptr + 2 * SIZE + at, x + 1e-3)
    tl.store(y_ptr + 3 * SIZE + at, -x)
    third = 1.1
    tl.store(y_ptr + 4 * SIZE + at, x * third)  # a name makes it a float32 scalar


def _numbers(name: str) -> None:
    @construct(f"Python numbers with {name}", EXACT, x=lambda: normal(SIZE, dtype=TYPES[name]))
    def run(x: Tensor) -> Tensor:
        y = torch.zeros(5 * SIZE, device=x.device)
        number_kernel[(1,)](x, y, SIZE)
        return y


for _type in ("fp32", "fp16", "bf16"):
    _numbers(_type)


@triton.jit
def argument_kernel(x_ptr, y_ptr, scale, shift, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * scale)
    tl.store(y_ptr + SIZE + at, x + shift)


def _arguments(name: str) -> None:
    @construct(
        f"float and int arguments with {name}",
        EXACT,
        x=lambda: normal(SIZE, dtype=TYPES[name]),
    )
    def run(x: Tensor) -> Tensor:
        y = torch.zeros(2 * SIZE, device=x.device)
        argument_kernel[(1,)](x, y, 1.1, 7, SIZE)
        return y


for _type in ("fp32", "fp16", "bf16"):
    _arguments(_type)


@triton.jit
def integer_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    by = (at % 31).to(x.dtype)
    tl.store(y_ptr + at, x << by)
    tl.store(y_ptr + SIZE + at, x >> by)
    tl.store(y_ptr + 2 * SIZE + at, ~x)
    tl.store(y_ptr + 3 * SIZE + at, -x)
    tl.store(y_ptr + 4 * SIZE + at, tl.abs(x))
    tl.store(y_ptr + 5 * SIZE + at, tl.cdiv(x, 7))
    tl.store(y_ptr + 6 * SIZE + at, x // 7)
    tl.store(y_ptr + 7 * SIZE + at, x % 7)
    tl.store(y_ptr + 8 * SIZE + at, x * x * x)


def _integers(name: str) -> None:
    @construct(f"shifts, negation and division of {name}", EXACT, x=lambda: every_kind(TYPES[name]))
    def run(x: Tensor) -> Tensor:
        y = torch.zeros(9 * SIZE, dtype=x.dtype, device=x.device)
        integer_kernel[(1,)](x, y, SIZE)
        return y


for _type in ("int32", "int64"):
    _integers(_type)


@triton.jit
def unsigned_kernel(x_ptr, z_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at).to(tl.uint32, bitcast=True)
    z = tl.load(z_ptr + at).to(tl.uint32, bitcast=True) | 1
    tl.store(y_ptr + at, (x >> 3).to(tl.int32, bitcast=True))
    tl.store(y_ptr + SIZE + at, (x // z).to(tl.int32, bitcast=True))
    tl.store(y_ptr + 2 * SIZE + at, (x % z).to(tl.int32, bitcast=True))
    tl.store(y_ptr + 3 * SIZE + at, (x > z).to(tl.int32))
    tl.store(y_ptr + 4 * SIZE + at, tl.umulhi(x, z).to(tl.int32, bitcast=True))
    tl.store(y_ptr + 5 * SIZE + at, tl.maximum(x, z).to(tl.int32, bitcast=True))
    tl.store(y_ptr + 6 * SIZE + at, (x + z).to(tl.int64).to(tl.int32))


@construct(
    "unsigned arithmetic",
    x=lambda: every_kind(torch.int32),
    z=lambda: every_kind(torch.int32, 1),
)
def _unsigned(x: Tensor, z: Tensor) -> Tensor:
    y = torch.zeros(7 * SIZE, dtype=torch.int32, device=x.device)
    unsigned_kernel[(1,)](x, z, y, SIZE)
    return y


@triton.jit
def compare_kernel(a_ptr, b_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    bits = (a < b).to(tl.int32) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b) + 16 * (a == b) + 32 * (a != b)
    tl.store(y_ptr + at, bits + 64 * (a < 1) + 128 * (a > 0.5) + 256 * (a != a))


def _compare(name: str) -> None:
    @construct(
        f"comparisons of {name}",
        EXACT,
        a=lambda: every_kind(TYPES[name]),
        b=lambda: every_kind(TYPES[name], 1),
    )
    def run(a: Tensor, b: Tensor) -> Tensor:
        y = torch.zeros(SIZE, dtype=torch.int32, device=a.device)
        compare_kernel[(1,)](a, b, y, SIZE)
        return y


for _type in ("fp32", "fp16", "bf16", "fp64", "int32", "int8"):
    _compare(_type)


@triton.jit
def clamp_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.clamp(x, -2.0, 3.0))
    tl.store(y_ptr + SIZE + at, tl.clamp(x, -2.0, 3.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(y_ptr + 2 * SIZE + at, tl.abs(x))


def _clamp(name: str) -> None:
    @construct(f"clamp and abs of {name}", EXACT, x=lambda: every_kind(TYPES[name]))
    def run(x: Tensor) -> Tensor:
        y = torch.zeros(3 * SIZE, dtype=x.dtype, device=x.device)
        clamp_kernel[(1,)](x, y, SIZE)
        return y


for _type in ("fp32", "fp16", "bf16"):
    _clamp(_type)


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


def _function(function: str, closeness: Closeness) -> None:
    @construct(f"{function} of fp32", closeness, x=lambda: normal(SIZE) * 5)
    def run(x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        function_kernel[(1,)](x, y, function, SIZE)
        return y


for _name in (
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "erf",
    "sigmoid",
    "softmax",
):
    _function(_name, APPROXIMATE)
for _name in ("libdevice tanh", "libdevice exp", "libdevice log1p", "libdevice rsqrt"):
    _function(_name, APPROXIMATE)
for _name in ("sqrt_rn", "floor", "ceil", "fma"):
    _function(_name, EXACT)
_function("div_rn", Closeness(relative=2e-7, reason="its divisor may be one fused multiply-add"))


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
    dtype = TYPES[name]
    inputs = {key: (lambda seed=seed: normal(SIZE, seed=seed).to(dtype) * 5) for seed, key in enumerate("abc")}

    @construct(f"libdevice {function} of {name}", closeness, **inputs)
    def run(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y = torch.zeros_like(a)
        library_kernel[(1,)](a, b, c, y, function, SIZE)
        return y


for _name in ("add_rn", "sub_rn", "mul_rn", "div_rn", "fma_rn", "sqrt_rn", "rcp_rn"):
    _library(_name, "fp32", EXACT)
    _library(_name, "fp64", EXACT)
_library("rsqrt_rn", "fp32", EXACT)
for _name in ("fast_dividef", "fast_log2f", "fast_log10f", "fast_exp10f"):
    _library(_name, "fp32", APPROXIMATE)
_library(
    "fast_tanf",
    "fp32",
    Closeness(relative=1e-4, absolute=1e-5, reason="a quotient of fast sine and cosine"),
)


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


SPECIAL = [
    0.0,
    -0.0,
    float("nan"),
    float("inf"),
    -float("inf"),
    1.0,
    -1.0,
    88.0,
    89.0,
    -87.0,
    -104.0,
    128.0,
    -150.0,
]


@construct("functions at special values", APPROXIMATE, x=torch.tensor([*SPECIAL, 2.0, 0.5, 1e30]))
def _special(x: Tensor) -> Tensor:
    y = torch.zeros(6 * 16, device=x.device)
    exponential_kernel[(1,)](x, y, 16)
    return y


@triton.jit
def contraction_kernel(a_ptr, b_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(y_ptr + at, a * b + a)


def _contraction(name: str, closeness: Closeness) -> None:
    make = lambda seed: normal(SIZE, dtype=TYPES[name], seed=seed)  # noqa: E731

    @construct(f"multiply-add in {name}", closeness, a=lambda: make(0), b=lambda: make(1))
    def run(a: Tensor, b: Tensor) -> Tensor:
        y = torch.zeros(SIZE, device=a.device)
        contraction_kernel[(1,)](a, b, y, SIZE)
        return y


_contraction("fp32", Closeness(absolute=2e-7, reason="the GPU fuses it into one rounding"))
_contraction("fp16", Closeness(absolute=1e-3, reason="the GPU fuses it into one rounding"))
_contraction("bf16", Closeness(absolute=8e-3, reason="the GPU fuses it into one rounding"))


@construct("exp2 of integers is exact", EXACT, x=integers(-126, 128, 256).float())
def _powers(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    function_kernel[(1,)](x, y, "exp2", 256)
    return y
