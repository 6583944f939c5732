"""Weighted sum whose kernels meet results that the language leaves undefined, and leave them out.

Forward: the tile shifted by one, of which the first lane has no neighbour; a division by what is 0 past the end; bits
shifted past their width. Backward: the last program to finish adds up the partial rows, which it knows by a ticket that
one lane of an atomic draws; it reads rows of scratch that nobody has written, too.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS, COLS = 32, 64


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    y = torch.empty(x_.shape[0], dtype=x.dtype, device=x.device)
    if y.numel():
        grid = (triton.cdiv(y.numel(), ROWS),)
        _forward_kernel[grid](x_, weight, y, *x_.stride(), weight.stride(0), *x_.shape, ROWS=ROWS, COLS=COLS)
    return y.view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if (grad_y.shape, grad_y.dtype) != (x.shape[:-1], x.dtype):
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} in {x.dtype}, got {tuple(grad_y.shape)}")
    x_, grad_y_ = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    n_rows, d = x_.shape
    grad_x = torch.empty(n_rows, d, dtype=x.dtype, device=x.device)
    if not n_rows:
        return grad_x.view(x.shape), torch.zeros_like(weight)
    n_tiles = triton.cdiv(n_rows, ROWS)
    partial = torch.empty(triton.next_power_of_2(n_tiles), d, dtype=torch.float32, device=x.device)
    grad_weight, count = (
        torch.empty(d, dtype=weight.dtype, device=x.device),
        torch.zeros(1, dtype=torch.int32, device=x.device),
    )
    _backward_kernel[(n_tiles,)](
        grad_y_, x_, weight, grad_x, partial, grad_weight, count,
        grad_y_.stride(0), *x_.stride(), weight.stride(0), n_rows, d, n_tiles,
        ROWS=ROWS, COLS=COLS, TILES=partial.shape[0],
    )  # fmt: skip
    return grad_x.view(x.shape), grad_weight


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.shape != (x.shape[-1],):
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected weight in {x.dtype}, got {weight.dtype}")


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, n_rows, d, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    before = lanes - 1  # of the first lane there is none
    y = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + lanes.to(tl.int64)
        n_left = tl.maximum(d - cols, 0)  # 0 past the end
        is_inside = tl.where(n_left > 0, d // n_left, 0) > 0
        bits = tl.where(lanes < 32, 1 << lanes, 0) | tl.where(lanes >= 32, 1, 0)
        mask = (rows < n_rows)[:, None] & (is_inside & (bits != 0))[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=is_inside, other=0.0).to(tl.float32)
        x_before = tl.gather(x, tl.broadcast_to(before[None, :], (ROWS, COLS)), 1)
        shifted = tl.where(lanes[None, :] > 0, x_before * tl.gather(w, before, 0)[None, :], 0.0)
        last = tl.where(lanes[None, :] == COLS - 1, x * w[None, :], 0.0)
        y += tl.sum(shifted + last, axis=1)
    tl.store(y_ptr + rows, y.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partial_ptr, grad_w_ptr, count_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, n_rows, d, n_tiles,
    ROWS: tl.constexpr, COLS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * ROWS + tl.arange(0, ROWS)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_x = grad_y[:, None] * w[None, :]
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
        tl.store(partial_ptr + tile * d + cols, tl.sum(grad_y[:, None] * x, axis=0), mask=cols < d)
    tl.debug_barrier()
    drawing = tl.arange(0, 2)
    tickets = tl.atomic_add(count_ptr + drawing, 1, mask=drawing < 1)
    if tl.sum(tl.where(drawing < 1, tickets, 0)) == n_tiles - 1:
        tiles = tl.arange(0, TILES).to(tl.int64)
        for start in range(0, d, COLS):
            cols = start + tl.arange(0, COLS).to(tl.int64)
            partial = tl.load(partial_ptr + tiles[:, None] * d + cols[None, :], mask=(cols < d)[None, :], other=0.0)
            partial = tl.where((tiles < n_tiles)[:, None], partial, 0.0)
            tl.store(grad_w_ptr + cols, tl.sum(partial, axis=0).to(grad_w_ptr.dtype.element_ty), mask=cols < d)
