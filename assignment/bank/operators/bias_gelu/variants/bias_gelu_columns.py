"""Bias and GELU with a program a column tile in the backward, which walks down all rows: no partial sums at all. The
forward strides over rows with the bias in registers.
"""

import torch
import triton
import triton.language as tl

ROOT_HALF, DENSITY = tl.constexpr(0.7071067811865476), tl.constexpr(0.3989422804014327)
ALPHA, BETA = tl.constexpr(0.7978845608028654), tl.constexpr(0.044715)


@triton.jit
def tanh(u):
    """By exp of a negative number, which cannot overflow."""
    power = tl.exp(-2.0 * tl.abs(u))
    t = (1.0 - power) / (1.0 + power)
    return tl.where(u < 0, -t, t)


@triton.jit
def forward_kernel(x, b, y, sx0, sx1, sb, n, d, TANH: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    bias = tl.load(b + cols * sb, mask=cols < d, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        z = tl.load(x + row.to(tl.int64) * sx0 + cols * sx1, mask=cols < d, other=0.0).to(tl.float32) + bias
        if TANH:
            out = 0.5 * z * (1.0 + tanh(ALPHA * (z + BETA * z * z * z)))
        else:
            out = 0.5 * z * (1.0 + tl.erf(ROOT_HALF * z))
        tl.store(y + row.to(tl.int64) * d + cols, out, mask=cols < d)


@triton.jit
def backward_kernel(
    g, x, b, gx, gb, sg0, sg1, sx0, sx1, sb, n, d, TANH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    cols = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    bias = tl.load(b + cols * sb, mask=cols < d, other=0.0).to(tl.float32)
    total = tl.zeros((COLS,), tl.float32)
    for start in range(0, n, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        mask = (rows < n) & (cols < d)[None, :]
        z = tl.load(x + rows * sx0 + cols[None, :] * sx1, mask=mask, other=0.0).to(tl.float32) + bias[None, :]
        dy = tl.load(g + rows * sg0 + cols[None, :] * sg1, mask=mask, other=0.0).to(tl.float32)
        if TANH:
            t = tanh(ALPHA * (z + BETA * z * z * z))
            dx = dy * (0.5 * (1.0 + t) + 0.5 * z * (1.0 - t * t) * ALPHA * (1.0 + 3.0 * BETA * z * z))
        else:
            dx = dy * (0.5 * (1.0 + tl.erf(ROOT_HALF * z)) + z * DENSITY * tl.exp(-0.5 * z * z))
        tl.store(gx + rows * d + cols[None, :], dx.to(gx.dtype.element_ty), mask=mask)
        total += tl.sum(dx, 0)
    tl.store(gb + cols, total.to(gb.dtype.element_ty), mask=cols < d)


def fitting(x, bias, approximate):
    if x.ndim == 0 or bias.shape != x.shape[-1:] or approximate not in ("none", "tanh"):
        raise ValueError(f"expected (..., d) and (d,), got {tuple(x.shape)}, {tuple(bias.shape)}, {approximate}")
    return x.reshape(-1, x.shape[-1])


def bias_gelu_forward(x, bias, approximate="none"):
    rows = fitting(x, bias, approximate)
    y = rows.new_empty(rows.shape)
    if len(rows):
        grid = (min(len(rows), 264), triton.cdiv(rows.shape[1], 1024))
        forward_kernel[grid](
            rows, bias, y, *rows.stride(), *bias.stride(), *rows.shape, TANH=approximate == "tanh", COLS=1024
        )
    return y.view(x.shape)


def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    rows = fitting(x, bias, approximate)
    if grad_y.shape != x.shape:
        raise ValueError(f"expected {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    g, grad_x, grad_bias = grad_y.reshape(rows.shape), rows.new_empty(rows.shape), bias.new_zeros(bias.shape)
    if len(rows):
        backward_kernel[(triton.cdiv(len(bias), 64),)](
            g, rows, bias, grad_x, grad_bias, *g.stride(), *rows.stride(), *bias.stride(), *rows.shape,
            TANH=approximate == "tanh", ROWS=32, COLS=64,
        )  # fmt: skip
    return grad_x.view(x.shape), grad_bias


class Function(torch.autograd.Function):
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
    return Function.apply(x, bias, approximate)
