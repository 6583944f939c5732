"""RMSNorm, one program a row, and the whole row in one power-of-two tile, however wide (d up to 2²⁰).

Backward, each row leaves its own partial weight gradient, and torch sums these.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    d = x.shape[-1]
    x_rows = x.reshape(-1, d)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    if rstd.numel() > 0:
        _forward_kernel[(rstd.numel(),)](
            x_rows, weight, y, rstd, *x_rows.stride(), *weight.stride(), d, eps, **_row_tile(d)
        )
    return y, rstd


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like x {tuple(x.shape)}, got {tuple(grad_y.shape)} in {grad_y.dtype}")
    if rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected rstd of shape {tuple(x.shape[:-1])}, got {tuple(rstd.shape)}")
    d = x.shape[-1]
    grad_y_rows, x_rows, rstd_rows = grad_y.reshape(-1, d), x.reshape(-1, d), rstd.reshape(-1)
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    partials = torch.empty((len(x_rows), d), dtype=torch.float32, device=x.device)
    if len(x_rows) > 0:
        _backward_kernel[(len(x_rows),)](
            grad_y_rows, x_rows, weight, rstd_rows, grad_x, partials,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *rstd_rows.stride(),
            d,
            **_row_tile(d),
        )  # fmt: skip
    return grad_x, partials.sum(0).to(weight.dtype)


def rmsnorm(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5) -> Float[Tensor, "*batch d"]:
    return _RMSNorm.apply(x, weight, eps)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = rmsnorm_forward(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return *rmsnorm_backward(grad_y, *ctx.saved_tensors), None


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.shape != x.shape[-1:]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _row_tile(d: int) -> dict[str, int]:
    tile_size = triton.next_power_of_2(d)
    return {"D_TILE_SIZE": tile_size, "num_warps": min(max(tile_size // 256, 1), 32)}


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd,
    d, eps,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """x (n_rows, d), w (d,); y and rstd are contiguous. Grid: (n_rows,)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    mask = cols < d
    x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(x * x) / d + eps)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols * stride_wd, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * d + cols, x * rstd * w, mask=mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """grad_y and x (n_rows, d), w (d,), rstd (n_rows,); grad_x and partials are contiguous. Grid: (n_rows,)."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    mask = cols < d
    grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row * stride_rstdr)
    x_hat = x * rstd
    tl.store(partials_ptr + row * d + cols, grad_y * x_hat, mask=mask)
    grad_x_hat = grad_y * w
    mean = tl.sum(grad_x_hat * x_hat) / d
    tl.store(grad_x_ptr + row * d + cols, rstd * (grad_x_hat - x_hat * mean), mask=mask)
