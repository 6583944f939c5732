"""Weighted sum of closures: a decorator checks, launches are partial functions, the grid is a lambda of the tiles."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

TILES = {"ROWS": 32, "COLS": 64}


def checked(function: Callable) -> Callable:
    """Check x and weight, the last two of the arguments, before the call."""

    @functools.wraps(function)
    def call(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        *_, x, weight = tensors
        _check(x, weight)
        return function(*tensors)

    return call


def launcher(kernel: Any, n_rows: int, d: int) -> Callable[..., None]:
    """Return a function that launches the kernel on the tensors that it is given, with their strides."""
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)  # noqa: E731

    def launch(*tensors: Tensor, strided: int) -> None:
        strides = [stride for tensor in tensors[:strided] for stride in tensor.stride()]
        kernel[grid](*tensors, *strides, n_rows, d, **TILES)

    return functools.partial(launch, strided=2 if kernel is _forward_kernel else 3)


@checked
def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    rows = x.reshape(-1, x.shape[-1])
    y = rows.new_empty(len(rows))
    if len(rows):
        launcher(_forward_kernel, *rows.shape)(rows, weight, y)
    return y.view(x.shape[:-1])


@checked
def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    rows, grads = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    grad_x = rows.new_empty(rows.shape)
    if not len(rows):
        return grad_x.view(x.shape), weight.new_zeros(weight.shape)
    parts = rows.new_empty(triton.cdiv(len(rows), TILES["ROWS"]), rows.shape[1], dtype=torch.float32)
    launcher(_backward_kernel, *rows.shape)(grads, rows, weight, grad_x, parts)
    return grad_x.view(x.shape), functools.reduce(torch.add, parts.unbind()).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
        total += tl.sum(x.to(tl.float32) * w.to(tl.float32)[None, :], axis=1)
    tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * ROWS + tl.arange(0, ROWS)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
        part = tl.sum(grad_y[:, None] * x.to(tl.float32), axis=0)
        tl.store(parts_ptr + tile * d + cols, part, mask=cols < d)
