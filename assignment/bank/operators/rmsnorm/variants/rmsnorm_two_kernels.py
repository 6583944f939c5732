"""RMSNorm with one kernel for each gradient: dx by programs of a few whole rows, dw by programs of a block of columns.

Nothing is exchanged between programs, at the price of reading x and dy twice.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

ROWS_PER_PROGRAM = 4


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    require_matching(x, weight)
    x2d = x.reshape(-1, x.shape[-1])
    n_rows, d = x2d.shape
    y = x2d.new_empty((n_rows, d))
    rstd = x2d.new_empty(n_rows, dtype=torch.float32)
    if n_rows != 0:
        rmsnorm_kernel[(triton.cdiv(n_rows, ROWS_PER_PROGRAM),)](
            x2d, weight, y, rstd,
            x2d.stride(0), x2d.stride(1), weight.stride(0), y.stride(0),
            n_rows, d, eps,
            ROWS_PER_PROGRAM, **row_block(d),
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    require_matching(x, weight)
    if grad_y.shape != x.shape or rstd.shape != x.shape[:-1]:
        raise ValueError(
            f"expected grad_y {tuple(x.shape)} and rstd {tuple(x.shape[:-1])}, "
            f"got {tuple(grad_y.shape)} and {tuple(rstd.shape)}"
        )
    if grad_y.dtype != x.dtype or rstd.dtype != torch.float32:
        raise ValueError(f"expected grad_y {x.dtype} and rstd float32, got {grad_y.dtype} and {rstd.dtype}")
    x2d, dy2d, rstd1d = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1, x.shape[-1]), rstd.flatten()
    n_rows, d = x2d.shape
    dx = x2d.new_empty((n_rows, d))
    if n_rows == 0:
        return dx.view(x.shape), weight.new_zeros(d)
    dw = weight.new_empty(d)
    dx_kernel[(triton.cdiv(n_rows, ROWS_PER_PROGRAM),)](
        dy2d, x2d, weight, rstd1d, dx,
        dy2d.stride(0), dy2d.stride(1), x2d.stride(0), x2d.stride(1), weight.stride(0), rstd1d.stride(0), dx.stride(0),
        n_rows, d,
        ROWS_PER_PROGRAM, **row_block(d),
    )  # fmt: skip
    dw_kernel[(triton.cdiv(d, 64),)](
        dy2d, x2d, rstd1d, dw,
        dy2d.stride(0), dy2d.stride(1), x2d.stride(0), x2d.stride(1), rstd1d.stride(0),
        n_rows, d,
        BLOCK_ROWS=32, BLOCK_COLS=64,
    )  # fmt: skip
    return dx.view(x.shape), dw


def rmsnorm(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5) -> Float[Tensor, "*batch d"]:
    return RMSNormFunction.apply(x, weight, eps)


class RMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = rmsnorm_forward(x, weight, eps=eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, rstd = ctx.saved_tensors
        dx, dw = rmsnorm_backward(grad_y, x, weight, rstd)
        return dx, dw, None


def require_matching(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1:
        raise ValueError(f"expected x of at least one dimension and weight of one, got {x.ndim} and {weight.ndim}")
    if x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected weight of length {x.shape[-1]}, got {weight.shape[0]}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected weight of dtype {x.dtype}, got {weight.dtype}")


def row_block(d: int) -> dict[str, int]:
    block = triton.next_power_of_2(d)
    return {"BLOCK_D": block, "num_warps": 4 if block <= 1024 else 8 if block <= 4096 else 16}


@triton.jit
def rmsnorm_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr,
    n_rows, d, eps,
    ROWS_PER_PROGRAM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0).to(tl.int64) * ROWS_PER_PROGRAM
    cols = tl.arange(0, BLOCK_D).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    for row in range(first_row, tl.minimum(first_row + ROWS_PER_PROGRAM, n_rows)):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / d + eps)
        y = w * (rstd * x)
        tl.store(y_ptr + row * stride_yr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < d)
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr,
    stride_dyr, stride_dyd, stride_xr, stride_xd, stride_wd, stride_rstdr, stride_dxr,
    n_rows, d,
    ROWS_PER_PROGRAM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0).to(tl.int64) * ROWS_PER_PROGRAM
    cols = tl.arange(0, BLOCK_D).to(tl.int64)
    w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
    for row in range(first_row, tl.minimum(first_row + ROWS_PER_PROGRAM, n_rows)):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dyr + cols * stride_dyd, mask=cols < d, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row * stride_rstdr)
        x_hat = x * rstd
        dx_hat = dy * w
        dx = (dx_hat - x_hat * (tl.sum(dx_hat * x_hat, axis=0) / d)) * rstd
        tl.store(dx_ptr + row * stride_dxr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < d)


@triton.jit
def dw_kernel(
    dy_ptr, x_ptr, rstd_ptr, dw_ptr,
    stride_dyr, stride_dyd, stride_xr, stride_xd, stride_rstdr,
    n_rows, d,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    dw = tl.zeros((BLOCK_COLS,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dyr + cols[None, :] * stride_dyd, mask=mask, other=0.0)
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=rows < n_rows, other=0.0)
        dw += tl.sum(dy.to(tl.float32) * (x.to(tl.float32) * rstd[:, None]), axis=0)
    tl.store(dw_ptr + cols, dw.to(dw_ptr.dtype.element_ty), mask=cols < d)
