"""Softmax in the style of Liger: one block up to a width, else a loop with a scalar maximum and sum of the row that are
rescaled block by block; contiguous inputs by a decorator.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_FUSED_SIZE = 8192


def ensure_contiguous(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*(x.contiguous() if isinstance(x, Tensor) else x for x in args))

    return wrapper


def calculate_settings(n):
    block_size = min(triton.next_power_of_2(n), MAX_FUSED_SIZE)
    return block_size, next((w for size, w in ((8192, 16), (2048, 8)) if block_size >= size), 4)


@ensure_contiguous
def softmax_forward(x):
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected at least one column, got {tuple(x.shape)}")
    n_rows, n_cols = x.shape[:-1].numel(), x.shape[-1]
    y = torch.empty_like(x)
    block_size, num_warps = calculate_settings(n_cols)
    if n_rows == 0:
        return y
    kernel = single_block_forward if n_cols <= block_size else multi_block_forward
    kernel[(n_rows,)](y, n_cols, x, n_cols, n_cols, BLOCK_SIZE=block_size, num_warps=num_warps)
    return y


@ensure_contiguous
def softmax_backward(grad_y, y):
    if grad_y.shape != y.shape or grad_y.dtype != y.dtype:
        raise ValueError(f"expected {y.shape} {y.dtype}, got {grad_y.shape} {grad_y.dtype}")
    n_rows, n_cols = y.shape[:-1].numel(), y.shape[-1]
    grad_x = torch.empty_like(y)
    block_size, num_warps = calculate_settings(n_cols)
    if n_rows == 0:
        return grad_x
    kernel = single_block_backward if n_cols <= block_size else multi_block_backward
    kernel[(n_rows,)](grad_y, y, grad_x, n_cols, n_cols, BLOCK_SIZE=block_size, num_warps=num_warps)
    return grad_x


class LigerSoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        (y,) = ctx.saved_tensors
        return softmax_backward(grad_y, y)


def softmax(x):
    return LigerSoftmaxFunction.apply(x)


@triton.jit
def single_block_forward(Y_ptr, Y_row_stride, X_ptr, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_SIZE)
    mask = offs < n_cols
    x = tl.load(X_ptr + row_id * X_row_stride + offs, mask=mask, other=float("-inf"), cache_modifier=".ca")
    x = x.to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - tl.where(m == float("-inf"), 0.0, m))
    d = tl.sum(e, axis=0)
    y = e / tl.where(d > 0, d, 1.0)
    tl.store(Y_ptr + row_id * Y_row_stride + offs, y, mask=mask, cache_modifier=".cs")


@triton.jit
def multi_block_forward(Y_ptr, Y_row_stride, X_ptr, X_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_SIZE)
    m = tl.full((), -3.0e38, tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        xblk = tl.load(X_ptr + row_id * X_row_stride + idx, mask=idx < n_cols, other=float("-inf")).to(tl.float32)
        blk_max = tl.max(xblk, axis=0)
        new_m = tl.maximum(m, blk_max)
        d = d * tl.exp(m - new_m) + tl.sum(tl.exp(xblk - new_m), axis=0)
        m = new_m
    d = tl.where(d > 0, d, 1.0)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        mask = idx < n_cols
        xblk = tl.load(X_ptr + row_id * X_row_stride + idx, mask=mask, other=float("-inf")).to(tl.float32)
        tl.store(Y_ptr + row_id * Y_row_stride + idx, tl.exp(xblk - m) / d, mask=mask)


@triton.jit
def single_block_backward(dy_ptr, y_ptr, dx_ptr, stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_SIZE)
    mask = offs < n_cols
    dy = tl.load(dy_ptr + row_id * stride + offs, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row_id * stride + offs, mask=mask, other=0.0).to(tl.float32)
    dot = tl.sum(dy * y, axis=0)
    tl.store(dx_ptr + row_id * stride + offs, y * (dy - dot), mask=mask)


@triton.jit
def multi_block_backward(dy_ptr, y_ptr, dx_ptr, stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row_id = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_SIZE)
    acc = tl.full((), 0.0, tl.float32)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        mask = idx < n_cols
        dy = tl.load(dy_ptr + row_id * stride + idx, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row_id * stride + idx, mask=mask, other=0.0).to(tl.float32)
        acc += tl.sum(dy * y, axis=0)
    for start in tl.range(0, n_cols, BLOCK_SIZE):
        idx = start + offs
        mask = idx < n_cols
        dy = tl.load(dy_ptr + row_id * stride + idx, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row_id * stride + idx, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row_id * stride + idx, y * (dy - acc), mask=mask)
