"""RMSNorm whose tile sizes are heuristics, given in a call, around a tuner in another."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

PROGRAMS = 16
CONFIGS = [triton.Config({"ROWS": rows}, num_warps=warps, num_stages=2) for rows, warps in ((1, 4), (4, 8))]


def _block(args: dict) -> int:
    return triton.next_power_of_2(args["d"])


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    y, rstd = x_.new_empty(n_rows, d), x_.new_empty(n_rows, dtype=torch.float32)
    if n_rows:
        _forward[lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)](
            x_, weight, y, rstd, *x_.stride(), *weight.stride(), n_rows, d, eps,
            **{},
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check_backward(grad_y, x, weight, rstd)
    x_, dy = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1, x.shape[-1])
    n_rows, d = x_.shape
    dx = x_.new_empty(n_rows, d)
    if not n_rows:
        return dx.view(x.shape), weight.new_zeros(d)
    per_program = triton.cdiv(n_rows, PROGRAMS)
    parts = x_.new_empty(triton.cdiv(n_rows, per_program), d, dtype=torch.float32)
    _backward[(len(parts),)](
        dy, x_, weight, rstd.reshape(-1), dx, parts,
        *dy.stride(), *x_.stride(), *weight.stride(), *rstd.reshape(-1).stride(),
        n_rows, d, per_program,
    )  # fmt: skip
    return dx.view(x.shape), parts.sum(0).to(weight.dtype)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or tuple(weight.shape) != (x.shape[-1],):
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _check_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> None:
    _check(x, weight)
    if grad_y.shape != x.shape or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y {tuple(x.shape)}, got {tuple(grad_y.shape)}, rstd {tuple(rstd.shape)}")
    if grad_y.dtype != x.dtype or rstd.dtype != torch.float32:
        raise ValueError(f"expected grad_y {x.dtype} and rstd float32, got {grad_y.dtype} and {rstd.dtype}")


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d, eps,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * ROWS
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0.0).to(tl.float32)
    for row in range(first, tl.minimum(first + ROWS, n_rows)):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / d + eps)
        tl.store(y_ptr + row * d + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=inside)
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def _backward_kernel(
    dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr, parts_ptr,
    stride_dyr, stride_dyd, stride_xr, stride_xd, stride_wd, stride_rstd,
    n_rows, d, rows_per_program,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Program i takes its rows one by one; the sums of their dw go to row i of the parts."""
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program * rows_per_program, tl.minimum((program + 1) * rows_per_program, n_rows)):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dyr + cols * stride_dyd, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row * stride_rstd)
        x_hat = x * rstd
        dx_hat = dy * w
        dx = (dx_hat - x_hat * (tl.sum(dx_hat * x_hat, axis=0) / d)) * rstd
        tl.store(dx_ptr + row * d + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        total += dy * x_hat
    tl.store(parts_ptr + program * d + cols, total, mask=inside)


_tuned = triton.autotune(configs=CONFIGS, key=["d"], restore_value=["rstd_ptr"])(_forward_kernel)
_forward = triton.heuristics(values={"BLOCK": _block})(_tuned)
_backward = triton.heuristics({"BLOCK": _block})(_backward_kernel)
