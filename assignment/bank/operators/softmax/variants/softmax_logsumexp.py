"""Softmax by way of the logarithm of the sum, as kernels of cross-entropy have it, in base 2: exp2(x · log₂e − lse)."""

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
CHUNK = 8192


@triton.jit
def forward_kernel(x_ptr, y_ptr, stride, step, n, CHUNK: tl.constexpr, ONE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride + at.to(tl.int64) * step, mask=at < n, other=float("-inf")).to(tl.float32) * LOG2_E
    top = tl.maximum(tl.max(x, 0), -1.0e30)
    total = tl.sum(tl.exp2(x - top), 0)
    for start in range(CHUNK, n, CHUNK):
        at = start + tl.arange(0, CHUNK)
        more = tl.load(x_ptr + row * stride + at.to(tl.int64) * step, mask=at < n, other=float("-inf"))
        more = more.to(tl.float32) * LOG2_E
        higher = tl.maximum(top, tl.max(more, 0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(more - higher), 0)
        top = higher
    lse = top + tl.log2(tl.where(total > 0, total, 1.0))
    if ONE:
        at = tl.arange(0, CHUNK)
        tl.store(y_ptr + row * n + at, tl.exp2(x - lse), mask=at < n)
    else:
        for start in range(0, n, CHUNK):
            at = start + tl.arange(0, CHUNK)
            x = tl.load(x_ptr + row * stride + at.to(tl.int64) * step, mask=at < n, other=0.0).to(tl.float32) * LOG2_E
            tl.store(y_ptr + row * n + at, tl.exp2(x - lse), mask=at < n)


@triton.jit
def backward_kernel(g_ptr, y_ptr, out_ptr, n, CHUNK: tl.constexpr):
    """One block, or several whose products are added up lane by lane."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, CHUNK)
    g = tl.load(g_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    lanes = g * y
    for start in range(CHUNK, n, CHUNK):
        more = start + at
        later = tl.load(y_ptr + row * n + more, mask=more < n, other=0.0).to(tl.float32)
        lanes += tl.load(g_ptr + row * n + more, mask=more < n, other=0.0).to(tl.float32) * later
    dot = tl.sum(lanes, 0)
    tl.store(out_ptr + row * n + at, y * g - y * dot, mask=at < n)
    for start in range(CHUNK, n, CHUNK):
        more = start + at
        g = tl.load(g_ptr + row * n + more, mask=more < n, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * n + more, mask=more < n, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * n + more, y * g - y * dot, mask=more < n)


def width(n):
    return min(CHUNK, triton.next_power_of_2(n))


def softmax_forward(x):
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"softmax of what? {tuple(x.shape)}")
    rows = x.flatten(0, -2) if x.ndim > 1 else x[None]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows.shape[0]:
        n = rows.shape[1]
        forward_kernel[(rows.shape[0],)](rows, y, *rows.stride(), n, CHUNK=width(n), ONE=n <= CHUNK)
    return y


def softmax_backward(grad_y, y):
    if grad_y.shape != y.shape or grad_y.dtype != y.dtype:
        raise ValueError("expected the gradient of y")
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    if out.numel():
        n = y.shape[-1]
        backward_kernel[(out.numel() // n,)](grad_y.contiguous(), y.contiguous(), out, n, CHUNK=width(n))
    return out


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return softmax_backward(grad_y, ctx.saved_tensors[0])


def softmax(x):
    return Function.apply(x)
