"""Softmax, one program a row: the plain file that planted bugs edit. It stays as it is when the solution changes."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

MAX_D_TILE_SIZE = 8192


def softmax_forward(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    _check_forward(x)
    d = x.shape[-1]
    x_rows = x.reshape(-1, d)
    n_rows = x_rows.shape[0]
    y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    if n_rows > 0:
        d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
        _forward_kernel[(n_rows,)](
            x_rows, y, x_rows.stride(0), x_rows.stride(1), y.stride(0), y.stride(1),
            d, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
        )  # fmt: skip
    return y.reshape(x.shape)


def softmax_backward(grad_y: Float[Tensor, "*batch d"], y: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    _check_backward(grad_y, y)
    d = y.shape[-1]
    grad_y_rows, y_rows = grad_y.reshape(-1, d), y.reshape(-1, d)
    n_rows = y_rows.shape[0]
    grad_x = torch.empty((n_rows, d), dtype=y.dtype, device=y.device)
    if n_rows > 0:
        d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
        _backward_kernel[(n_rows,)](
            grad_y_rows, y_rows, grad_x,
            grad_y_rows.stride(0), grad_y_rows.stride(1), y_rows.stride(0), y_rows.stride(1),
            grad_x.stride(0), grad_x.stride(1),
            d, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
        )  # fmt: skip
    return grad_x.reshape(y.shape)


def softmax(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    return Softmax.apply(x)


def _check_forward(x: Tensor) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x of shape (..., d) with d >= 1, got {tuple(x.shape)}")


def _check_backward(grad_y: Tensor, y: Tensor) -> None:
    if grad_y.shape != y.shape or grad_y.dtype != y.dtype:
        raise ValueError(f"expected grad_y like y, {y.shape} {y.dtype}, got {grad_y.shape} {grad_y.dtype}")


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        (y,) = ctx.saved_tensors
        return softmax_backward(grad_y, y)


@triton.jit
def _forward_kernel(
    x_ptr, y_ptr, stride_xr, stride_xd, stride_yr, stride_yd,
    d, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    row_max = float("-inf")
    total = 0.0
    x = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=col_mask, other=float("-inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        powers = tl.exp(x - shift)
        total = total * tl.exp(row_max - shift) + tl.sum(powers, axis=0)
        row_max = new_max
    shift = tl.where(row_max == float("-inf"), 0.0, row_max)
    total = tl.where(total > 0, total, 1.0)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        y_mask = cols < d
        if not IS_ONE_TILE:
            x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=y_mask, other=0.0).to(tl.float32)
        y = tl.exp(x - shift) / total
        y_ptrs = y_ptr + row * stride_yr + cols * stride_yd
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=y_mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, y_ptr, grad_x_ptr, stride_gyr, stride_gyd, stride_yr, stride_yd, stride_gxr, stride_gxd,
    d, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dot = 0.0
    grad_y = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    y = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        mask = cols < d
        grad_y_ptrs = grad_y_ptr + row * stride_gyr + cols * stride_gyd
        grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
        y_ptrs = y_ptr + row * stride_yr + cols * stride_yd
        y = tl.load(y_ptrs, mask=mask, other=0.0).to(tl.float32)
        dot += tl.sum(grad_y * y, axis=0)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        grad_x_mask = cols < d
        if not IS_ONE_TILE:
            grad_y_again = grad_y_ptr + row * stride_gyr + cols * stride_gyd
            grad_y = tl.load(grad_y_again, mask=grad_x_mask, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_yr + cols * stride_yd, mask=grad_x_mask, other=0.0).to(tl.float32)
        grad_x = y * (grad_y - dot)
        grad_x_ptrs = grad_x_ptr + row * stride_gxr + cols * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=grad_x_mask)
