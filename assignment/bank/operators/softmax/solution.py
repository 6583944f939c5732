"""Softmax over the last dimension, for practice: y_j = exp(x_j − m) / Σ_k exp(x_k − m) with m = max_k x_k.

    forward    y_ij      = exp(x_ij − m_i) / Σ_k exp(x_ik − m_i)
    backward   grad_x_ij = y_ij (grad_y_ij − Σ_k grad_y_ik y_ik)

Bytes that must move, for n rows of d elements of s bytes each: forward 2·n·d·s, x being read and y written once;
backward 3·n·d·s. Both are memory bound. A row wider than a tile is read twice.
Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", for rows wider than a tile.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
MAX_ONE_TILE_D = 32768  # a row stays in registers; wider ones are read twice
MIN_TILE_ELEMENTS = 2048  # of several short rows
ELEMENTS_PER_THREAD = 32
WIDE_TILE_SIZE, WIDE_NUM_WARPS = 4096, 8
LEAST = tl.constexpr(-3.4028234663852886e38)  # where maxima start: finite, so that −∞ − m is −∞ and not NaN
# END SOLUTION


def softmax_forward(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """y_j = exp(x_j − m) / Σ_k exp(x_k − m), where m = max_k x_k of the row.

    dtypes: float32, bfloat16 or float16; y has that of x. Computed in float32 and cast once, at the store.
    Values: finite or −∞, which gives 0. A row of nothing but −∞ gives zeros.
    Strides: any, broadcast dimensions (stride 0) included; y has memory of its own. x is not written to.
    Width: d from 1 to 2²⁰. Up to 8,192 columns x is read once, beyond at most twice; y is written once.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, or the dtype is none of the three.
    """
    # BEGIN SOLUTION handout/softmax.md
    _check_x(x)
    x_rows = x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y = x_rows.new_empty(n_rows, d)
    if n_rows > 0 and d <= MAX_ONE_TILE_D:
        grid, sizes = _one_tile_sizes(n_rows, d)
        _softmax_kernel[grid](x_rows, y, *x_rows.stride(), *y.stride(), n_rows, d, **sizes)
    elif n_rows > 0:
        _wide_softmax_kernel[(n_rows,)](
            x_rows, y, *x_rows.stride(), *y.stride(), d, D_TILE_SIZE=WIDE_TILE_SIZE, num_warps=WIDE_NUM_WARPS
        )
    return y.reshape(x.shape)
    # END SOLUTION


def softmax_backward(grad_y: Float[Tensor, "*batch d"], y: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """grad_x_j = y_j (grad_y_j − Σ_k grad_y_k y_k), from the y of the forward.

    dtypes: as in the forward, the same for grad_y, y and grad_x. Computed in float32, the sum included.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: d from 1 to 2²⁰. Up to 8,192 columns grad_y and y are read once, beyond at most twice.
    Empty batch: an empty grad_x, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of y's shape and dtype.
    """
    # BEGIN SOLUTION handout/softmax.md
    _check_x(y)
    if grad_y.shape != y.shape or grad_y.dtype != y.dtype:
        raise ValueError(
            f"expected grad_y like y, {tuple(y.shape)} of {y.dtype}; got {tuple(grad_y.shape)} of {grad_y.dtype}"
        )
    grad_y_rows, y_rows = grad_y.reshape(-1, y.shape[-1]), y.reshape(-1, y.shape[-1])
    n_rows, d = y_rows.shape
    grad_x = y_rows.new_empty(n_rows, d)
    strides = *grad_y_rows.stride(), *y_rows.stride(), *grad_x.stride()
    if n_rows > 0 and d <= MAX_ONE_TILE_D:
        grid, sizes = _one_tile_sizes(n_rows, d)
        _softmax_backward_kernel[grid](grad_y_rows, y_rows, grad_x, *strides, n_rows, d, **sizes)
    elif n_rows > 0:
        _wide_softmax_backward_kernel[(n_rows,)](
            grad_y_rows, y_rows, grad_x, *strides, d, D_TILE_SIZE=WIDE_TILE_SIZE, num_warps=WIDE_NUM_WARPS
        )
    return grad_x.reshape(y.shape)
    # END SOLUTION


def softmax(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """y of `softmax_forward`, differentiable in x through `softmax_backward`.

    Backward may run twice (`retain_graph=True`), and on an expanded gradient.

    Raises:
        ValueError: as `softmax_forward`.
    """
    # BEGIN SOLUTION handout/softmax.md
    return Softmax.apply(x)
    # END SOLUTION


# BEGIN SOLUTION
def _check_x(x: Tensor) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected a tensor of shape (..., d) with d >= 1, got {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected float32, bfloat16 or float16, got {x.dtype}")


def _one_tile_sizes(n_rows: int, d: int) -> tuple[tuple[int], dict[str, int]]:
    """Return the grid, and what a kernel is launched with whose tile holds whole rows."""
    d_tile_size = triton.next_power_of_2(d)
    rows_tile_size = max(1, MIN_TILE_ELEMENTS // d_tile_size)
    num_warps = max(4, d_tile_size // (32 * ELEMENTS_PER_THREAD))
    sizes = {"ROWS_TILE_SIZE": rows_tile_size, "D_TILE_SIZE": d_tile_size, "num_warps": num_warps}
    return (triton.cdiv(n_rows, rows_tile_size),), sizes


# END SOLUTION
class Softmax(torch.autograd.Function):
    """Saves y: the gradient needs no x."""

    @staticmethod
    def forward(ctx, x):
        # BEGIN SOLUTION handout/softmax.md softmax
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        # BEGIN SOLUTION handout/softmax.md softmax
        (y,) = ctx.saved_tensors
        return softmax_backward(grad_y, y)
        # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _softmax_kernel(
    x_ptr, y_ptr,
    stride_xr, stride_xd, stride_yr, stride_yd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of whole rows. x and y (n_rows, d). Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    tile_mask = (rows < n_rows)[:, None] & (cols < d)[None, :]

    # −∞ past the last column adds nothing to the sum.
    x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
    x = tl.load(x_ptrs, mask=tile_mask, other=float("-inf")).to(tl.float32)  # (ROWS_TILE_SIZE, D_TILE_SIZE)
    row_max = tl.maximum(tl.max(x, axis=1), LEAST)
    powers = tl.exp(x - row_max[:, None])
    total = tl.sum(powers, axis=1)
    y = powers * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)


@triton.jit
def _wide_softmax_kernel(
    x_ptr, y_ptr,
    stride_xr, stride_xd, stride_yr, stride_yd,
    d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a row, which it walks along twice: for maximum and sum, then for y. Grid: (n_rows,).

    Each lane has a maximum and a sum of its own, and rescales the sum where the maximum grows: no reduction over the
    tile within the loop.
    """
    row = tl.program_id(0).to(tl.int64)
    lane_max = tl.full((D_TILE_SIZE,), LEAST, dtype=tl.float32)
    lane_sum = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in tl.range(0, d, D_TILE_SIZE, num_stages=3):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        x_ptrs = x_ptr + row * stride_xr + cols * stride_xd
        # The second walk is to find the row in the cache.
        x = tl.load(x_ptrs, mask=cols < d, other=float("-inf"), eviction_policy="evict_last").to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - new_max) + tl.exp(x - new_max)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum * tl.exp(lane_max - row_max), axis=0)
    scale = 1.0 / tl.where(total > 0, total, 1.0)

    for start in tl.range(0, d, D_TILE_SIZE, num_stages=3):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        x_ptrs = x_ptr + row * stride_xr + cols * stride_xd
        x = tl.load(x_ptrs, mask=cols < d, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - row_max) * scale
        tl.store(y_ptr + row * stride_yr + cols * stride_yd, y.to(y_ptr.dtype.element_ty), mask=cols < d)


