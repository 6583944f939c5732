"""RMSNorm with at most 256 programs, which stride over the rows and keep their share of dw in registers.

Rows wider than a tile go chunk by chunk: dw of one chunk at a time, after a first pass for the rows' means. A last
kernel adds up the programs' shares.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_PROGRAMS = 256
MAX_D_TILE_SIZE = 2048


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    rows = x.reshape(-1, x.shape[-1])
    n_rows, d = rows.shape
    y, rstd = torch.empty(x.shape, dtype=x.dtype, device=x.device), rows.new_empty(n_rows, dtype=torch.float32)
    arguments = (rows, weight, y, rstd, *rows.stride(), *weight.stride(), n_rows, d, eps)
    if n_rows > 0 and d <= MAX_D_TILE_SIZE:
        _forward_kernel[_grid(n_rows, _sizes(d))](*arguments, **_sizes(d))
    elif n_rows > 0:
        _wide_forward_kernel[_grid(n_rows, _sizes(d))](*arguments, D_TILE_SIZE=MAX_D_TILE_SIZE)
    return y, rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    for name, tensor, shape, dtype in (
        ("grad_y", grad_y, x.shape, x.dtype),
        ("rstd", rstd, x.shape[:-1], torch.float32),
    ):
        if tensor.shape != shape or tensor.dtype != dtype:
            raise ValueError(f"expected {name} {tuple(shape)} {dtype}, got {tuple(tensor.shape)} {tensor.dtype}")
    rows, grad_rows, rstds = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1, x.shape[-1]), rstd.reshape(-1)
    n_rows, d = rows.shape
    grad_x, grad_w = torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.zeros_like(weight)
    if n_rows == 0:
        return grad_x, grad_w
    sizes = _sizes(d)
    grid = _grid(n_rows, sizes)
    shares = rows.new_empty(grid[0], d, dtype=torch.float32)
    strides = (*grad_rows.stride(), *rows.stride(), *weight.stride(), *rstds.stride())
    if d <= MAX_D_TILE_SIZE:
        _backward_kernel[grid](grad_rows, rows, weight, rstds, grad_x, shares, *strides, n_rows, d, **sizes)
    else:
        means = rows.new_empty(n_rows, dtype=torch.float32)
        _wide_backward_kernel[grid](
            grad_rows, rows, weight, rstds, grad_x, shares, means, *strides, n_rows, d, D_TILE_SIZE=MAX_D_TILE_SIZE
        )
    _add_shares_kernel[(triton.cdiv(d, 128),)](shares, grad_w, grad_w.stride(0), grid[0], d, 32, 128)
    return grad_x, grad_w


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
        grad_x, grad_w = rmsnorm_backward(grad_y, *ctx.saved_tensors)
        return grad_x, grad_w, None


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.shape != x.shape[-1:]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _sizes(d: int) -> dict[str, int]:
    d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
    return {"ROWS_TILE_SIZE": min(32, MAX_D_TILE_SIZE // d_tile_size), "D_TILE_SIZE": d_tile_size}


def _grid(n_rows: int, sizes: dict[str, int]) -> tuple[int]:
    return (min(MAX_PROGRAMS, triton.cdiv(n_rows, sizes["ROWS_TILE_SIZE"])),)


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)[None, :]
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    step = tl.num_programs(0).to(tl.int64) * ROWS_TILE_SIZE
    for start in tl.range(tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE, n_rows, step):
        rows = (start + tl.arange(0, ROWS_TILE_SIZE))[:, None]
        mask = (rows < n_rows) & (cols < d)
        x = tl.load(x_ptr + rows * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / d + eps)  # (ROWS_TILE_SIZE, 1)
        tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)
        tl.store(y_ptr + rows * d + cols, x * rstd * w, mask=mask)


@triton.jit
def _wide_forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d, eps,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """A row at a time, read twice."""
    for row in tl.range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        squares = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for first in tl.range(0, d, D_TILE_SIZE):
            cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32)
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / d + eps)
        tl.store(rstd_ptr + row, rstd)
        for first in tl.range(0, d, D_TILE_SIZE):
            cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32)
            w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
            tl.store(y_ptr + row * d + cols, x * rstd * w, mask=cols < d)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in tl.range(program * ROWS_TILE_SIZE, n_rows, tl.num_programs(0) * ROWS_TILE_SIZE):
        rows = start + tl.arange(0, ROWS_TILE_SIZE)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)[:, None]
        x_hat = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) * rstd
        grad_w += tl.sum(grad_y * x_hat, axis=0)
        mean = tl.sum(grad_y * w * x_hat, axis=1, keep_dims=True) / d
        grad_x = rstd * (grad_y * w - x_hat * mean)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
    tl.store(shares_ptr + program * d + cols, grad_w, mask=cols < d)


@triton.jit
def _wide_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr, means_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    n_rows, d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """A row at a time; means (n_rows,) is scratch, each program using only its own rows of it."""
    program = tl.program_id(0).to(tl.int64)
    for row in tl.range(program, n_rows, tl.num_programs(0)):
        sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for first in tl.range(0, d, D_TILE_SIZE):
            cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=cols < d, other=0.0)
            x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0)
            w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
            sums += grad_y.to(tl.float32) * w.to(tl.float32) * x.to(tl.float32)
        tl.store(means_ptr + row, tl.sum(sums, axis=0) * tl.load(rstd_ptr + row * stride_rstdr) / d)
    tl.debug_barrier()  # all threads of the program see the means
    for first in tl.range(0, d, D_TILE_SIZE):
        cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for row in tl.range(program, n_rows, tl.num_programs(0)):
            grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=cols < d, other=0.0)
            rstd = tl.load(rstd_ptr + row * stride_rstdr)
            x_hat = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32) * rstd
            grad_w += grad_y.to(tl.float32) * x_hat
            grad_x = rstd * (grad_y.to(tl.float32) * w - x_hat * tl.load(means_ptr + row))
            tl.store(grad_x_ptr + row * d + cols, grad_x, mask=cols < d)
        tl.store(shares_ptr + program * d + cols, grad_w, mask=cols < d)


@triton.jit
def _add_shares_kernel(
    shares_ptr, grad_w_ptr, stride_gw, n_shares, d, SHARES_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr
):
    cols = tl.program_id(0).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    total = tl.zeros((SHARES_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for start in tl.range(0, n_shares, SHARES_TILE_SIZE):
        shares = start + tl.arange(0, SHARES_TILE_SIZE).to(tl.int64)
        mask = (shares < n_shares)[:, None] & (cols < d)[None, :]
        total += tl.load(shares_ptr + shares[:, None] * d + cols[None, :], mask=mask, other=0.0)
    tl.store(grad_w_ptr + cols * stride_gw, tl.sum(total, axis=0), mask=cols < d)
