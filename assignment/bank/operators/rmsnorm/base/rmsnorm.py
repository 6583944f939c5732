"""RMSNorm: forward a tile of rows a program, backward 64 rows a program, one after the other."""

import torch
import triton
import triton.language as tl

TILE_ELEMENTS = 4096
MAX_D_TILE_SIZE = 16384
ROWS_PER_PROGRAM = 64


def rmsnorm_forward(x, weight, eps=1e-5):
    _check_forward(x, weight)
    d = x.shape[-1]
    x_rows = x.reshape(-1, d)
    n_rows = x_rows.shape[0]
    y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
    rows_tile_size = max(1, min(64, TILE_ELEMENTS // d_tile_size))
    grid = (triton.cdiv(n_rows, rows_tile_size),)
    if n_rows > 0:
        _forward_kernel[grid](
            x_rows, weight, y, rstd,
            x_rows.stride(0), x_rows.stride(1), weight.stride(0),
            y.stride(0), y.stride(1), rstd.stride(0),
            n_rows, d, eps,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
            num_warps=8,
        )  # fmt: skip
    return y.reshape(x.shape), rstd.reshape(x.shape[:-1])


def rmsnorm_backward(grad_y, x, weight, rstd):
    _check_backward(grad_y, x, weight, rstd)
    d = x.shape[-1]
    grad_y_rows = grad_y.reshape(-1, d)
    x_matrix = x.reshape(-1, d)
    rstd_rows = rstd.reshape(-1)
    n_rows = x_matrix.shape[0]
    n_programs = triton.cdiv(n_rows, ROWS_PER_PROGRAM)
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    partial_grad_w = torch.empty((n_programs, d), dtype=torch.float32, device=x.device)
    if n_rows > 0:
        _backward_kernel[(n_programs,)](
            grad_y_rows, x_matrix, weight, rstd_rows, grad_x, partial_grad_w,
            grad_y_rows.stride(0), grad_y_rows.stride(1), x_matrix.stride(0), x_matrix.stride(1),
            weight.stride(0), rstd_rows.stride(0), grad_x.stride(0), grad_x.stride(1),
            partial_grad_w.stride(0), partial_grad_w.stride(1),
            n_rows, d,
            ROWS_PER_PROGRAM=ROWS_PER_PROGRAM, D_TILE_SIZE=triton.next_power_of_2(d),
            num_warps=8,
        )  # fmt: skip
    grad_weight = partial_grad_w.sum(dim=0)
    return grad_x.reshape(x.shape), grad_weight.to(weight.dtype)


def rmsnorm(x, weight, eps=1e-5):
    return RMSNorm.apply(x, weight, eps)


def _check_forward(x, weight):
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"expected weight of shape {tuple(x.shape[-1:])}, got {tuple(weight.shape)}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected weight in {x.dtype}, got {weight.dtype}")


def _check_backward(grad_y, x, weight, rstd):
    if grad_y.shape != x.shape:
        raise ValueError(f"expected grad_y of shape {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    if rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected rstd of shape {tuple(x.shape[:-1])}, got {tuple(rstd.shape)}")
    if tuple(weight.shape) != (x.shape[-1],):
        raise ValueError(f"expected weight of shape {(x.shape[-1],)}, got {tuple(weight.shape)}")
    if not grad_y.dtype == x.dtype == weight.dtype:
        raise ValueError(f"expected one dtype, got {grad_y.dtype}, {x.dtype} and {weight.dtype}")


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = rmsnorm_forward(x, weight, eps=eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, rstd = ctx.saved_tensors
        grad_x, grad_weight = rmsnorm_backward(grad_y, x, weight, rstd)
        return grad_x, grad_weight, None


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr, stride_yd, stride_sr,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    x_row_ptrs = x_ptr + rows[:, None] * stride_xr
    x = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    sum_of_squares = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        x_mask = row_mask[:, None] & (cols < d)[None, :]
        x = tl.load(x_row_ptrs + cols[None, :] * stride_xd, mask=x_mask, other=0.0).to(tl.float32)
        sum_of_squares += tl.sum(x * x, axis=1)
    mean_of_squares = sum_of_squares / d
    rstd = 1.0 / tl.sqrt(mean_of_squares + eps)
    rstd_ptrs = rstd_ptr + rows * stride_sr
    tl.store(rstd_ptrs, rstd, mask=row_mask)
    for first_col in range(0, d, D_TILE_SIZE):
        cols = first_col + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        y_mask = row_mask[:, None] & col_mask[None, :]
        if not IS_ONE_TILE:
            x = tl.load(x_row_ptrs + cols[None, :] * stride_xd, mask=y_mask, other=0.0).to(tl.float32)
        w_ptrs = w_ptr + cols * stride_wd
        w = tl.load(w_ptrs, mask=col_mask, other=0.0).to(tl.float32)
        y = x * rstd[:, None] * w[None, :]
        y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=y_mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, partial_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_sr,
    stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_PER_PROGRAM: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first_row = program * ROWS_PER_PROGRAM
    end_row = tl.minimum(first_row + ROWS_PER_PROGRAM, n_rows)
    columns = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    mask = columns < d
    weight_ptrs = w_ptr + columns * stride_wd
    w = tl.load(weight_ptrs, mask=mask, other=0.0).to(tl.float32)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for row in range(first_row, end_row):
        grad_y_ptrs = grad_y_ptr + row * stride_gyr + columns * stride_gyd
        grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
        x_ptrs = x_ptr + row * stride_xr + columns * stride_xd
        x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row * stride_sr)
        x_hat = x * rstd
        w_grad_y = w * grad_y
        mean = tl.sum(w_grad_y * x_hat) / d
        grad_x = rstd * (w_grad_y - x_hat * mean)
        grad_x_ptrs = grad_x_ptr + row * stride_gxr + columns * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        grad_w += grad_y * x_hat
    partial_ptrs = partial_ptr + program * stride_pr + columns * stride_pd
    tl.store(partial_ptrs, grad_w, mask=mask)
