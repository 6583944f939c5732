"""RMSNorm on a two-dimensional grid of tiles, with atomic adds for whatever crosses a tile's border.

dw always does; a row's sum only where the row is wider than a tile. In algebra: y = x (rstd w), and
dx = rstd (g − x · rstd² Σ g x / d) with g = w dy.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE_ELEMENTS = 4096
MAX_D_TILE_SIZE = 1024


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y, rstd = torch.empty_like(x_, memory_format=torch.contiguous_format), _float32(x_, n_rows)
    if n_rows > 0:
        grid, tile, is_whole = _launch(n_rows, d)
        sums = _float32(x_, n_rows)
        if not is_whole:
            _add_row_sums_kernel[grid](
                x_, x_, weight, sums, *x_.stride(), *x_.stride(), *weight.stride(), n_rows, d, HAS_WEIGHT=False, **tile
            )
        _forward_kernel[grid](
            x_, weight, sums, y, rstd,
            *x_.stride(), *weight.stride(), *y.stride(),
            n_rows, d, eps,
            IS_WHOLE=is_whole, **tile,
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y and rstd to fit x {tuple(x.shape)}, got {grad_y.shape} and {rstd.shape}")
    if grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y in {x.dtype}, got {grad_y.dtype}")
    grad_y_, x_, rstd_ = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1]), rstd.reshape(-1)
    n_rows, d = x_.shape
    grad_x, grad_w = torch.empty_like(x_, memory_format=torch.contiguous_format), _float32(x_, d)
    if n_rows > 0:
        grid, tile, is_whole = _launch(n_rows, d)
        sums = _float32(x_, n_rows)
        strides = (*grad_y_.stride(), *x_.stride(), *weight.stride())
        if not is_whole:
            _add_row_sums_kernel[grid](grad_y_, x_, weight, sums, *strides, n_rows, d, HAS_WEIGHT=True, **tile)
        _backward_kernel[grid](
            grad_y_, x_, weight, rstd_, sums, grad_x, grad_w,
            *strides, *rstd_.stride(), *grad_x.stride(),
            n_rows, d,
            IS_WHOLE=is_whole, **tile,
        )  # fmt: skip
    return grad_x.view(x.shape), grad_w.to(weight.dtype)


def rmsnorm(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5) -> Float[Tensor, "*batch d"]:
    return RMSNorm.apply(x, weight, eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = rmsnorm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return (*rmsnorm_backward(grad_y, *ctx.saved_tensors), None)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.dim() == 0 or weight.dim() != 1 or x.size(-1) != weight.numel():
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _float32(x: Tensor, n: int) -> Tensor:
    """Zeros to add to."""
    return torch.zeros(n, dtype=torch.float32, device=x.device)


def _launch(n_rows: int, d: int) -> tuple[tuple[int, int], dict[str, int], bool]:
    """The grid, the tile and whether a tile holds whole rows."""
    d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
    rows_tile_size = min(TILE_ELEMENTS // d_tile_size, 64)
    grid = (triton.cdiv(n_rows, rows_tile_size), triton.cdiv(d, d_tile_size))
    return grid, {"ROWS_TILE_SIZE": rows_tile_size, "D_TILE_SIZE": d_tile_size}, grid[1] == 1


@triton.jit
def _indices(n_rows, d, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr):
    """The program's rows (ROWS_TILE_SIZE, 1), its columns (1, D_TILE_SIZE) and the mask of the tile."""
    rows = (tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE))[:, None]
    cols = (tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE))[None, :]
    return rows, cols, (rows < n_rows) & (cols < d)


@triton.jit
def _add_row_sums_kernel(
    a_ptr, x_ptr, w_ptr, sums_ptr,
    stride_ar, stride_ad, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    HAS_WEIGHT: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """sums_i += Σ_j a_ij x_ij (w_j) over the columns of a tile."""
    rows, cols, mask = _indices(n_rows, d, ROWS_TILE_SIZE, D_TILE_SIZE)
    a = tl.load(a_ptr + rows * stride_ar + cols * stride_ad, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    if HAS_WEIGHT:
        a *= tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    tl.atomic_add(sums_ptr + rows, tl.sum(a * x, axis=1, keep_dims=True), mask=rows < n_rows)


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, sums_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr, stride_yd,
    n_rows, d, eps,
    IS_WHOLE: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows, cols, mask = _indices(n_rows, d, ROWS_TILE_SIZE, D_TILE_SIZE)
    x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    if IS_WHOLE:
        squares = tl.sum(x * x, axis=1, keep_dims=True)
    else:
        squares = tl.load(sums_ptr + rows, mask=rows < n_rows, other=0.0)
    rstd = tl.rsqrt(squares * (1.0 / d) + eps)  # (ROWS_TILE_SIZE, 1)
    tl.store(y_ptr + rows * stride_yr + cols * stride_yd, (x * (rstd * w)).to(y_ptr.dtype.element_ty), mask=mask)
    if tl.program_id(1) == 0:
        tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, sums_ptr, grad_x_ptr, grad_w_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr, stride_gxr, stride_gxd,
    n_rows, d,
    IS_WHOLE: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows, cols, mask = _indices(n_rows, d, ROWS_TILE_SIZE, D_TILE_SIZE)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr + cols * stride_gyd, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)
    g = w * grad_y
    if IS_WHOLE:
        sums = tl.sum(g * x, axis=1, keep_dims=True)
    else:
        sums = tl.load(sums_ptr + rows, mask=rows < n_rows, other=0.0)
    grad_x = rstd * (g - x * (sums * rstd * rstd / d))
    grad_x_ptrs = grad_x_ptr + rows * stride_gxr + cols * stride_gxd
    tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
    grad_w = tl.sum(grad_y * (x * rstd), axis=0, keep_dims=True)
    tl.atomic_add(grad_w_ptr + cols, grad_w, mask=cols < d)
