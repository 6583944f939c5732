"""Elementwise operations: arithmetic by type, mixed types, numbers, comparisons."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .conversions import TYPES
from .table import EXACT, SIZE, Closeness, construct, every_kind, normal

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
