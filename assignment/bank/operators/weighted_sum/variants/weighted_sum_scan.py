"""Weighted sum in the style of the linear recurrences' kernels: a scan along each row, whose last element is the sum.

State goes from block to block as a carry, and a lane stores where its column is the last one. 16-bit inputs are loaded
as bits through a pointer of another type; bfloat16 is widened by a shift. Backward: the same scan down the rows.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK_L, BLOCK_R = 64, 32  # along the scan, and across it


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    x_ = _rows(x, weight)
    n_rows, d = x_.shape
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    if n_rows > 0:
        _forward_scan_kernel[(triton.cdiv(n_rows, BLOCK_R),)](
            x_, weight, y, *x_.stride(), *weight.stride(), n_rows, d, BLOCK_R=BLOCK_R, BLOCK_L=BLOCK_L
        )
    return y.view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    x_ = _rows(x, weight)
    if (grad_y.shape, grad_y.dtype) != (x.shape[:-1], x.dtype):
        raise ValueError(f"expected grad_y {x.shape[:-1]} in {x.dtype}, got {grad_y.shape} in {grad_y.dtype}")
    (n_rows, d), grad_y_ = x_.shape, grad_y.reshape(-1)
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    grad_w = torch.zeros(d, dtype=weight.dtype, device=x.device)
    if n_rows > 0:
        _backward_scan_kernel[(triton.cdiv(d, BLOCK_R),)](
            grad_y_, x_, weight, grad_x, grad_w, *grad_y_.stride(), *x_.stride(), *weight.stride(), n_rows, d,
            BLOCK_R=BLOCK_R, BLOCK_L=BLOCK_L,
        )  # fmt: skip
    return grad_x.view(x.shape), grad_w


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    if x.ndim == 0 or weight.shape != (x.shape[-1],):
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected weight in {x.dtype}, got {weight.dtype}")
    return x.reshape(-1, x.shape[-1])


@triton.jit
def _load_bits(ptr, offsets, mask):
    """Elements in float32; zeros where masked."""
    dtype: tl.constexpr = ptr.dtype.element_ty
    if dtype == tl.float32:
        x = tl.load(ptr + offsets, mask=mask, other=0.0)
    else:
        bits = tl.load(ptr.to(tl.pointer_type(tl.uint16), bitcast=True) + offsets, mask=mask, other=0)
        if dtype == tl.bfloat16:
            x = (bits.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
        else:
            x = bits.to(tl.float16, bitcast=True).to(tl.float32)
    return x


@triton.jit
def _step(decay_a, state_a, decay_b, state_b):
    """Two steps of state ← decay · state + input as one."""
    return decay_a * decay_b, state_a * decay_b + state_b


@triton.jit
def _forward_scan_kernel(
    x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, n_rows, d, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr
):
    rows = (tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[:, None]
    carry = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for start in range(0, d, BLOCK_L):
        cols = (start + tl.arange(0, BLOCK_L).to(tl.int64))[None, :]
        x = _load_bits(x_ptr, rows * stride_xr + cols * stride_xd, (rows < n_rows) & (cols < d))
        terms = x * _load_bits(w_ptr, cols * stride_wd, cols < d)
        decays = tl.full((BLOCK_R, BLOCK_L), 1.0, dtype=tl.float32)
        _, states = tl.associative_scan((decays, terms), 1, _step)
        states += carry[:, None]
        y = states.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + rows + tl.zeros_like(cols), y, mask=(rows < n_rows) & (cols == d - 1))
        carry = tl.sum(tl.where(cols == start + BLOCK_L - 1, states, 0.0), axis=1)


@triton.jit
def _backward_scan_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, grad_w_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, n_rows, d, BLOCK_R: tl.constexpr, BLOCK_L: tl.constexpr,
):  # fmt: skip
    """A block of columns, down all rows."""
    cols = (tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[None, :]
    w = _load_bits(w_ptr, cols * stride_wd, cols < d)
    carry = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_L):
        rows = (start + tl.arange(0, BLOCK_L).to(tl.int64))[:, None]
        mask = (rows < n_rows) & (cols < d)
        grad_y = _load_bits(grad_y_ptr, rows * stride_gyr, rows < n_rows)
        tl.store(grad_x_ptr + rows * d + cols, (grad_y * w).to(grad_x_ptr.dtype.element_ty), mask=mask)
        terms = grad_y * _load_bits(x_ptr, rows * stride_xr + cols * stride_xd, mask)
        states = tl.cumsum(terms, axis=0) + carry[None, :]
        last = (rows == n_rows - 1) & (cols < d)
        tl.store(grad_w_ptr + cols + tl.zeros_like(rows), states.to(grad_w_ptr.dtype.element_ty), mask=last)
        carry = tl.sum(tl.where(rows == start + BLOCK_L - 1, states, 0.0), axis=0)
