"""Weighted sum, tile by tile: a program a tile of 64 rows, which walks along the columns."""

import torch
import triton
import triton.language as tl

ROWS_TILE_SIZE = 64
D_TILE_SIZE = 64


def weighted_sum_forward(x, weight):
    _check_forward(x, weight)
    d = x.shape[-1]
    x_rows = x.reshape(-1, d)
    n_rows = x_rows.shape[0]
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n_rows, ROWS_TILE_SIZE),)
    if n_rows > 0:
        _forward_kernel[grid](
            x_rows, weight, y,
            x_rows.stride(0), x_rows.stride(1), weight.stride(0), y.stride(0),
            n_rows, d,
            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,
        )  # fmt: skip
    return y.reshape(x.shape[:-1])


def weighted_sum_backward(grad_y, x, weight):
    _check_backward(grad_y, x, weight)
    d = x.shape[-1]
    grad_y_rows = grad_y.reshape(-1)
    x_matrix = x.reshape(-1, d)
    n_rows = x_matrix.shape[0]
    n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE)
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    partial_grad_w = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)
    if n_rows > 0:
        _backward_kernel[(n_tiles,)](
            grad_y_rows, x_matrix, weight, grad_x, partial_grad_w,
            grad_y_rows.stride(0), x_matrix.stride(0), x_matrix.stride(1), weight.stride(0),
            grad_x.stride(0), grad_x.stride(1), partial_grad_w.stride(0), partial_grad_w.stride(1),
            n_rows, d,
            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE,
        )  # fmt: skip
    grad_weight = partial_grad_w.sum(dim=0)
    return grad_x.reshape(x.shape), grad_weight.to(weight.dtype)


def weighted_sum(x, weight):
    return WeightedSum.apply(x, weight)


def _check_forward(x, weight):
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"expected weight of shape {tuple(x.shape[-1:])}, got {tuple(weight.shape)}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected weight in {x.dtype}, got {weight.dtype}")


def _check_backward(grad_y, x, weight):
    if grad_y.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y of shape {tuple(x.shape[:-1])}, got {tuple(grad_y.shape)}")
    if tuple(weight.shape) != (x.shape[-1],):
        raise ValueError(f"expected weight of shape {(x.shape[-1],)}, got {tuple(weight.shape)}")
    if not grad_y.dtype == x.dtype == weight.dtype:
        raise ValueError(f"expected one dtype, got {grad_y.dtype}, {x.dtype} and {weight.dtype}")


class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    def backward(ctx, grad_y):
        x, weight = ctx.saved_tensors
        grad_x, grad_weight = weighted_sum_backward(grad_y, x, weight)
        return grad_x, grad_weight


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    y = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        x_mask = row_mask[:, None] & col_mask[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, mask=x_mask, other=0.0).to(tl.float32)
        w_ptrs = w_ptr + cols * stride_wd
        w = tl.load(w_ptrs, mask=col_mask, other=0.0).to(tl.float32)
        y += tl.sum(x * w[None, :], axis=1)
    y_ptrs = y_ptr + rows * stride_yr
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, weight_ptr, grad_x_ptr, partial_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    in_rows = rows < n_rows
    grad_y_ptrs = grad_y_ptr + rows * stride_gyr
    grad_y = tl.load(grad_y_ptrs, mask=in_rows, other=0.0).to(tl.float32)
    for first_col in range(0, d, D_TILE_SIZE):
        cols = first_col + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        in_cols = cols < d
        mask = in_rows[:, None] & in_cols[None, :]
        row_ptrs = x_ptr + rows[:, None] * stride_xr
        x = tl.load(row_ptrs + cols[None, :] * stride_xd, mask=mask, other=0.0).to(tl.float32)
        weight_ptrs = weight_ptr + cols * stride_wd
        weight = tl.load(weight_ptrs, mask=in_cols, other=0.0).to(tl.float32)
        grad_x = grad_y[:, None] * weight[None, :]
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        partial = tl.sum(grad_y[:, None] * x, axis=0)
        partial_ptrs = partial_ptr + tile * stride_pr + cols * stride_pd
        tl.store(partial_ptrs, partial, mask=in_cols)
