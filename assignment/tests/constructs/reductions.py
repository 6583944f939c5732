"""Reductions and scans: per operation, type and axis, and with custom combining functions."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .conversions import TYPES
from .table import EXACT, ORDER, ORDER_16, Closeness, construct, every_kind, integers, normal, out

ROWS, COLS = 8, 32


@triton.jit
def reduce_kernel(x_ptr, y_ptr, OP: tl.constexpr, AXIS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + i * COLS + j)
    if OP == "sum":
        y = tl.sum(x, AXIS)
    elif OP == "max":
        y = tl.max(x, AXIS)
    elif OP == "min":
        y = tl.min(x, AXIS)
    elif OP == "argmax":
        y = tl.argmax(x, AXIS)
    elif OP == "argmin":
        y = tl.argmin(x, AXIS)
    else:
        y = tl.xor_sum(x, AXIS)
    tl.store(y_ptr + tl.arange(0, ROWS * COLS // x.shape[AXIS]), y)


@triton.jit
def reduce_all_kernel(x_ptr, y_ptr, OP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + i * COLS + j)
    if OP == "sum":
        tl.store(y_ptr, tl.sum(x))
    elif OP == "max":
        tl.store(y_ptr, tl.max(x))
    else:
        tl.store(y_ptr, tl.min(x))


def _reduce(op: str, name: str, axis: int | None, to: torch.dtype, closeness: Closeness, x: Tensor) -> None:
    if axis is None:
        construct(
            f"{op} of {name} over everything", reduce_all_kernel, lambda x: (x, out(1, dtype=to), op, ROWS, COLS),
            closeness, x=x,
        )  # fmt: skip
    else:
        construct(
            f"{op} of {name} over axis {axis}", reduce_kernel,
            lambda x: (x, out((COLS, ROWS)[axis], dtype=to), op, axis, ROWS, COLS), closeness, x=x,
        )  # fmt: skip


for _axis in (0, 1, None):
    for _name, _closeness in {"fp32": ORDER, "fp16": ORDER_16, "bf16": ORDER_16, "fp64": ORDER}.items():
        _x = normal(ROWS, COLS, dtype=TYPES[_name])
        # stored in float32, so that the type of the sum shows
        _reduce("sum", _name, _axis, torch.float64 if _name == "fp64" else torch.float32, _closeness, _x)
        for _op in ("max", "min"):
            _reduce(_op, _name, _axis, TYPES[_name], EXACT, _x)
    for _name in ("int32", "int8", "int64"):
        for _op in ("sum", "max"):
            _reduce(_op, _name, _axis, torch.int64, EXACT, every_kind(TYPES[_name]).reshape(ROWS, COLS))
for _axis in (0, 1):
    for _name in ("fp32", "fp16", "bf16", "int32"):
        for _op in ("argmax", "argmin"):
            # few different values: ties go to the left
            _reduce(_op, _name, _axis, torch.int32, EXACT, integers(-3, 3, ROWS, COLS, dtype=TYPES[_name]))
    _reduce("xor_sum", "int32", _axis, torch.int32, EXACT, every_kind(torch.int32).reshape(ROWS, COLS))


def _with_nan() -> Tensor:
    x = normal(ROWS, COLS)
    x[::2, ::3] = float("nan")
    x[4] = float("nan")
    x[5, 7] = float("inf")
    return x


for _op in ("max", "min", "sum"):
    _reduce(_op, "fp32 with NaN", 1, torch.float32, ORDER if _op == "sum" else EXACT, _with_nan())


@triton.jit
def sum_as_kernel(x_ptr, y_ptr, SIZE: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, SIZE))
    tl.store(y_ptr, tl.sum(x, 0, dtype=tl.float32))
    tl.store(y_ptr + 1, tl.sum(x.to(tl.float32), 0))
    tl.store(y_ptr + 2, tl.sum(x.to(tl.float32), 0, keep_dims=True).sum(0))


_x = normal(512, dtype=torch.bfloat16)
construct("sum of bf16 in float32", sum_as_kernel, lambda x: (x, out(3), 512), ORDER, x=_x)


@triton.jit
def _larger(a, b):
    if a > b:
        return a
    else:
        return b


@triton.jit
def _welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    delta = mean_b - mean_a
    count = count_a + count_b
    mean = mean_a + delta * (count_b / count)
    return mean, m2_a + m2_b + delta * delta * count_a * (count_b / count), count


@triton.jit
def combine_kernel(x_ptr, y_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + i * COLS + j)
    at = tl.arange(0, ROWS)
    zero = tl.zeros((ROWS, COLS), tl.float32)
    mean, m2, count = tl.reduce((x, zero, zero + 1), 1, _welford)
    tl.store(y_ptr + at, mean)
    tl.store(y_ptr + ROWS + at, m2)
    tl.store(y_ptr + 2 * ROWS + at, count)
    tl.store(y_ptr + 3 * ROWS + at, tl.reduce(x, 1, _larger))


construct(
    "reduce with combining functions", combine_kernel, lambda x: (x, out(4 * ROWS), ROWS, COLS),
    Closeness(2e-5, 2e-6, reason="order"), x=normal(ROWS, COLS),
)  # fmt: skip


@triton.jit
def indices_kernel(x_ptr, v_ptr, i_ptr, ROWS: tl.constexpr, COLS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :])
    value, index = tl.max(x, 1, return_indices=True)
    tl.store(v_ptr + tl.arange(0, ROWS), value)
    tl.store(i_ptr + tl.arange(0, ROWS), index)
    value, index = tl.min(x, 1, return_indices=True, keep_dims=True)
    tl.store(v_ptr + ROWS + tl.arange(0, ROWS)[:, None], value)
    tl.store(i_ptr + ROWS + tl.arange(0, ROWS)[:, None], index)


construct(
    "max and min with indices", indices_kernel,
    lambda x: (x, out(2 * ROWS, name="values"), out(2 * ROWS, dtype=torch.int32, name="indices"), ROWS, COLS),
    x=normal(ROWS, COLS, dtype=torch.bfloat16),
)  # fmt: skip


@triton.jit
def _affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scan_kernel(x_ptr, y_ptr, AXIS: tl.constexpr, REVERSE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    x = tl.load(x_ptr + at)
    size: tl.constexpr = ROWS * COLS
    tl.store(y_ptr + at, tl.cumsum(x, AXIS, reverse=REVERSE))
    tl.store(y_ptr + size + at, tl.cumprod(x, AXIS, reverse=REVERSE))
    a, b = tl.associative_scan((x, x), AXIS, _affine, reverse=REVERSE)
    tl.store(y_ptr + 2 * size + at, a)
    tl.store(y_ptr + 3 * size + at, b)


def _scan(name: str, x: Tensor, closeness: Closeness, axis: int, reverse: bool) -> None:
    title = f"scans of {name} along axis {axis}{' backwards' if reverse else ''}"
    construct(
        title, scan_kernel, lambda x: (x, out(4 * ROWS * COLS, dtype=x.dtype), axis, reverse, ROWS, COLS), closeness,
        x=x,
    )  # fmt: skip


for _axis in (0, 1):
    for _reverse in (False, True):
        _scan("fp32", 1 + normal(ROWS, COLS) / 8, Closeness(1e-4, 1e-5, reason="order"), _axis, _reverse)
        _scan("int32", integers(-5, 6, ROWS, COLS), EXACT, _axis, _reverse)
