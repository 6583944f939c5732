"""Bias and GELU in the style of unsloth and Liger: one row a program in one block of a power of two, a kernel for each
form, and no more than 65,536 columns. The gradient of the bias from as many partial rows as there are multiprocessors.
"""

import torch
import triton
import triton.language as tl


def calculate_settings(n):
    block_size = triton.next_power_of_2(n)
    if block_size > 65536:
        raise RuntimeError(f"at most 65536 columns, got {n}")
    return block_size, next((w for size, w in ((32768, 32), (8192, 16), (2048, 8)) if block_size >= size), 4)


@triton.jit
def _exact_forward(X, B, Y, X_stride, X_step, B_step, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    e = tl.load(X + row * X_stride + cols * X_step, mask=mask, other=0).to(tl.float32)
    e += tl.load(B + cols * B_step, mask=mask, other=0).to(tl.float32)
    f = 0.5 * e * (tl.math.erf(tl.math.rsqrt(2.0) * e) + 1.0)
    tl.store(Y + row * n_cols + cols, f, mask=mask)


@triton.jit
def _approx_forward(X, B, Y, X_stride, X_step, B_step, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    e = tl.load(X + row * X_stride + cols * X_step, mask=mask, other=0).to(tl.float32)
    e += tl.load(B + cols * B_step, mask=mask, other=0).to(tl.float32)
    s = 0.7978845608028654
    inner = s * e * (1.0 + 0.044715 * e * e)
    tanh = 1.0 - 2.0 / (tl.exp(2.0 * inner) + 1.0)
    tl.store(Y + row * n_cols + cols, 0.5 * e * (1.0 + tanh), mask=mask)


@triton.jit
def _slope(e, APPROX: tl.constexpr):
    if APPROX:
        s = 0.7978845608028654
        a, b = s * e, s * 0.044715 * e * e * e
        t = 1.0 + (1.0 - 2.0 / (tl.exp(2.0 * (a + b)) + 1.0))
        df = 0.5 * t + -0.5 * t * (t - 2.0) * (a + 3.0 * b)
    else:
        df = 0.5 * (tl.math.erf(tl.math.rsqrt(2.0) * e) + 1.0) + 0.3989422804014327 * e * tl.exp(-0.5 * e * e)
    return df


@triton.jit
def _backward(G, X, B, DX, DB, n_rows, n_cols, rows_per_program, APPROX: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * rows_per_program
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    bias = tl.load(B + cols, mask=mask, other=0).to(tl.float32)
    db = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
    for row in range(first, min(first + rows_per_program, n_rows)):
        e = tl.load(X + row * n_cols + cols, mask=mask, other=0).to(tl.float32) + bias
        g = tl.load(G + row * n_cols + cols, mask=mask, other=0).to(tl.float32)
        dx = g * _slope(e, APPROX)
        tl.store(DX + row * n_cols + cols, dx, mask=mask)
        db += dx
    tl.store(DB + tl.program_id(0) * n_cols + cols, db, mask=mask)


def bias_gelu_forward(x, bias, approximate="none"):
    _check(x, bias, approximate)
    rows = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = rows.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block_size, num_warps = calculate_settings(n_cols)
    if n_rows:
        kernel = _approx_forward if approximate == "tanh" else _exact_forward
        kernel[(n_rows,)](
            rows, bias, y, rows.stride(0), rows.stride(1), bias.stride(0), n_cols,
            BLOCK_SIZE=block_size, num_warps=num_warps,
        )  # fmt: skip
    return y


def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    _check(x, bias, approximate)
    if grad_y.shape != x.shape:
        raise ValueError(f"expected {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    grad_y, x, bias = grad_y.contiguous(), x.contiguous(), bias.contiguous()
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    grad_x = torch.empty_like(x)
    if n_rows == 0:
        return grad_x, torch.zeros_like(bias)
    block_size, num_warps = calculate_settings(n_cols)
    n_programs = min(n_rows, torch.cuda.get_device_properties(x.device).multi_processor_count)
    partial = torch.empty((n_programs, n_cols), dtype=torch.float32, device=x.device)
    _backward[(n_programs,)](
        grad_y, x, bias, grad_x, partial, n_rows, n_cols, triton.cdiv(n_rows, n_programs),
        APPROX=approximate == "tanh", BLOCK_SIZE=block_size, num_warps=num_warps,
    )  # fmt: skip
    return grad_x, partial.sum(0).to(bias.dtype)


def _check(x, bias, approximate):
    if not x.ndim or bias.ndim != 1 or x.shape[-1] != len(bias):
        raise ValueError(f"expected a bias of {tuple(x.shape[-1:])}, got {tuple(bias.shape)}")
    if approximate not in ("tanh", "none"):
        raise ValueError(f"which form is {approximate}?")


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, approximate):
        ctx.save_for_backward(x, bias)
        ctx.approximate = approximate
        return bias_gelu_forward(x, bias, approximate)

    @staticmethod
    def backward(ctx, grad_y):
        x, bias = ctx.saved_tensors
        return *bias_gelu_backward(grad_y, x, bias, ctx.approximate), None


def bias_gelu(x, bias, approximate="none"):
    return Gelu.apply(x, bias, approximate)
