"""Elementwise operations: arithmetic by type, mixed types, numbers, comparisons."""

import torch
import triton
import triton.language as tl

from .conversions import TYPES
from .table import EXACT, SIZE, Closeness, construct, every_kind, normal, out

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


def _binary(op: str, left: str, right: str, to: str, closeness: Closeness = EXACT, make=every_kind) -> None:
    def given(a, b):
        b = b.flip(0).contiguous()
        if op in ("floor divide", "modulo"):
            b = torch.where(b == 0, 3, b)  # dividing by zero is undefined
        return a, b, out(SIZE, dtype=TYPES[to]), op, SIZE

    types = left if left == right else f"{left} and {right}"
    a, b = make(TYPES[left], 0), make(TYPES[right], 1)
    construct(f"{op} {types} to {to}", binary_kernel, given, closeness, a=a, b=b)


def _tame(dtype: torch.dtype, seed: int) -> torch.Tensor:
    return normal(SIZE, dtype=dtype, seed=seed)


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
    _binary("divide", _type, _type, "fp32", DIVISION, _tame)
for _type in ("int32", "int64", "int8"):
    _binary("floor divide", _type, _type, _type)
    _binary("modulo", _type, _type, _type)
for _type in ("int32", "int1", "uint8"):
    for _op in ("and", "or", "xor"):
        _binary(_op, _type, _type, _type)
# two types: the result, stored in float32 or int64, shows what type the compiler chose
for _pair in ("bf16", "fp32"), ("fp16", "bf16"), ("fp16", "fp32"), ("int32", "fp16"), ("int32", "bf16"):
    _binary("multiply", *_pair, "fp32")
for _pair in ("int8", "int32"), ("uint8", "int8"), ("int32", "int64"), ("int1", "int32"):
    _binary("add", *_pair, "int64")


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


for _type in ("fp32", "fp16", "bf16"):
    _x = normal(SIZE, dtype=TYPES[_type])
    construct(f"Python numbers with {_type}", number_kernel, lambda x: (x, out(5 * SIZE), SIZE), x=_x)


@triton.jit
def argument_kernel(x_ptr, y_ptr, scale, shift, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * scale)
    tl.store(y_ptr + SIZE + at, x + shift)


for _type in ("fp32", "fp16", "bf16"):
    _x = normal(SIZE, dtype=TYPES[_type])
    _name = f"float and int arguments with {_type}"
    construct(_name, argument_kernel, lambda x: (x, out(2 * SIZE), 1.1, 7, SIZE), x=_x)


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


for _type in ("int32", "int64"):
    _name = f"shifts, negation and division of {_type}"
    construct(_name, integer_kernel, lambda x: (x, out(9 * SIZE, dtype=x.dtype), SIZE), x=every_kind(TYPES[_type]))


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


construct(
    "unsigned arithmetic", unsigned_kernel, lambda x, z: (x, z, out(7 * SIZE, dtype=torch.int32), SIZE),
    x=every_kind(torch.int32), z=every_kind(torch.int32, 1),
)  # fmt: skip


@triton.jit
def compare_kernel(a_ptr, b_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    bits = (a < b).to(tl.int32) + 2 * (a <= b) + 4 * (a > b) + 8 * (a >= b) + 16 * (a == b) + 32 * (a != b)
    tl.store(y_ptr + at, bits + 64 * (a < 1) + 128 * (a > 0.5) + 256 * (a != a))


for _type in ("fp32", "fp16", "bf16", "fp64", "int32", "int8"):
    _a, _b = every_kind(TYPES[_type]), every_kind(TYPES[_type], 1)
    construct(
        f"comparisons of {_type}", compare_kernel, lambda a, b: (a, b, out(SIZE, dtype=torch.int32), SIZE), a=_a, b=_b
    )


@triton.jit
def clamp_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.clamp(x, -2.0, 3.0))
    tl.store(y_ptr + SIZE + at, tl.clamp(x, -2.0, 3.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(y_ptr + 2 * SIZE + at, tl.abs(x))


for _type in ("fp32", "fp16", "bf16"):
    _x = every_kind(TYPES[_type])
    construct(f"clamp and abs of {_type}", clamp_kernel, lambda x: (x, out(3 * SIZE, dtype=x.dtype), SIZE), x=_x)


@triton.jit
def contraction_kernel(a_ptr, b_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(a_ptr + at), tl.load(b_ptr + at)
    tl.store(y_ptr + at, a * b + a)


for _type, _absolute in {"fp32": 2e-7, "fp16": 1e-3, "bf16": 8e-3}.items():
    _fused = Closeness(absolute=_absolute, reason="the GPU fuses it into one rounding")
    _a, _b = _tame(TYPES[_type], 0), _tame(TYPES[_type], 1)
    construct(f"multiply-add in {_type}", contraction_kernel, lambda a, b: (a, b, out(SIZE), SIZE), _fused, a=_a, b=_b)
