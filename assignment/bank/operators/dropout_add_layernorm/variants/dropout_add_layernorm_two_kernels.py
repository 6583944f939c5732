"""The sum in a forward kernel of the row, gradients of rows and of vectors in kernels apart, all by tiles of rows; the
mask as a helper that both passes call, in the style of tutorial 07.
"""

import torch
import triton
import triton.language as tl

ROWS = 4


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    _check(p, x, residual, weight, bias)
    d = x.shape[-1]
    x_, r_ = x.reshape(-1, d), residual.reshape(-1, d)
    n = len(x_)
    y, summed = x_.new_empty((n, d)), x_.new_empty((n, d))
    statistics = x_.new_empty((2, n), dtype=torch.float32)
    if n:
        _forward[(triton.cdiv(n, ROWS),)](
            x_, r_, weight, bias, y, summed, statistics, *x_.stride(), *r_.stride(), weight.stride(0), bias.stride(0),
            n, d, p, seed, eps, ROWS=ROWS, COLS=triton.next_power_of_2(d), num_warps=8,
        )  # fmt: skip
    mean, rstd = statistics
    return y.view(x.shape), summed.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    _check(p, summed, grad_y, weight)
    if not mean.shape == rstd.shape == summed.shape[:-1]:
        raise ValueError(f"expected mean and rstd {tuple(summed.shape[:-1])}, got {mean.shape} and {rstd.shape}")
    d = summed.shape[-1]
    g, s, m, r = grad_y.reshape(-1, d), summed.reshape(-1, d), mean.reshape(-1), rstd.reshape(-1)
    n = len(s)
    grad_x, grad_residual = s.new_empty((n, d)), s.new_empty((n, d))
    grad_w, grad_b = torch.zeros_like(weight), torch.zeros_like(weight)
    if n:
        inputs = (g, s, weight, m, r)
        strides = (*g.stride(), *s.stride(), weight.stride(0), m.stride(0), r.stride(0))
        _of_rows[(triton.cdiv(n, ROWS),)](
            *inputs, grad_x, grad_residual, *strides, n, d, p, seed, ROWS=ROWS, COLS=triton.next_power_of_2(d),
            num_warps=8,
        )  # fmt: skip
        _of_columns[(triton.cdiv(d, 32),)](*inputs, grad_w, grad_b, *strides, n, d, ROWS=128, COLS=32)
    return grad_x.view(summed.shape), grad_residual.view(summed.shape), grad_w, grad_b


def dropout_add_layernorm(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return _Function.apply(x, residual, weight, bias, p, seed, eps)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, p, seed, eps):
        y, summed, mean, rstd = dropout_add_layernorm_forward(x, residual, weight, bias, p, seed, eps)
        ctx.save_for_backward(summed, weight, mean, rstd)
        ctx.p, ctx.seed = p, seed
        return y

    @staticmethod
    def backward(ctx, grad_y):
        summed, weight, mean, rstd = ctx.saved_tensors
        grads = dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, ctx.p, ctx.seed)
        return (*grads, None, None, None)


def _check(p, x, other, *vectors):
    if not 0 <= p < 1:
        raise ValueError(f"expected p in [0, 1), got {p}")
    if x.shape != other.shape or any(vector.shape != x.shape[-1:] for vector in vectors):
        raise ValueError(f"expected shapes that fit {tuple(x.shape)}, got {tuple(other.shape)}")
    if any(tensor.dtype != x.dtype for tensor in (other, *vectors)):
        raise ValueError(f"expected {x.dtype} throughout")


@triton.jit
def _dropped(x, at, p, seed):
    return tl.where(tl.rand(seed, at) >= p, x * (1 / (1 - p)), 0.0)


@triton.jit
def _forward(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, summed_ptr, statistics_ptr, stride_xr, stride_xd, stride_rr, stride_rd,
    stride_w, stride_b, n, d, p, seed, eps, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLS).to(tl.int64)[None, :]
    inside = (i < n) & (j < d)
    at = i * d + j
    x = tl.load(x_ptr + i * stride_xr + j * stride_xd, mask=inside, other=0.0).to(tl.float32)
    residual = tl.load(r_ptr + i * stride_rr + j * stride_rd, mask=inside, other=0.0).to(tl.float32)
    summed = (residual + _dropped(x, at, p, seed)).to(summed_ptr.dtype.element_ty)
    tl.store(summed_ptr + at, summed, mask=inside)
    summed = summed.to(tl.float32)
    mean = tl.sum(summed, axis=1, keep_dims=True) / d
    centred = tl.where(inside, summed - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / d + eps)
    tl.store(statistics_ptr + i, mean, mask=i < n)
    tl.store(statistics_ptr + n + i, rstd, mask=i < n)
    w = tl.load(w_ptr + j * stride_w, mask=j < d, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + j * stride_b, mask=j < d, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, centred * rstd * w + b, mask=inside)


@triton.jit
def _of_rows(
    g_ptr, s_ptr, w_ptr, m_ptr, r_ptr, grad_x_ptr, grad_residual_ptr, stride_gr, stride_gd, stride_sr, stride_sd,
    stride_w, stride_m, stride_r, n, d, p, seed, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLS).to(tl.int64)[None, :]
    inside = (i < n) & (j < d)
    rstd = tl.load(r_ptr + i * stride_r, mask=i < n, other=0.0)
    s = tl.load(s_ptr + i * stride_sr + j * stride_sd, mask=inside, other=0.0).to(tl.float32)
    x_hat = (s - tl.load(m_ptr + i * stride_m, mask=i < n, other=0.0)) * rstd
    h = tl.load(g_ptr + i * stride_gr + j * stride_gd, mask=inside, other=0.0).to(tl.float32)
    h *= tl.load(w_ptr + j * stride_w, mask=j < d, other=0.0).to(tl.float32)
    sums = tl.sum(h, axis=1, keep_dims=True) + x_hat * tl.sum(h * x_hat, axis=1, keep_dims=True)
    grad = rstd * (h - sums / d)
    tl.store(grad_residual_ptr + i * d + j, grad, mask=inside)
    tl.store(grad_x_ptr + i * d + j, _dropped(grad, i * d + j, p, seed), mask=inside)


@triton.jit
def _of_columns(
    g_ptr, s_ptr, w_ptr, m_ptr, r_ptr, grad_w_ptr, grad_b_ptr, stride_gr, stride_gd, stride_sr, stride_sd,
    stride_w, stride_m, stride_r, n, d, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    grad_w = tl.zeros((ROWS, COLS), dtype=tl.float32)
    grad_b = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n, ROWS):
        i = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (i < n) & (j < d)
        g = tl.load(g_ptr + i * stride_gr + j * stride_gd, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(s_ptr + i * stride_sr + j * stride_sd, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(m_ptr + i * stride_m, mask=i < n, other=0.0)
        grad_w += g * (s - mean) * tl.load(r_ptr + i * stride_r, mask=i < n, other=0.0)
        grad_b += g
    tl.store(grad_w_ptr + j, tl.sum(grad_w, axis=0, keep_dims=True), mask=j < d)
    tl.store(grad_b_ptr + j, tl.sum(grad_b, axis=0, keep_dims=True), mask=j < d)
