"""Weighted sum as a class: kernels are members of one and helpers of another, launches are methods."""

# ruff: noqa: N805

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


class Tiles:
    """What the kernels share; none of it knows of rows and columns."""

    @triton.jit
    def load(ptr, mask):
        return tl.load(ptr, mask=mask, other=0.0).to(tl.float32)


_load = Tiles.load


class WeightedSum:
    """x @ weight, and its gradients."""

    ROWS, COLS = 16, 128

    def __init__(self, x: Tensor, weight: Tensor) -> None:
        _check(x, weight)
        self.x, self.weight = x.reshape(-1, x.shape[-1]), weight
        self.n_rows, self.d = self.x.shape

    def __call__(self) -> Tensor:
        y = self.x.new_empty(self.n_rows)
        if self.n_rows:
            self._forward[self._grid](
                self.x, self.weight, y, *self.x.stride(), *self.weight.stride(), self.n_rows, self.d, **self._tiles
            )
        return y

    def gradients(self, grad_y: Tensor) -> tuple[Tensor, Tensor]:
        grad_x, parts = self.x.new_empty(self.x.shape), self.x.new_empty(*self._grid, self.d, dtype=torch.float32)
        if self.n_rows:
            self._backward[self._grid](
                grad_y, self.x, self.weight, grad_x, parts,
                *grad_y.stride(), *self.x.stride(), *self.weight.stride(), self.n_rows, self.d, **self._tiles,
            )  # fmt: skip
        return grad_x, parts.sum(0).to(self.weight.dtype)

    @property
    def _grid(self) -> tuple[int]:
        return (triton.cdiv(self.n_rows, self.ROWS),)

    @property
    def _tiles(self) -> dict[str, int]:
        return {"ROWS": self.ROWS, "COLS": self.COLS}

    @triton.jit
    def _forward(
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
            x = _load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask)
            total += tl.sum(x * _load(w_ptr + cols * stride_wd, cols < d)[None, :], axis=1)
        tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)

    @triton.jit
    def _backward(
        grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
        stride_gyr, stride_xr, stride_xd, stride_wd,
        n_rows, d,
        ROWS: tl.constexpr, COLS: tl.constexpr,
    ):  # fmt: skip
        tile = tl.program_id(0).to(tl.int64)
        rows = tile * ROWS + tl.arange(0, ROWS)
        grad_y = _load(grad_y_ptr + rows * stride_gyr, rows < n_rows)
        for start in range(0, d, COLS):
            cols = start + tl.arange(0, COLS).to(tl.int64)
            mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
            x = _load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask)
            w = _load(w_ptr + cols * stride_wd, cols < d)
            grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
            tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
            tl.store(parts_ptr + tile * d + cols, tl.sum(grad_y[:, None] * x, axis=0), mask=cols < d)


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return WeightedSum(x, weight)().view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    grad_x, grad_w = WeightedSum(x, weight).gradients(grad_y.reshape(-1))
    return grad_x.view(x.shape), grad_w


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")
