"""Weighted sum configured by a NamedTuple and enumerations, with the module's constants as tl.constexpr, and `:=`."""

import enum
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ZERO: tl.constexpr = tl.constexpr(0.0)
COLS = tl.constexpr(64)


class Side(enum.IntEnum):
    """What a kernel makes: also told to it."""

    FORWARD = 0
    BACKWARD = 1


class Order(enum.StrEnum):
    """In which order programs take the tiles."""

    UP = "up"
    DOWN = "down"


class Config(NamedTuple):
    """How a kernel is launched."""

    ROWS: int = 32
    SIDE: int = Side.FORWARD.value
    ORDER: str = Order.UP.value
    num_warps: int = 4


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    if (n_rows := (x_ := x.reshape(-1, d := x.shape[-1])).shape[0]) == 0:
        return x.new_empty(x.shape[:-1])
    config = Config(ORDER=(Order.DOWN if n_rows > 64 else Order.UP).value)
    y = x.new_empty(n_rows)
    _kernel[(triton.cdiv(n_rows, config.ROWS),)](
        y, x_, weight, None, None, *(0, *x_.stride(), *weight.stride()), n_rows, d, **config._asdict()
    )
    return y.reshape(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    config = Config(SIDE=Side.BACKWARD.value)._replace(ROWS=64)
    grad_x = x.new_empty(x.shape)
    if (n_rows := grad_y.numel()) == 0:
        return grad_x, weight.new_zeros(weight.shape)
    x_, grad_y_ = x.reshape(n_rows, -1), grad_y.reshape(n_rows)
    parts = x.new_empty((n_tiles := triton.cdiv(n_rows, config.ROWS), x.shape[-1]), dtype=torch.float32)
    strides = (stride for tensor in (grad_y_, x_, weight) for stride in tensor.stride())
    _kernel[(n_tiles,)](grad_y_, x_, weight, grad_x, parts, *strides, n_rows, x.shape[-1], **config._asdict())
    return grad_x, parts.sum(0).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _kernel(
    y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_yr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, SIDE: tl.constexpr, ORDER: tl.constexpr,
):  # fmt: skip
    """y_ptr is y in the forward pass, and its gradient in the backward pass."""
    tile = tl.program_id(0).to(tl.int64)
    if ORDER == "down":
        tile = tl.num_programs(0) - 1 - tile
    rows = tile * ROWS + tl.arange(0, ROWS)
    total = tl.full((ROWS,), ZERO, dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=ZERO).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=ZERO).to(tl.float32)
        if SIDE == 0:
            total += tl.sum(x * w[None, :], axis=1)
        else:
            grad_y = tl.load(y_ptr + rows * stride_yr, mask=rows < n_rows, other=ZERO).to(tl.float32)
            grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
            tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
            tl.store(parts_ptr + tile * d + cols, tl.sum(grad_y[:, None] * x, axis=0), mask=cols < d)
    if SIDE == 0:
        tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)
