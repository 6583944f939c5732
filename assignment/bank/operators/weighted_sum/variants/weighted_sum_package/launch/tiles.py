"""Sizes of tiles, and what all kernels load with."""

import triton
import triton.language as tl

ROWS = 32
COLS = tl.constexpr(64)


@triton.jit
def load_tile(ptr, rows, stride_r, cols, stride_d, n_rows, d):
    mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
    return tl.load(ptr + rows[:, None] * stride_r + cols[None, :] * stride_d, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_row(ptr, at, stride, n):
    return tl.load(ptr + at * stride, mask=at < n, other=0.0).to(tl.float32)
