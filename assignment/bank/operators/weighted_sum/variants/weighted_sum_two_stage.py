"""Weighted sum in two stages, as a split reduction does it: partial sums to a buffer, then a small kernel over these.

Every partial sum is a pair (high, low), what rounding took from the first kept in the second (Knuth's TwoSum), and
pairs are merged by tl.reduce with a combine function of our own. The backward does the same down the rows.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK, ROWS, MAX_SPLITS = 128, 8, 16


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y = x_.new_empty(n_rows)
    if n_rows > 0:
        chunk, n_splits = _split(d)
        middle = torch.empty((2, n_splits, n_rows), dtype=torch.float32, device=x.device)
        _row_stage_1[triton.cdiv(n_rows, ROWS), n_splits](
            x_, weight, middle, *x_.stride(), *weight.stride(), n_rows, d, chunk, ROWS=ROWS, BLOCK=BLOCK
        )
        _stage_2[(triton.cdiv(n_rows, BLOCK),)](
            middle, y, n_rows, n_splits, BLOCK=BLOCK, SPLITS=triton.next_power_of_2(n_splits)
        )
    return y.view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {x.shape[:-1]} in {x.dtype}, got {grad_y.shape}, {grad_y.dtype}")
    x_, grad_y_ = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    n_rows, d = x_.shape
    grad_x, grad_w = x_.new_empty(n_rows, d), torch.zeros_like(weight)
    if n_rows > 0:
        chunk, n_splits = _split(n_rows)
        middle = torch.empty((2, n_splits, d), dtype=torch.float32, device=x.device)
        _column_stage_1[triton.cdiv(d, BLOCK), n_splits](
            grad_y_, x_, weight, grad_x, middle, *grad_y_.stride(), *x_.stride(), *weight.stride(),
            n_rows, d, chunk, ROWS=ROWS, BLOCK=BLOCK,
        )  # fmt: skip
        grad_w = torch.empty(d, dtype=weight.dtype, device=x.device)
        _stage_2[(triton.cdiv(d, BLOCK),)](
            middle, grad_w, d, n_splits, BLOCK=BLOCK, SPLITS=triton.next_power_of_2(n_splits)
        )
    return grad_x.view(x.shape), grad_w


def _split(n: int) -> tuple[int, int]:
    """How long the chunks are, in elements, and how many: whole blocks, at most MAX_SPLITS chunks."""
    chunk = triton.cdiv(triton.cdiv(n, MAX_SPLITS), BLOCK) * BLOCK
    return chunk, triton.cdiv(n, chunk)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or tuple(weight.shape) != (x.shape[-1],):
        raise ValueError(f"expected x (..., d) and weight (d,), got {x.shape} and {weight.shape}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _merge(a_high, a_low, b_high, b_low):
    """The sum of two pairs, exact but for the low parts."""
    high = a_high + b_high
    b = high - a_high
    error = (a_high - (high - b)) + (b_high - b)
    return high, error + (a_low + b_low)


@triton.jit
def _total(terms, axis: tl.constexpr):
    return tl.reduce((terms, tl.zeros_like(terms)), axis, _merge)


@triton.jit
def _row_stage_1(
    x_ptr, w_ptr, middle_ptr,
    stride_xr, stride_xd, stride_wd, n_rows, d, chunk,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (row tiles, splits): the pair of each row over one chunk of columns; middle (2, splits, rows)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(1).to(tl.int64)
    high, low = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(split * chunk, tl.minimum((split + 1) * chunk, d), BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        block_high, block_low = _total(x.to(tl.float32) * w[None, :], 1)
        high, low = _merge(high, low, block_high, block_low)
    middle_ptr += split * n_rows
    tl.store(middle_ptr + rows, high, mask=rows < n_rows)
    tl.store(middle_ptr + tl.num_programs(1).to(tl.int64) * n_rows + rows, low, mask=rows < n_rows)


@triton.jit
def _column_stage_1(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, middle_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, n_rows, d, chunk,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Grid (column tiles, splits): the pair of each column over one chunk of rows; middle (2, splits, d)."""
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    split = tl.program_id(1).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    high, low = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(split * chunk, tl.minimum((split + 1) * chunk, n_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_y[:, None] * w[None, :], mask=mask)
        block_high, block_low = _total(grad_y[:, None] * x.to(tl.float32), 0)
        high, low = _merge(high, low, block_high, block_low)
    middle_ptr += split * d
    tl.store(middle_ptr + cols, high, mask=cols < d)
    tl.store(middle_ptr + tl.num_programs(1).to(tl.int64) * d + cols, low, mask=cols < d)


@triton.jit
def _stage_2(middle_ptr, out_ptr, n, n_splits, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    """The splits' pairs added up: middle (2, splits, n), out (n,)."""
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    splits = tl.arange(0, SPLITS).to(tl.int64)
    mask = (splits < n_splits)[:, None] & (cols < n)[None, :]
    ptrs = middle_ptr + splits[:, None] * n + cols[None, :]
    highs = tl.load(ptrs, mask=mask, other=0.0)
    lows = tl.load(ptrs + tl.cast(n_splits, tl.int64) * n, mask=mask, other=0.0)
    high, low = tl.reduce((highs, lows), 0, _merge)
    tl.store(out_ptr + cols, (high + low).to(out_ptr.dtype.element_ty), mask=cols < n)