@triton.jit
def _softmax_backward_kernel(
    grad_y_ptr, y_ptr, grad_x_ptr,
    stride_gyr, stride_gyd, stride_yr, stride_yd, stride_gxr, stride_gxd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of whole rows. All tensors (n_rows, d). Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    tile_mask = (rows < n_rows)[:, None] & (cols < d)[None, :]

    # Zeros past the last column add nothing to the sum.
    grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
    grad_y = tl.load(grad_y_ptrs, mask=tile_mask, other=0.0).to(tl.float32)  # (ROWS_TILE_SIZE, D_TILE_SIZE)
    y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
    y = tl.load(y_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
    row_dot = tl.sum(grad_y * y, axis=1)
    grad_x = y * (grad_y - row_dot[:, None])
    grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
    tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=tile_mask)


@triton.jit
def _wide_softmax_backward_kernel(
    grad_y_ptr, y_ptr, grad_x_ptr,
    stride_gyr, stride_gyd, stride_yr, stride_yd, stride_gxr, stride_gxd,
    d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a row, which it walks along twice: for Σ grad_y·y, then for grad_x. Grid: (n_rows,)."""
    row = tl.program_id(0).to(tl.int64)
    lane_dot = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in tl.range(0, d, D_TILE_SIZE, num_stages=3):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        # The second walk is to find the row in the cache.
        grad_y_ptrs, y_ptrs = (
            grad_y_ptr + row * stride_gyr + cols * stride_gyd,
            y_ptr + row * stride_yr + cols * stride_yd,
        )
        grad_y = tl.load(grad_y_ptrs, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        lane_dot += grad_y * y
    row_dot = tl.sum(lane_dot, axis=0)

    for start in tl.range(0, d, D_TILE_SIZE, num_stages=3):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=col_mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_yr + cols * stride_yd, mask=col_mask, other=0.0).to(tl.float32)
        grad_x = y * (grad_y - row_dot)
        grad_x_ptrs = grad_x_ptr + row * stride_gxr + cols * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=col_mask)


# END SOLUTION
