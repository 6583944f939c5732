"""Weighted sum in small tiles of 16 rows × 32 columns, each program looping along its rows.

The weight's gradient is added up atomically, in a float32 buffer that is cast at the end.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = {"ROWS_TILE_SIZE": 16, "D_TILE_SIZE": 32, "num_warps": 2}


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _expect_fit(x, weight)
    matrix = x.flatten(end_dim=-2) if x.ndim > 1 else x.unsqueeze(0)
    n_rows, d = matrix.shape
    y = matrix.new_empty(n_rows)
    if n_rows:
        _forward_kernel[_grid(n_rows)](matrix, weight, y, *matrix.stride(), *weight.stride(), n_rows, d, **TILE)
    return y.view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _expect_fit(x, weight)
    if grad_y.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y of shape {tuple(x.shape[:-1])}, got {tuple(grad_y.shape)}")
    if grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y in {x.dtype}, got {grad_y.dtype}")
    matrix = x.flatten(end_dim=-2) if x.ndim > 1 else x.unsqueeze(0)
    vector = grad_y.flatten()
    n_rows, d = matrix.shape
    grad_x = matrix.new_empty(n_rows, d)
    grad_w = torch.zeros(d, dtype=torch.float32, device=x.device)
    if n_rows:
        _backward_kernel[_grid(n_rows)](
            vector, matrix, weight, grad_x, grad_w,
            *vector.stride(), *matrix.stride(), *weight.stride(), *grad_x.stride(),
            n_rows, d,
            **TILE,
        )  # fmt: skip
    return grad_x.view(x.shape), grad_w.to(weight.dtype)


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return WeightedSum.apply(x, weight)


class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)


def _expect_fit(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.size(-1) != weight.size(0):
        raise ValueError(f"expected a weight for each of the {x.size(-1)} columns, got {weight.size(0)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected weight in x's dtype {x.dtype}, got {weight.dtype}")


def _grid(n_rows: int) -> tuple[int]:
    return (triton.cdiv(n_rows, TILE["ROWS_TILE_SIZE"]),)


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    products = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for i in range(tl.cdiv(d, D_TILE_SIZE)):
        cols = i * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        mask = row_mask[:, None] & col_mask[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0)
        products += x.to(tl.float32) * w.to(tl.float32)[None, :]
    tl.store(y_ptr + rows, tl.sum(products, axis=1).to(y_ptr.dtype.element_ty), mask=row_mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, grad_w_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=row_mask, other=0.0).to(tl.float32)
    for i in range(tl.cdiv(d, D_TILE_SIZE)):
        cols = i * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        mask = row_mask[:, None] & col_mask[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0)
        grad_x = grad_y[:, None] * w.to(tl.float32)[None, :]
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        grad_w = tl.sum(grad_y[:, None] * x.to(tl.float32), axis=0)
        tl.atomic_add(grad_w_ptr + cols, grad_w, mask=col_mask, sem="relaxed")
