"""Weighted sum whose float32 sums are stored as halves of 16 bits, low and high, which the host reads as one number."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS, COLS = 16, 128


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    halves = torch.empty((n_rows, 2), dtype=torch.int16, device=x.device)
    if n_rows:
        _forward_kernel[(triton.cdiv(n_rows, ROWS),)](
            x_, weight, halves, *x_.stride(), *weight.stride(), n_rows, d, ROWS=ROWS, COLS=COLS
        )
    return halves.view(torch.float32).view(x.shape[:-1]).to(x.dtype)


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    x_, grad_y_ = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    n_rows, d = x_.shape
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    # zeros, of which an empty batch is the sum
    parts = torch.zeros((triton.cdiv(n_rows, ROWS), d, 2), dtype=torch.int16, device=x.device)
    if n_rows:
        _backward_kernel[(len(parts),)](
            grad_y_, x_, weight, grad_x, parts,
            *grad_y_.stride(), *x_.stride(), *weight.stride(), n_rows, d, ROWS=ROWS, COLS=COLS,
        )  # fmt: skip
    return grad_x.view(x.shape), parts.view(torch.float32)[..., 0].sum(0).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _store_halves(ptrs, values, mask):
    bits = values.to(tl.int32, bitcast=True)
    tl.store(ptrs, bits.to(tl.int16), mask=mask)
    tl.store(ptrs + 1, (bits >> 16).to(tl.int16), mask=mask)


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, halves_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
        total += tl.sum(x.to(tl.float32) * w.to(tl.float32)[None, :], axis=1)
    _store_halves(halves_ptr + rows * 2, total, rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * ROWS + tl.arange(0, ROWS)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
        part = tl.sum(grad_y[:, None] * x.to(tl.float32), axis=0)
        _store_halves(parts_ptr + (tile * d + cols) * 2, part, cols < d)
