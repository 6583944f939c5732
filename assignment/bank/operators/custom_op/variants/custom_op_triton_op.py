"""RMSNorm by triton_op, whose body a compiler sees, kernels and all; attention by custom_op."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op, triton_op, wrap_triton

from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton

ROWS_PER_PROGRAM = 32


def rmsnorm_op(x, weight, eps=1e-5):
    y, _ = rmsnorm(x, weight, eps)
    return y


def attention_op(q, k, v, is_causal=False):
    return attention(q, k, v, is_causal)[0]


@triton_op("cs336::rmsnorm", mutates_args={})
def rmsnorm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    d = x.shape[-1]
    if weight.shape != (d,):
        raise ValueError(f"expected weight of shape {(d,)}, got {tuple(weight.shape)}")
    rows = x.reshape(-1, d)
    y, rstd = x.new_empty(rows.shape), x.new_empty(rows.shape[0], dtype=torch.float32)
    if rows.shape[0] > 0:
        wrap_triton(_forward_kernel)[(rows.shape[0],)](
            rows, weight, y, rstd, rows.stride(0), rows.stride(1), weight.stride(0), d, eps,
            D_TILE_SIZE=triton.next_power_of_2(d),
        )  # fmt: skip
    return y.view(x.shape), rstd.view(x.shape[:-1])


@triton_op("cs336::rmsnorm_backward", mutates_args={})
def rmsnorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    d = x.shape[-1]
    grads, rows = grad_y.reshape(-1, d), x.reshape(-1, d)
    n_rows = rows.shape[0]
    n_programs = triton.cdiv(n_rows, ROWS_PER_PROGRAM)
    grad_x, parts = x.new_empty(rows.shape), x.new_empty((n_programs, d), dtype=torch.float32)
    if n_rows > 0:
        wrap_triton(_backward_kernel)[(n_programs,)](
            grads, rows, weight, rstd.reshape(-1), grad_x, parts,
            grads.stride(0), grads.stride(1), rows.stride(0), rows.stride(1), weight.stride(0), n_rows, d,
            ROWS_PER_PROGRAM=ROWS_PER_PROGRAM, D_TILE_SIZE=triton.next_power_of_2(d),
        )  # fmt: skip
    return grad_x.view(x.shape), parts.sum(0).to(weight.dtype)


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xr, stride_xd, stride_wd, d, eps, D_TILE_SIZE: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    mask = cols < d
    x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=mask, other=0.0).to(tl.float32)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(x * x) / d + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * d + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, parts_ptr,
    stride_gr, stride_gd, stride_xr, stride_xd, stride_wd, n_rows, d,
    ROWS_PER_PROGRAM: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    mask = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    last = tl.minimum(n_rows, (program + 1) * ROWS_PER_PROGRAM)
    for row in range(program * ROWS_PER_PROGRAM, last):
        grad_y = tl.load(grad_y_ptr + row * stride_gr + cols * stride_gd, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        x_hat = x * rstd
        grad = w * grad_y
        total += grad_y * x_hat
        grad_x = rstd * (grad - x_hat * (tl.sum(grad * x_hat) / d))
        tl.store(grad_x_ptr + row * d + cols, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
    tl.store(parts_ptr + program * d + cols, total, mask=mask)


def _save_rmsnorm(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], output[1])


rmsnorm.register_autograd(
    lambda ctx, grad_y, _: (*rmsnorm_backward(grad_y, *ctx.saved_tensors), None), setup_context=_save_rmsnorm
)


@custom_op("cs336::flash_attention", mutates_args=())
def attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    return flash_forward_triton(q, k, v, is_causal)


@attention.register_fake
def _(q, k, v, is_causal=False):
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@custom_op("cs336::flash_attention_backward", mutates_args=())
def attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return flash_backward_triton(grad_o, q, k, v, o, lse, is_causal)


@attention_backward.register_fake
def _(grad_o, q, k, v, o, lse, is_causal):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_attention(ctx, inputs, output):
    ctx.is_causal = inputs[3]
    ctx.save_for_backward(*inputs[:3], *output)


def _attention_gradients(ctx, grad_o, _):
    return *attention_backward(grad_o, *ctx.saved_tensors, ctx.is_causal), None


attention.register_autograd(_attention_gradients, setup_context=_save_attention)
