"""Bias and GELU on two-dimensional tiles whose sizes are tuned, with a persistent loop over tiles in the forward; two
stages for the gradient of the bias: sums of tiles of rows, and a kernel that adds them up.
"""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"ROWS": rows, "COLS": cols}, num_warps=warps) for rows, cols, warps in ((8, 256, 4), (2, 1024, 8))
]


@triton.jit
def phi(z, TANH: tl.constexpr):
    if TANH:
        out = tl.sigmoid(z * (1.5957691216057308 + 0.0713548162726009 * z * z))
    else:
        out = 0.5 + 0.5 * tl.erf(z * 0.7071067811865476)
    return out


@triton.autotune(CONFIGS, key=["d"])
@triton.jit
def forward_tiles(
    x_ptr, b_ptr, y_ptr, stride_x, step_x, step_b, n, d,
    TANH: tl.constexpr, PROGRAMS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(d, COLS)
    for tile in range(tl.program_id(0), across * tl.cdiv(n, ROWS), PROGRAMS):
        rows = (tile // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        cols = (tile % across).to(tl.int64) * COLS + tl.arange(0, COLS)
        inside = (rows[:, None] < n) & (cols[None, :] < d)
        b = tl.load(b_ptr + cols * step_b, mask=cols < d, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :] * step_x, mask=inside, other=0.0).to(tl.float32)
        z = x + b[None, :]
        tl.store(y_ptr + rows[:, None] * d + cols[None, :], (z * phi(z, TANH)).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_tiles(
    g_ptr, x_ptr, b_ptr, gx_ptr, sums_ptr, stride_g, step_g, stride_x, step_x, step_b, n, d,
    TANH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1).to(tl.int64) * COLS + tl.arange(0, COLS)
    inside = (rows[:, None] < n) & (cols[None, :] < d)
    b = tl.load(b_ptr + cols * step_b, mask=cols < d, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + rows[:, None] * stride_g + cols[None, :] * step_g, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :] * step_x, mask=inside, other=0.0).to(tl.float32)
    z = x + b[None, :]
    p = phi(z, TANH)
    if TANH:
        gx = g * (p + z * p * (1.0 - p) * (1.5957691216057308 + 3.0 * 0.0713548162726009 * z * z))
    else:
        gx = g * (p + z * tl.exp2(-0.7213475204444817 * z * z) * 0.3989422804014327)
    tl.store(gx_ptr + rows[:, None] * d + cols[None, :], gx.to(gx_ptr.dtype.element_ty), mask=inside)
    tl.store(sums_ptr + tl.program_id(0).to(tl.int64) * d + cols, tl.sum(gx, 0), mask=cols < d)


@triton.jit
def add_up(sums_ptr, out_ptr, n, d, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows[:, None] < n) & (cols[None, :] < d)
        total += tl.load(sums_ptr + rows[:, None].to(tl.int64) * d + cols[None, :], mask=inside, other=0.0)
    tl.store(out_ptr + cols, tl.sum(total, 0).to(out_ptr.dtype.element_ty), mask=cols < d)


def check(x, bias, approximate):
    if x.ndim == 0 or tuple(bias.shape) != (x.shape[-1],):
        raise ValueError(f"expected bias for {tuple(x.shape)}, got {tuple(bias.shape)}")
    if approximate not in ("none", "tanh"):
        raise ValueError(f"expected none or tanh, got {approximate}")


def bias_gelu_forward(x, bias, approximate="none"):
    check(x, bias, approximate)
    rows = x.reshape(-1, x.shape[-1])
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        forward_tiles[(66,)](
            rows, bias, y, *rows.stride(), *bias.stride(), *rows.shape, TANH=approximate == "tanh", PROGRAMS=66
        )
    return y


def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    check(x, bias, approximate)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError("expected a gradient of the shape of x")
    g, rows = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])
    n, d = rows.shape
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if n == 0:
        return grad_x, torch.zeros_like(bias)
    sums = torch.empty(triton.cdiv(n, 32), d, dtype=torch.float32, device=x.device)
    grad_bias = torch.empty(d, dtype=bias.dtype, device=x.device)
    backward_tiles[(len(sums), triton.cdiv(d, 128))](
        g, rows, bias, grad_x, sums, *g.stride(), *rows.stride(), *bias.stride(), n, d,
        TANH=approximate == "tanh", ROWS=32, COLS=128,
    )  # fmt: skip
    add_up[(triton.cdiv(d, 64),)](sums, grad_bias, len(sums), d, ROWS=16, COLS=64)
    return grad_x, grad_bias


class BiasAndGelu(torch.autograd.Function):
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
    return BiasAndGelu.apply(x, bias, approximate)
