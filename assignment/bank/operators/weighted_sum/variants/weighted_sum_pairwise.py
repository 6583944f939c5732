"""Weighted sum in rectangular tiles of 64 rows × 16 columns, one tile a program in the backward.

Every program leaves a partial row of the weight's gradient; a second kernel adds these in pairs, then pairs of pairs.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS, COLS = 64, 16
PARTIALS_LOG2 = 6  # partial rows that the second kernel holds at once


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    """y_i = Σ_j x_ij w_j, in float32."""
    batch, d = _sizes(x, weight)
    n_rows = math.prod(batch)
    y = torch.empty(batch, dtype=x.dtype, device=x.device)
    if n_rows > 0:
        x = x.reshape(n_rows, d)
        _forward_kernel[(triton.cdiv(n_rows, ROWS),)](
            x, x.stride(0), x.stride(1), weight, weight.stride(0), y, n_rows, d, ROWS, COLS
        )
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """grad_x_ij = grad_y_i w_j and grad_w_j = Σ_i grad_y_i x_ij."""
    batch, d = _sizes(x, weight)
    if (grad_y.shape, grad_y.dtype) != (batch, x.dtype):
        raise ValueError(f"expected grad_y {tuple(batch)} in {x.dtype}, got {tuple(grad_y.shape)} in {grad_y.dtype}")
    n_rows = math.prod(batch)
    grad_x, grad_weight = torch.empty_like(x, memory_format=torch.contiguous_format), weight.new_zeros(d)
    if n_rows > 0:
        x, grad_y = x.reshape(n_rows, d), grad_y.reshape(n_rows)
        n_row_tiles, n_col_tiles = triton.cdiv(n_rows, ROWS), triton.cdiv(d, COLS)
        partials = torch.empty(n_row_tiles, d, dtype=torch.float32, device=x.device)
        _backward_kernel[(n_row_tiles * n_col_tiles,)](
            grad_y, grad_y.stride(0), x, x.stride(0), x.stride(1), weight, weight.stride(0),
            grad_x, partials,
            n_rows, d, n_col_tiles,
            ROWS, COLS,
        )  # fmt: skip
        _reduce_kernel[(n_col_tiles,)](partials, grad_weight, n_row_tiles, d, PARTIALS_LOG2, COLS)
    return grad_x, grad_weight


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    """weighted_sum_forward, with weighted_sum_backward as its gradient."""
    return _Function.apply(x, weight)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        return weighted_sum_forward(x, weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad_y):
        grad_x, grad_weight = weighted_sum_backward(grad_y, *ctx.saved_tensors)
        return grad_x if ctx.needs_input_grad[0] else None, grad_weight if ctx.needs_input_grad[1] else None


def _sizes(x: Tensor, weight: Tensor) -> tuple[torch.Size, int]:
    if x.ndim < 1 or weight.shape != x.shape[-1:]:
        raise ValueError(f"expected a weight as long as the rows of x {tuple(x.shape)}, got {tuple(weight.shape)}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected x and weight of one dtype, got {x.dtype} and {weight.dtype}")
    return x.shape[:-1], x.shape[-1]


@triton.jit
def _forward_kernel(
    x_ptr, stride_xr, stride_xd, w_ptr, stride_wd, y_ptr, n_rows, d, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """y (n_rows,) for one tile of rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    y = tl.zeros((ROWS,), tl.float32)
    for first in tl.range(0, d, COLS):
        cols = first + tl.arange(0, COLS).to(tl.int64)
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, (rows < n_rows)[:, None] & (cols < d)[None, :], 0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, cols < d, 0.0).to(tl.float32)
        y += tl.sum(x * w, 1)
    tl.store(y_ptr + rows, y, rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, stride_gyr, x_ptr, stride_xr, stride_xd, w_ptr, stride_wd,
    grad_x_ptr, partials_ptr,
    n_rows, d, n_col_tiles,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A tile of grad_x (n_rows, d), and its column sums in partials (n_row_tiles, d)."""
    row_tile = tl.program_id(0).to(tl.int64) // n_col_tiles
    col_tile = tl.program_id(0).to(tl.int64) % n_col_tiles
    rows = row_tile * ROWS + tl.arange(0, ROWS)
    cols = col_tile * COLS + tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask, 0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, cols < d, 0.0).to(tl.float32)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, rows < n_rows, 0.0).to(tl.float32)
    tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_y[:, None] * w, mask)
    tl.store(partials_ptr + row_tile * d + cols, tl.sum(grad_y[:, None] * x, 0), cols < d)


@triton.jit
def _reduce_kernel(partials_ptr, grad_w_ptr, n_partials, d, LOG2: tl.constexpr, COLS: tl.constexpr):
    """grad_w (d,) from partials (n_partials, d), for one tile of columns."""
    cols = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    grad_w = tl.zeros((COLS,), tl.float32)
    for first in tl.range(0, n_partials, 2**LOG2):
        at = first + tl.arange(0, 2**LOG2).to(tl.int64)
        mask = (at < n_partials)[:, None] & (cols < d)[None, :]
        partials = tl.load(partials_ptr + at[:, None] * d + cols[None, :], mask, 0.0)
        grad_w += _pairwise_sum(partials, LOG2, COLS)
    tl.store(grad_w_ptr + cols, grad_w, cols < d)


@triton.jit
def _pairwise_sum(x, LOG2: tl.constexpr, COLS: tl.constexpr):
    """The sum of the 2^LOG2 rows of x (2^LOG2, COLS): neighbours first."""
    for level in tl.static_range(LOG2):
        pairs = tl.reshape(x, (2 ** (LOG2 - 1 - level), 2, COLS))
        left, right = tl.split(tl.permute(pairs, (0, 2, 1)))
        x = left + right
    return tl.reshape(x, (COLS,))
