"""RMSNorm of small jit functions that call each other, three deep, with constants of the module."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

ROWS, PROGRAMS = 2, 8
NOTHING = tl.constexpr(0.0)
WIDE = tl.constexpr(tl.float32)


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y, rstd = x_.new_empty(n_rows, d), x_.new_empty(n_rows, dtype=torch.float32)
    if n_rows:
        _forward_kernel[(triton.cdiv(n_rows, ROWS),)](
            x_, weight, y, rstd, *x_.stride(), *weight.stride(), n_rows, d, eps,
            ROWS=ROWS, BLOCK=triton.next_power_of_2(d),
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check_backward(grad_y, x, weight, rstd)
    x_, dy = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    dx = x_.new_empty(n_rows, d)
    if not n_rows:
        return dx.view(x.shape), weight.new_zeros(d)
    per_program = triton.cdiv(n_rows, PROGRAMS)
    parts = x_.new_empty(triton.cdiv(n_rows, per_program), d, dtype=torch.float32)
    _backward_kernel[(len(parts),)](
        dy, x_, weight, rstd.reshape(-1), dx, parts,
        *dy.stride(), *x_.stride(), *weight.stride(), *rstd.reshape(-1).stride(),
        n_rows, d, per_program, BLOCK=triton.next_power_of_2(d),
    )  # fmt: skip
    return dx.view(x.shape), parts.sum(0).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or tuple(weight.shape) != (x.shape[-1],):
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _check_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> None:
    _check(x, weight)
    if grad_y.shape != x.shape or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y {tuple(x.shape)}, got {tuple(grad_y.shape)}, rstd {tuple(rstd.shape)}")
    if grad_y.dtype != x.dtype or rstd.dtype != torch.float32:
        raise ValueError(f"expected grad_y {x.dtype} and rstd float32, got {grad_y.dtype} and {rstd.dtype}")


@triton.jit
def _load(ptr, mask):
    return tl.load(ptr, mask=mask, other=NOTHING).to(WIDE)


@triton.jit
def _row_of(ptr, row, stride, cols, stride_d, d):
    return _load(ptr + row * stride + cols * stride_d, cols < d)


@triton.jit
def _mean_of_products(a, b, d):
    return tl.sum(a * b, axis=0) / d


@triton.jit
def _input_gradient(x_hat, dx_hat, rstd, d):
    return (dx_hat - x_hat * _mean_of_products(dx_hat, x_hat, d)) * rstd


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * ROWS
    cols = tl.arange(0, BLOCK).to(tl.int64)
    w = _load(w_ptr + cols * stride_wd, cols < d)
    for row in range(first, tl.minimum(first + ROWS, n_rows)):
        x = _row_of(x_ptr, row, stride_xr, cols, stride_xd, d)
        rstd = tl.rsqrt(_mean_of_products(x, x, d) + eps)
        tl.store(y_ptr + row * d + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=cols < d)
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def _backward_kernel(
    dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr, parts_ptr,
    stride_dyr, stride_dyd, stride_xr, stride_xd, stride_wd, stride_rstd,
    n_rows, d, rows_per_program,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    w = _load(w_ptr + cols * stride_wd, cols < d)
    total = tl.zeros((BLOCK,), dtype=WIDE)
    for row in range(program * rows_per_program, tl.minimum((program + 1) * rows_per_program, n_rows)):
        rstd = tl.load(rstd_ptr + row * stride_rstd)
        dy = _row_of(dy_ptr, row, stride_dyr, cols, stride_dyd, d)
        x_hat = _row_of(x_ptr, row, stride_xr, cols, stride_xd, d) * rstd
        dx = _input_gradient(x_hat, dy * w, rstd, d)
        tl.store(dx_ptr + row * d + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < d)
        total += dy * x_hat
    tl.store(parts_ptr + program * d + cols, total, mask=cols < d)
