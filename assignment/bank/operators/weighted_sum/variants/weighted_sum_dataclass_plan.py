"""Weighted sum with its launches as data: a frozen dataclass, cached by shape, chosen by a match statement."""

import functools
from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Plan:
    """How one shape is launched."""

    n_rows: int
    d: int
    rows: int
    cols: int
    options: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def grid(self) -> tuple[int]:
        return (triton.cdiv(self.n_rows, self.rows),)

    @property
    def tiles(self) -> dict[str, int]:
        return {"ROWS": self.rows, "COLS": self.cols, **self.options}

    @classmethod
    @functools.cache
    def of(cls, n_rows: int, d: int) -> "Plan":
        match n_rows, d:
            case rows, _ if rows <= 16:
                return cls(n_rows, d, 16, 64)
            case _, cols if cols >= 1024:
                return cls(n_rows, d, 32, 128, {"num_warps": 8})
            case _:
                return cls(n_rows, d, 64, 64, {"num_warps": 4, "num_stages": 2})


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    y = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
    if y.numel():
        x_ = x.reshape(-1, x.shape[-1])
        plan = Plan.of(*x_.shape)
        _forward_kernel[plan.grid](x_, weight, y, *x_.stride(), *weight.stride(), plan.n_rows, plan.d, **plan.tiles)
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if not grad_x.numel():
        return grad_x, torch.zeros_like(weight)
    x_, grad_y_ = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    plan = Plan.of(*x_.shape)
    parts = torch.empty((*plan.grid, plan.d), dtype=torch.float32, device=x.device)
    _backward_kernel[plan.grid](
        grad_y_, x_, weight, grad_x, parts,
        *grad_y_.stride(), *x_.stride(), *weight.stride(),
        plan.n_rows, plan.d, **plan.tiles,
    )  # fmt: skip
    return grad_x, parts.sum(dim=0).to(weight.dtype)


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return _WeightedSum.apply(x, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)


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
