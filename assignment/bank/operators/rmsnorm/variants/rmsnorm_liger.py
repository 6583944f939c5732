"""RMSNorm in the style of Liger: contiguous inputs by a decorator, casting modes as constants, a row mode for wide rows
and a block of rows a program for narrow ones. Backward: one program a multiprocessor, each with a partial grad_weight.
"""

import functools

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

MAX_FUSED_SIZE = 65536
BLOCK_ROW = 16
_CASTING_MODE_NONE = tl.constexpr(-1)
_CASTING_MODE_LLAMA = tl.constexpr(0)
_CASTING_MODE_GEMMA = tl.constexpr(1)
CASTING_MODES = {
    "none": _CASTING_MODE_NONE.value,
    "llama": _CASTING_MODE_LLAMA.value,
    "gemma": _CASTING_MODE_GEMMA.value,
}
TRITON_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def ensure_contiguous(function):
    """Call it with contiguous tensors."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*(x.contiguous() if isinstance(x, Tensor) else x for x in args), **kwargs)

    return wrapper


def calculate_settings(n: int) -> tuple[int, int]:
    """The block for n columns, and its warps."""
    block_size = triton.next_power_of_2(n)
    if block_size > MAX_FUSED_SIZE:
        raise RuntimeError(f"expected at most {MAX_FUSED_SIZE} columns, got {n}")
    return block_size, next((w for size, w in ((32768, 32), (8192, 16), (2048, 8)) if block_size >= size), 4)


@ensure_contiguous
def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    """Of rows with at most 65,536 elements."""
    _check(x, weight)
    rows = x.view(x.shape[:-1].numel(), x.shape[-1])
    n_rows, n_cols = rows.shape
    y = torch.empty_like(rows)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_rows > 0:
        block_size, num_warps = calculate_settings(n_cols)
        row_mode = block_size > 256 or n_rows < 8 * BLOCK_ROW
        kernel = _row_forward_kernel if row_mode else _block_forward_kernel
        sizes = (n_cols, eps) if row_mode else (n_rows, n_cols, eps)
        block = {} if row_mode else {"BLOCK_ROW": BLOCK_ROW}
        kernel[(n_rows if row_mode else triton.cdiv(n_rows, BLOCK_ROW),)](
            y, y.stride(0), rows, rows.stride(0), weight, rstd, *sizes,
            casting_mode=CASTING_MODES["gemma"], BLOCK_SIZE=block_size, num_warps=num_warps, **block,
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


@ensure_contiguous
def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y like x and rstd {x.shape[:-1]}, got {grad_y.shape} and {rstd.shape}")
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    grad_x = torch.empty_like(x)
    if n_rows == 0:
        return grad_x, torch.zeros_like(weight)
    block_size, num_warps = calculate_settings(n_cols)
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    partial = torch.empty((sm_count, n_cols), dtype=torch.float32, device=x.device)
    _backward_kernel[(sm_count,)](
        grad_y, x, weight, rstd, grad_x, partial, partial.stride(0),
        n_rows, n_cols, triton.cdiv(n_rows, sm_count),
        X_DTYPE=TRITON_DTYPES[x.dtype], casting_mode=CASTING_MODES["gemma"],
        BLOCK_SIZE=block_size, num_warps=num_warps,
    )  # fmt: skip
    return grad_x, partial.sum(dim=0).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _row_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, RSTD_ptr, n_cols, eps,
    casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    X_row = tl.load(X_ptr + row_idx * X_row_stride + col_offsets, mask=mask, other=0)
    X_row_dtype = X_row.dtype
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0)
    if casting_mode == _CASTING_MODE_LLAMA:
        X_row = X_row.to(tl.float32)
    if casting_mode == _CASTING_MODE_GEMMA:
        W_row = W_row.to(tl.float32)
        X_row = X_row.to(tl.float32)
    if casting_mode == _CASTING_MODE_NONE:
        eps = eps.to(X_row_dtype)
    rstd = tl.rsqrt(tl.sum(X_row * X_row, axis=0) / n_cols + eps)
    tl.store(RSTD_ptr + row_idx, rstd)
    X_row = X_row * rstd
    if casting_mode == _CASTING_MODE_LLAMA:
        X_row = X_row.to(X_row_dtype)
    Y_row = X_row * W_row
    if casting_mode == _CASTING_MODE_GEMMA:
        Y_row = Y_row.to(X_row_dtype)
    tl.store(Y_ptr + row_idx * Y_row_stride + col_offsets, Y_row, mask=mask)


@triton.jit
def _block_forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, RSTD_ptr, n_rows, n_cols, eps,
    casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_ROW: tl.constexpr,
):  # fmt: skip
    tl.static_assert(casting_mode == _CASTING_MODE_GEMMA, "blocks of rows are computed in float32")
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    row_mask, col_mask = row_idx < n_rows, col_offsets < n_cols
    mask = row_mask[:, None] & col_mask[None, :]
    X_block = tl.load(X_ptr + row_idx[:, None] * X_row_stride + col_offsets[None, :], mask=mask, other=0)
    W_row = tl.load(W_ptr + col_offsets, mask=col_mask, other=0).to(tl.float32)
    X_wide = X_block.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(X_wide * X_wide, axis=1) / n_cols + eps)
    tl.store(RSTD_ptr + row_idx, rstd, row_mask)
    Y_block = (X_wide * rstd[:, None] * W_row[None, :]).to(X_block.dtype)
    tl.store(Y_ptr + row_idx[:, None] * Y_row_stride + col_offsets[None, :], Y_block, mask=mask)


@triton.jit
def _backward_kernel(
    dY_ptr, X_ptr, W_ptr, RSTD_ptr, dX_ptr, dW_ptr, dW_row_stride,
    n_rows, n_cols, rows_per_program,
    X_DTYPE: tl.constexpr, casting_mode: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """Rows in a row for each program, perhaps none; dW (programs, n_cols) in float32."""
    row_block_id = tl.program_id(0).to(tl.int64)
    row_start = row_block_id * rows_per_program
    row_end = min((row_block_id + 1) * rows_per_program, n_rows)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dW_row = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    dY_ptr += row_start * n_cols
    X_ptr += row_start * n_cols
    dX_ptr += row_start * n_cols
    RSTD_ptr += row_start
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
    for _ in range(row_start, row_end):
        dY_row = tl.load(dY_ptr + col_offsets, mask=mask, other=0.0)
        X_row = tl.load(X_ptr + col_offsets, mask=mask, other=0.0).to(tl.float32)
        rstd_row = tl.load(RSTD_ptr)
        if casting_mode == _CASTING_MODE_LLAMA:
            m = (dY_row * W_row.to(X_DTYPE)).to(tl.float32)
            dW_row += dY_row * (X_row * rstd_row).to(X_DTYPE)
        else:
            m = dY_row.to(tl.float32) * W_row
            dW_row += dY_row.to(tl.float32) * (X_row * rstd_row)
        dX_row = rstd_row * m
        dX_row += rstd_row * (-(1 / n_cols) * rstd_row * rstd_row * tl.sum(m * X_row, axis=0) * X_row)
        tl.store(dX_ptr + col_offsets, dX_row.to(X_DTYPE), mask=mask)
        dY_ptr += n_cols
        X_ptr += n_cols
        dX_ptr += n_cols
        RSTD_ptr += 1
    tl.store(dW_ptr + row_block_id * dW_row_stride + col_offsets, dW_row, mask=mask)
