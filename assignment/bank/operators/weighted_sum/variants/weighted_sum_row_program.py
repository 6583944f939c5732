"""Weighted sum, one program a row: a whole row in one power-of-two tile, so d up to 2²⁰.

The weight's gradient has a kernel of its own, in which each program walks down all rows of its columns, one by one.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

COLUMNS_PER_PROGRAM = 256


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    y = torch.empty(x.shape[:-1], device=x.device, dtype=x.dtype)
    if y.numel() == 0:
        return y
    _row_dot_kernel[(len(rows),)](
        rows, weight, y,
        rows.stride(0), rows.stride(1), weight.stride(0),
        d,
        **_whole_row(d),
    )  # fmt: skip
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    d = x.shape[-1]
    rows, grads = x.reshape(-1, d), grad_y.reshape(-1)
    grad_x = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if grad_x.numel() == 0:
        return grad_x, torch.zeros(d, device=weight.device, dtype=weight.dtype)
    grad_w = torch.empty(d, device=weight.device, dtype=weight.dtype)
    _row_scale_kernel[(len(rows),)](
        grads, weight, grad_x,
        grads.stride(0), weight.stride(0),
        d,
        **_whole_row(d),
    )  # fmt: skip
    _column_sum_kernel[(triton.cdiv(d, COLUMNS_PER_PROGRAM),)](
        grads, rows, grad_w,
        grads.stride(0), rows.stride(0), rows.stride(1),
        len(rows), d,
        BLOCK=COLUMNS_PER_PROGRAM,
    )  # fmt: skip
    return grad_x, grad_w


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return _WeightedSum.apply(x, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    def backward(ctx, grad_y):
        x, weight = ctx.saved_tensors
        return weighted_sum_backward(grad_y, x, weight)


def _check(x: Tensor, weight: Tensor) -> None:
    if weight.ndim != 1 or x.ndim == 0 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _whole_row(d: int) -> dict[str, int]:
    block = triton.next_power_of_2(d)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 32)}


@triton.jit
def _row_dot_kernel(x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=inside, other=0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(x * w, axis=0))


@triton.jit
def _row_scale_kernel(grad_y_ptr, w_ptr, grad_x_ptr, stride_gyr, stride_wd, d, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0).to(tl.float32)
    grad_y = tl.load(grad_y_ptr + row * stride_gyr).to(tl.float32)
    tl.store(grad_x_ptr + row * d + cols, grad_y * w, mask=inside)


@triton.jit
def _column_sum_kernel(
    grad_y_ptr, x_ptr, grad_w_ptr,
    stride_gyr, stride_xr, stride_xd,
    n_rows, d,
    BLOCK: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < d
    x_ptrs = x_ptr + cols * stride_xd
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(n_rows):
        x = tl.load(x_ptrs, mask=inside, other=0).to(tl.float32)
        total += tl.load(grad_y_ptr).to(tl.float32) * x
        x_ptrs += stride_xr
        grad_y_ptr += stride_gyr
    tl.store(grad_w_ptr + cols, total, mask=inside)
