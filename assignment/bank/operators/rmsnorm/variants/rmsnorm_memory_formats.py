"""RMSNorm on contiguous copies, with memory made in every way that PyTorch has."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

ROWS, PROGRAMS = 4, 16


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    x_, weight = x.contiguous(memory_format=torch.contiguous_format), weight.contiguous()
    y = torch.empty_like(x_, memory_format=torch.preserve_format)
    rstd = x_.new_empty(x.shape[:-1], dtype=torch.float32, layout=torch.strided, requires_grad=False)
    if rstd.numel():
        d = x_.size(-1)
        rows = torch.atleast_2d(x_.flatten(0, -2) if x_.dim() > 1 else x_)
        _forward_kernel[(triton.cdiv(rows.size(0), ROWS),)](
            rows, weight, y, rstd, rows.stride(0), rows.stride(1), weight.stride(0), rows.size(0), d, eps,
            ROWS, triton.next_power_of_2(d),
        )  # fmt: skip
    return y, rstd


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check_backward(grad_y, x, weight, rstd)
    d = x.size(-1)
    x_, dy = (t.contiguous().view(-1, d).narrow(1, 0, d) for t in (x, grad_y))
    rstd_ = torch.ravel(rstd).contiguous()
    dx = torch.empty_strided(x_.size(), (d, 1), dtype=x.dtype, device=x.device)
    dw = torch.zeros(d, dtype=torch.float32).to(weight.device, copy=True)
    if len(x_):
        per_program = triton.cdiv(len(x_), PROGRAMS)
        parts = torch.empty_permuted(
            (triton.cdiv(len(x_), per_program), d), (0, 1), dtype=torch.float32, device=x.device
        )
        _backward_kernel[(parts.size(0),)](
            dy, x_, weight, rstd_, dx, parts,
            *dy.stride(), *x_.stride(), *weight.stride(), *rstd_.stride(),
            len(x_), d, per_program, BLOCK=triton.next_power_of_2(d),
        )  # fmt: skip
        torch.sum(parts, dim=0, out=dw)
    return dx.view_as(x), dw.type_as(weight)


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
