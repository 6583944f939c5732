"""Weighted sum with all of Triton's names in this module, by `import *`."""

# ruff: noqa: F403, F405
# mypy: ignore-errors

from __future__ import annotations  # Triton's tuple hides Python's

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from triton.language import *

TILE = {"ROWS": 32, "COLS": 64}


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    if n_rows:
        _forward_kernel[triton.cdiv(n_rows, TILE["ROWS"]),](
            x_, weight, y, *x_.stride(), *weight.stride(), n_rows, d, **TILE
        )
    return y.view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    x_, grad_y_ = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    n_rows, d = x_.shape
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    if not n_rows:
        return grad_x.view(x.shape), torch.zeros_like(weight)
    parts = torch.empty((triton.cdiv(n_rows, TILE["ROWS"]), d), dtype=torch.float32, device=x.device)
    _backward_kernel[len(parts),](
        grad_y_, x_, weight, grad_x, parts,
        *grad_y_.stride(), *x_.stride(), *weight.stride(), n_rows, d, **TILE,
    )  # fmt: skip
    return grad_x.view(x.shape), parts.sum(0).to(weight.dtype)


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
    ROWS: constexpr, COLS: constexpr,
):  # fmt: skip
    rows = program_id(0).to(int64) * ROWS + arange(0, ROWS)
    total = zeros((ROWS,), dtype=float32)
    for start in range(0, d, COLS):
        cols = start + arange(0, COLS).to(int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
        total += sum(x.to(float32) * w.to(float32)[None, :], axis=1)
    store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: constexpr, COLS: constexpr,
):  # fmt: skip
    tile = program_id(0).to(int64)
    rows = tile * ROWS + arange(0, ROWS)
    grad_y = load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(float32)
    for start in range(0, d, COLS):
        cols = start + arange(0, COLS).to(int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(float32)
        grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
        store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
        part = sum(grad_y[:, None] * x.to(float32), axis=0)
        store(parts_ptr + tile * d + cols, part, mask=cols < d)
