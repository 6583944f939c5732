"""Weighted sum with rows of any width unrolled by tl.static_range, and matrices as named tuples of pointer and strides.

The compiler is told what it cannot see: tl.assume for sizes and strides, tl.multiple_of and tl.max_contiguous for the
columns. Full blocks have no mask along the columns; only the last block has.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

MAX_BLOCK, ELEMENTS = 1024, 2048


class Matrix(NamedTuple):
    """A matrix in memory; the stride of its rows, and that of its columns."""

    ptr: Tensor
    row: int
    col: int


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    x_ = _matrix(x, weight)
    n_rows, d = x_.shape
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    if n_rows > 0:
        tile = _tile(d)
        _forward_kernel[(triton.cdiv(n_rows, tile["ROWS"]),)](
            Matrix(x_, *x_.stride()), weight, weight.stride(0), y, n_rows, d, **tile
        )
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    x_ = _matrix(x, weight)
    if grad_y.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y of shape {tuple(x.shape[:-1])}, got {tuple(grad_y.shape)}")
    if grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y in {x.dtype}, got {grad_y.dtype}")
    n_rows, d = x_.shape
    grad_x = torch.empty(x_.shape, dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return grad_x.view(x.shape), torch.zeros_like(weight)
    tile, vector = _tile(d), grad_y.reshape(-1)
    n_tiles = triton.cdiv(n_rows, tile["ROWS"])
    shares = torch.empty((n_tiles, d), dtype=torch.float32, device=x.device)
    _backward_kernel[(n_tiles,)](
        vector, vector.stride(0), Matrix(x_, *x_.stride()), weight, weight.stride(0),
        Matrix(grad_x, *grad_x.stride()), shares, n_rows, d, **tile,
    )  # fmt: skip
    return grad_x.view(x.shape), shares.sum(dim=0).to(weight.dtype)


def _matrix(x: Tensor, weight: Tensor) -> Tensor:
    if x.ndim == 0 or weight.ndim != 1 or weight.shape[0] != x.shape[-1]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")
    return x.reshape(-1, x.shape[-1])


def _tile(d: int) -> dict[str, int]:
    block = min(triton.next_power_of_2(d), MAX_BLOCK)
    return {"N_BLOCKS": triton.cdiv(d, block), "ROWS": min(16, ELEMENTS // block), "BLOCK": block}


@triton.jit
def _columns(index: tl.constexpr, BLOCK: tl.constexpr):
    cols = index * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    return tl.max_contiguous(tl.multiple_of(cols, BLOCK), BLOCK)


@triton.jit
def _tile_of(x, rows, cols, row_mask, d, IS_FULL: tl.constexpr):
    """Pointers to the tile and its mask, which is the rows' alone where all columns are real."""
    mask = row_mask[:, None] if IS_FULL else row_mask[:, None] & (cols < d)[None, :]
    return x.ptr + rows[:, None] * x.row + cols[None, :] * x.col, mask


@triton.jit
def _forward_kernel(
    x: Matrix, w_ptr, stride_w, y_ptr, n_rows, d,
    N_BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tl.assume(d > 0)
    tl.assume(x.row >= 0)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    y = tl.zeros((ROWS,), dtype=tl.float32)
    for i in tl.static_range(N_BLOCKS):
        cols = _columns(i, BLOCK)
        ptrs, mask = _tile_of(x, rows, cols, rows < n_rows, d, i + 1 < N_BLOCKS)
        w = tl.load(w_ptr + cols * stride_w, mask=cols < d, other=0.0, cache_modifier=".ca")
        y += tl.sum(tl.load(ptrs, mask=mask, other=0.0).to(tl.float32) * w.to(tl.float32), axis=1)
    tl.store(y_ptr + rows, y, mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, stride_gy, x: Matrix, w_ptr, stride_w, grad_x: Matrix, shares_ptr, n_rows, d,
    N_BLOCKS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tl.assume(d > 0)
    tl.assume(n_rows > 0)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < n_rows
    grad_y = tl.load(grad_y_ptr + rows * stride_gy, mask=row_mask, other=0.0).to(tl.float32)[:, None]
    shares_ptr += tl.program_id(0).to(tl.int64) * d
    for i in tl.static_range(N_BLOCKS):
        cols = _columns(i, BLOCK)
        ptrs, mask = _tile_of(x, rows, cols, row_mask, d, i + 1 < N_BLOCKS)
        x_tile = tl.load(ptrs, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        w = tl.load(w_ptr + cols * stride_w, mask=cols < d, other=0.0).to(tl.float32)
        ptrs, mask = _tile_of(grad_x, rows, cols, row_mask, d, i + 1 < N_BLOCKS)
        tl.store(ptrs, grad_y * w[None, :], mask=mask)
        tl.store(shares_ptr + cols, tl.sum(grad_y * x_tile, axis=0), mask=cols < d)
