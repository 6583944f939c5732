"""LayerNorm in the style of Liger: contiguous inputs, a program a row as wide as the row, the mean kept as a row of its
own, and a backward pass of one program a multiprocessor with a block of rows each.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_FUSED_SIZE = 65536


def ensure_contiguous(function):
    """Call it with contiguous tensors."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*(a.contiguous() if isinstance(a, Tensor) else a for a in args), **kwargs)

    return wrapper


def calculate_settings(n):
    block = triton.next_power_of_2(n)
    if block > MAX_FUSED_SIZE:
        raise RuntimeError(f"expected at most {MAX_FUSED_SIZE} columns, got {n}")
    return block, next((warps for size, warps in ((32768, 32), (8192, 16), (2048, 8)) if block >= size), 4)


@ensure_contiguous
def layernorm_forward(x, weight, bias, eps=1e-5):
    _check(x, weight, bias)
    X = x.view(x.shape[:-1].numel(), x.shape[-1])
    n_rows, n_cols = X.shape
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    Y = torch.empty_like(X)
    Mean = torch.empty(n_rows, dtype=torch.float32, device=X.device)
    RSTD = torch.empty(n_rows, dtype=torch.float32, device=X.device)
    if n_rows > 0:
        _forward_kernel[(n_rows,)](
            Y, Y.stride(0), X, X.stride(0), weight, bias, Mean, RSTD, n_cols, eps,
            BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
        )  # fmt: skip
    return Y.view(x.shape), Mean.view(x.shape[:-1]), RSTD.view(x.shape[:-1])


@ensure_contiguous
def layernorm_backward(grad_y, x, weight, mean, rstd):
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype or not mean.shape == rstd.shape == x.shape[:-1]:
        raise ValueError(f"expected grad_y like x and mean and rstd {tuple(x.shape[:-1])}, got {grad_y.shape}")
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    BLOCK_SIZE, num_warps = calculate_settings(n_cols)
    DX = torch.empty_like(x)
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    DW = torch.zeros((sm_count, n_cols), dtype=torch.float32, device=x.device)
    DB = torch.zeros((sm_count, n_cols), dtype=torch.float32, device=x.device)
    if n_rows > 0:
        rows_per_program = triton.cdiv(n_rows, sm_count)
        _backward_kernel[(sm_count,)](
            x, weight, mean, rstd, DX, DW, DB, grad_y, n_rows, n_cols, rows_per_program,
            BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
        )  # fmt: skip
    return DX, DW.sum(dim=0).to(weight.dtype), DB.sum(dim=0).to(weight.dtype)


def layernorm(x, weight, bias, eps=1e-5):
    return LigerLayerNormFunction.apply(x, weight, bias, eps)


class LigerLayerNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, B, eps):
        Y, Mean, RSTD = layernorm_forward(X, W, B, eps)
        ctx.save_for_backward(X, W, Mean, RSTD)
        return Y

    @staticmethod
    def backward(ctx, dY):
        X, W, Mean, RSTD = ctx.saved_tensors
        return (*layernorm_backward(dY, X, W, Mean, RSTD), None)


def _check(x, *vectors):
    if x.ndim == 0:
        raise ValueError("expected rows")
    for vector in vectors:
        if vector.ndim != 1 or vector.shape[0] != x.shape[-1]:
            raise ValueError(f"expected {x.shape[-1]} elements, as x has columns, got {tuple(vector.shape)}")
        if vector.dtype != x.dtype:
            raise ValueError(f"expected {x.dtype}, got {vector.dtype}")


@triton.jit
def _forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, B_ptr, Mean_ptr, RSTD_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X_ptr + row_idx * X_row_stride + col_offsets, mask=mask, other=0.0).to(tl.float32)
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    B_row = tl.load(B_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(X_row, axis=0) / n_cols
    X_centered = tl.where(mask, X_row - mean, 0.0)
    var = tl.sum(X_centered * X_centered, axis=0) / n_cols
    rstd = tl.rsqrt(var + eps)
    tl.store(Mean_ptr + row_idx, mean)
    tl.store(RSTD_ptr + row_idx, rstd)
    Y_row = X_centered * rstd * W_row + B_row
    tl.store(Y_ptr + row_idx * Y_row_stride + col_offsets, Y_row, mask=mask)


@triton.jit
def _backward_kernel(
    X_ptr, W_ptr, Mean_ptr, RSTD_ptr, DX_ptr, DW_ptr, DB_ptr, DY_ptr, n_rows, n_cols, rows_per_program,
    BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    block_id = tl.program_id(0).to(tl.int64)
    row_start = block_id * rows_per_program
    row_end = min(row_start + rows_per_program, n_rows)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    dW_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    db_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    w = tl.load(W_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    for row_idx in range(row_start, row_end):
        at = row_idx * n_cols + cols
        x = tl.load(X_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY_ptr + at, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(Mean_ptr + row_idx)
        rstd = tl.load(RSTD_ptr + row_idx)
        x_hat = (x - mean) * rstd
        wdy = w * dy
        c1 = tl.sum(x_hat * wdy, axis=0) / n_cols
        c2 = tl.sum(wdy, axis=0) / n_cols
        tl.store(DX_ptr + at, ((wdy - (x_hat * c1 + c2)) * rstd).to(DX_ptr.dtype.element_ty), mask=mask)
        dW_row += dy * x_hat
        db_row += dy
    tl.store(DW_ptr + block_id * n_cols + cols, dW_row, mask=mask)
    tl.store(DB_ptr + block_id * n_cols + cols, db_row, mask=mask)
