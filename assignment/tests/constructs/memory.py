"""Loads, stores, atomics and tensor descriptors."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from .conversions import TYPES
from .table import BITS, SIZE, Construct, Out, construct, every_kind, integers, normal, out, register


@triton.jit
def masked_copy_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    mask = (at < n) & (at % 3 != 0)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=mask, other=1), mask=at < n + 5)


for _name, _dtype in TYPES.items():
    construct(
        f"masked load and store of {_name}", masked_copy_kernel, lambda x: (x, Out(x.flip(0).contiguous()), 300, SIZE),
        BITS, x=every_kind(_dtype),
    )  # fmt: skip


@triton.jit
def strided_kernel(x_ptr, y_ptr, stride_r, stride_c, n_rows, n_cols, R: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    cols = tl.arange(0, C)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * stride_r + cols[None, :] * stride_c, mask=mask, other=0.0)
    tl.store(y_ptr + rows[:, None] * n_cols + cols[None, :], x, mask=mask)


def _strided(name: str, n_rows: int, view) -> None:
    def given(x):
        x = view(x)
        return x, out(*x.shape), *x.stride(), *x.shape, 16, 64

    grid = (triton.cdiv(n_rows, 16),)
    construct(f"load a block of {name}", strided_kernel, given, BITS, grid, x=normal(40, 30))


_strided("a transposed matrix", 30, lambda x: x.t())
_strided("every second column", 40, lambda x: x[:, ::2])
_strided("an expanded row", 20, lambda x: x[:1].expand(20, 30))
_strided("a matrix at an offset", 37, lambda x: x[3:, 5:])


@triton.jit
def scalar_kernel(x_ptr, y_ptr, n):
    total = tl.load(x_ptr)
    for i in range(1, n):
        total = total * 2 + tl.load(x_ptr + i)
    tl.store(y_ptr, total)


construct(
    "load and store of scalars", scalar_kernel, lambda x: (x, out(1, dtype=x.dtype), x.numel()), x=integers(0, 9, 8)
)


@triton.jit
def broadcast_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(y_ptr + at, tl.load(x_ptr))
    tl.store(y_ptr + SIZE + at, 3)
    tl.store(y_ptr + 2 * SIZE + at, tl.load(x_ptr + at, mask=at > 5, other=-1.5))


construct(
    "store of a scalar over a block", broadcast_kernel, lambda x: (x, out(3 * 64, dtype=x.dtype), 64), BITS,
    x=normal(64, dtype=torch.float16),
)  # fmt: skip


@triton.jit
def atomic_kernel(x_ptr, y_ptr, old_ptr, n, OP: tl.constexpr, SPREAD: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    mask = at < n
    x = tl.load(x_ptr + at)
    to = y_ptr + at % SPREAD
    if OP == "add":
        old = tl.atomic_add(to, x, mask=mask)
    elif OP == "max":
        old = tl.atomic_max(to, x, mask=mask)
    elif OP == "min":
        old = tl.atomic_min(to, x, mask=mask)
    elif OP == "and":
        old = tl.atomic_and(to, x, mask=mask)
    elif OP == "or":
        old = tl.atomic_or(to, x, mask=mask)
    elif OP == "xor":
        old = tl.atomic_xor(to, x, mask=mask)
    else:
        old = tl.atomic_xchg(to, x, mask=mask)
    if SPREAD == SIZE:
        tl.store(old_ptr + at, old, mask=mask)


def _atomic(op: str, name: str, spread: int) -> None:
    dtype = TYPES[name]
    outputs = Out(torch.arange(64).to(dtype) % 7), out(64, dtype=dtype, name="old")
    shared = "" if spread == 64 else ", addresses shared"
    # small whole numbers: no order of additions rounds
    x = integers(-9, 9, 64, dtype=dtype)
    construct(f"atomic {op} on {name}{shared}", atomic_kernel, lambda x: (x, *outputs, 50, op, spread, 64), x=x)


for _name in ("fp32", "fp64", "fp16", "bf16", "int32", "int64"):
    for _spread in (64, 4):
        _atomic("add", _name, _spread)
for _name in ("fp32", "fp64", "int32", "int64"):
    for _op in ("max", "min"):
        _atomic(_op, _name, 64)
        _atomic(_op, _name, 4)
for _name in ("int32", "int64"):
    for _op in ("and", "or", "xor"):
        _atomic(_op, _name, 4)
for _name in ("int32", "fp32", "int64"):
    _atomic("xchg", _name, 64)


@triton.jit
def rounding_atomic_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.atomic_add(y_ptr + at, tl.load(x_ptr + at))


for _name in ("fp32", "fp16", "bf16"):
    _x = normal(128, dtype=TYPES[_name])
    construct(
        f"atomic add that rounds on {_name}", rounding_atomic_kernel,
        lambda x: (x, Out(x.flip(0).contiguous() * 3), 128), x=_x,
    )  # fmt: skip


@triton.jit
def compare_and_swap_kernel(y_ptr, old_ptr, expected, new):
    at = tl.program_id(0)
    old = tl.atomic_cas(y_ptr + at, expected, new)
    tl.store(old_ptr + at, old)


construct(
    "atomic compare and swap", compare_and_swap_kernel, lambda x: (Out(x), Out(torch.zeros_like(x), "old"), 2, 77),
    grid=(32,), x=integers(0, 3, 32),
)  # fmt: skip


@triton.jit
def count_kernel(y_ptr, n):
    tl.atomic_add(y_ptr, tl.program_id(0) + 1)
    tl.atomic_max(y_ptr + 1, tl.program_id(0))


_x = torch.zeros(2, dtype=torch.int32)
construct("atomics on a scalar by many programs", count_kernel, lambda x: (Out(x), 50), grid=(50,), x=_x)


@triton.jit
def device_descriptor_kernel(x_ptr, y_ptr, n_rows, n_cols, stride, R: tl.constexpr, C: tl.constexpr):
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[n_rows, n_cols], strides=[stride, 1], block_shape=[R, C])
    y_desc = tl.make_tensor_descriptor(y_ptr, shape=[n_rows, n_cols], strides=[stride, 1], block_shape=[R, C])
    row = tl.program_id(0) * R
    for i in range(tl.cdiv(n_cols, C)):
        x = x_desc.load([row, i * C])
        y_desc.store([row, i * C], x * 2)


@triton.jit
def host_descriptor_kernel(x_desc, y_desc, R: tl.constexpr, C: tl.constexpr):
    row, col = tl.program_id(0) * R, tl.program_id(1) * C
    y_desc.store([row, col], x_desc.load([row, col]) * 2)


def _allocator(size: int, alignment: int, stream: int | None) -> Tensor:
    return torch.empty(size, device="cuda" if torch.cuda.is_available() else "cpu", dtype=torch.int8)


def _on_device(x: Tensor) -> tuple:
    triton.set_allocator(_allocator)
    return x, out(45, 40, dtype=x.dtype), 45, 36, 40, 16, 16


def _on_host(x: Tensor) -> dict[str, Tensor]:
    y = torch.zeros_like(x)
    host_descriptor_kernel[(3, 3)](*(TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, y)), R=16, C=16)
    return {"y": y}


for _name in ("fp32", "bf16", "fp16"):
    _x = normal(45, 40, dtype=TYPES[_name])
    _title = "tensor descriptor made"
    construct(f"{_title} in the kernel, {_name}", device_descriptor_kernel, _on_device, BITS, (3,), x=_x)
    register(Construct(f"{_title} on the host, {_name}", {"x": _x}, _on_host, BITS))
