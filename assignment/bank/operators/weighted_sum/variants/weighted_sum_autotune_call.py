"""Weighted sum whose tuners and heuristics are calls: one body, wrapped twice, in a dictionary of launchers."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

CONFIGS = [triton.Config({"ROWS": rows, "COLS": cols}, num_warps=4) for rows, cols in [(16, 64), (32, 128)]]


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    if n_rows:
        LAUNCHERS["small" if n_rows < 64 else "tuned"][lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
            x_, weight, y, *x_.stride(), *weight.stride(), n_rows, d
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
    parts = torch.empty((triton.cdiv(n_rows, 32), d), dtype=torch.float32, device=x.device)
    BACKWARD[(len(parts),)](
        grad_y_, x_, weight, grad_x, parts, *grad_y_.stride(), *x_.stride(), *weight.stride(), n_rows, d, ROWS=32
    )
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


LAUNCHERS = {
    "tuned": triton.autotune(configs=CONFIGS, key=["d"])(_forward_kernel),
    "small": triton.heuristics({"ROWS": lambda args: 16, "COLS": lambda args: 32 if args["d"] < 64 else 128})(
        _forward_kernel
    ),
}
BACKWARD = triton.autotune(configs=[triton.Config({"COLS": 64}), triton.Config({"COLS": 32})], key=["n_rows", "d"])(
    triton.heuristics({})(_backward_kernel)
)
