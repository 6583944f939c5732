"""Weighted sum with persistent programs: as many as the GPU holds, each striding over the tiles of rows.

Autotuned, with the tile's loads and stores in helper functions; the partial weight gradients are summed by torch.
"""

import torch
import triton
import triton.language as tl
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

PROGRAMS_PER_MULTIPROCESSOR = 2
CONFIGS = [
    triton.Config({"ROWS_TILE_SIZE": rows, "D_TILE_SIZE": cols}, num_warps=num_warps)
    for rows, cols, num_warps in [(32, 64, 4), (16, 256, 4), (8, 512, 8), (4, 1024, 8)]
]


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _validate(x, weight)
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    x_rows, y_rows = rearrange(x, "... d -> (...) d"), rearrange(y, "... -> (...)")
    n_rows, d = x_rows.shape
    if n_rows > 0:
        _forward_kernel[(_n_programs(x_rows),)](
            x_rows, weight, y_rows,
            *x_rows.stride(), weight.stride(0), y_rows.stride(0),
            n_rows, d,
        )  # fmt: skip
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _validate(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like the rows of x, {tuple(x.shape)} {x.dtype}, got {tuple(grad_y.shape)}")
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x_rows, grad_x_rows = (rearrange(t, "... d -> (...) d") for t in (x, grad_x))
    grad_y_rows = rearrange(grad_y, "... -> (...)")
    n_rows, d = x_rows.shape
    if n_rows == 0:
        return grad_x, torch.zeros_like(weight)
    n_programs = _n_programs(x_rows)
    partials = torch.empty(n_programs, d, dtype=torch.float32, device=x.device)
    _backward_kernel[lambda meta: (n_programs, triton.cdiv(d, meta["D_TILE_SIZE"]))](
        grad_y_rows, x_rows, weight, grad_x_rows, partials,
        grad_y_rows.stride(0), *x_rows.stride(), weight.stride(0), *grad_x_rows.stride(), *partials.stride(),
        n_rows, d,
    )  # fmt: skip
    return grad_x, partials.sum(0).to(weight.dtype)


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return WeightedSum.apply(x, weight)


class WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)


def _validate(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or weight.numel() != x.shape[-1]:
        raise ValueError(f"expected shapes (..., d) and (d,), got x {tuple(x.shape)}, weight {tuple(weight.shape)}")
    if x.dtype != weight.dtype or not x.is_floating_point():
        raise ValueError(f"expected one floating dtype, got x {x.dtype}, weight {weight.dtype}")


def _n_programs(x_rows: Tensor) -> int:
    n_multiprocessors = torch.cuda.get_device_properties(x_rows.device).multi_processor_count
    return min(PROGRAMS_PER_MULTIPROCESSOR * n_multiprocessors, triton.cdiv(len(x_rows), 16))


@triton.jit
def _indices(tile, n, TILE_SIZE: tl.constexpr):
    """The tile's rows or columns, and which of them exist."""
    at = tile.to(tl.int64) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    return at, at < n


@triton.jit
def _load_vector(ptr, stride, at, mask):
    return tl.load(ptr + at * stride, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _load_tile(ptr, stride_r, stride_d, rows, row_mask, cols, col_mask):
    mask = row_mask[:, None] & col_mask[None, :]
    return tl.load(ptr + rows[:, None] * stride_r + cols[None, :] * stride_d, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _store_tile(ptr, stride_r, stride_d, rows, row_mask, cols, col_mask, value):
    mask = row_mask[:, None] & col_mask[None, :]
    tl.store(ptr + rows[:, None] * stride_r + cols[None, :] * stride_d, value.to(ptr.dtype.element_ty), mask=mask)


@triton.autotune(CONFIGS, key=["d"])
@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    for tile in range(tl.program_id(0), tl.cdiv(n_rows, ROWS_TILE_SIZE), tl.num_programs(0)):
        rows, row_mask = _indices(tile, n_rows, ROWS_TILE_SIZE)
        y = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
        for d_tile in range(tl.cdiv(d, D_TILE_SIZE)):
            cols, col_mask = _indices(d_tile, d, D_TILE_SIZE)
            x = _load_tile(x_ptr, stride_xr, stride_xd, rows, row_mask, cols, col_mask)
            w = _load_vector(w_ptr, stride_wd, cols, col_mask)
            y += tl.sum(x * w[None, :], axis=1)
        tl.store(y_ptr + rows * stride_yr, y.to(y_ptr.dtype.element_ty), mask=row_mask)


@triton.autotune(CONFIGS, key=["d"])
@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    cols, col_mask = _indices(tl.program_id(1), d, D_TILE_SIZE)
    w = _load_vector(w_ptr, stride_wd, cols, col_mask)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for tile in range(program, tl.cdiv(n_rows, ROWS_TILE_SIZE), tl.num_programs(0)):
        rows, row_mask = _indices(tile, n_rows, ROWS_TILE_SIZE)
        grad_y = _load_vector(grad_y_ptr, stride_gyr, rows, row_mask)
        x = _load_tile(x_ptr, stride_xr, stride_xd, rows, row_mask, cols, col_mask)
        grad_w += tl.sum(grad_y[:, None] * x, axis=0)
        grad_x = grad_y[:, None] * w[None, :]
        _store_tile(grad_x_ptr, stride_gxr, stride_gxd, rows, row_mask, cols, col_mask, grad_x)
    tl.store(partials_ptr + program.to(tl.int64) * stride_pr + cols * stride_pd, grad_w, mask=col_mask)
