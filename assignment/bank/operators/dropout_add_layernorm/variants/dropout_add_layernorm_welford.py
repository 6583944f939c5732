"""Rows in tiles of columns as torch.compile generates them: tl.reduce over (mean, squares, count), x and residual read
again for y, the mask computed twice; the backward by row programs that walk twice and keep their shares in memory.
"""

import torch
import triton
import triton.language as tl

COLS = 1024
PROGRAMS = 32


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    _check(p, x, residual, weight, bias)
    d = x.shape[-1]
    a, b = x.reshape(-1, d), residual.reshape(-1, d)
    n = a.shape[0]
    y, summed = a.new_empty((n, d)), a.new_empty((n, d))
    mean, rstd = a.new_empty(n, dtype=torch.float32), a.new_empty(n, dtype=torch.float32)
    if n:
        _forward[(n,)](
            a, b, weight, bias, y, summed, mean, rstd, *a.stride(), *b.stride(), *weight.stride(), *bias.stride(),
            d, p, 1 - p, seed, eps, COLS=min(COLS, triton.next_power_of_2(d)), FITS=d <= COLS,
        )  # fmt: skip
    return y.view(x.shape), summed.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    _check(p, summed, grad_y, weight)
    for statistic in (mean, rstd):
        if statistic.shape != summed.shape[:-1]:
            raise ValueError(f"expected a number a row, {tuple(summed.shape[:-1])}, got {tuple(statistic.shape)}")
    d = summed.shape[-1]
    g, s = grad_y.reshape(-1, d), summed.reshape(-1, d)
    n = s.shape[0]
    grad_x, grad_residual = s.new_empty((n, d)), s.new_empty((n, d))
    shares = s.new_zeros((PROGRAMS, 2, d), dtype=torch.float32)
    if n:
        _backward[(PROGRAMS,)](
            g, s, weight, mean.reshape(-1), rstd.reshape(-1), grad_x, grad_residual, shares,
            *g.stride(), *s.stride(), *weight.stride(), mean.reshape(-1).stride(0), rstd.reshape(-1).stride(0),
            n, d, p, 1 - p, seed, COLS=min(COLS, triton.next_power_of_2(d)), FITS=d <= COLS,
        )  # fmt: skip
    grad_weight, grad_bias = shares.sum(0).to(weight.dtype).unbind(0)
    return grad_x.view(summed.shape), grad_residual.view(summed.shape), grad_weight, grad_bias


def dropout_add_layernorm(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return _Function.apply(x, residual, weight, bias, p, seed, eps)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, p, seed, eps):
        y, *kept = dropout_add_layernorm_forward(x, residual, weight, bias, p=p, seed=seed, eps=eps)
        summed, mean, rstd = kept
        ctx.save_for_backward(summed, weight, mean, rstd)
        ctx.options = {"p": p, "seed": seed}
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return (*dropout_add_layernorm_backward(grad_y, *ctx.saved_tensors, **ctx.options), None, None, None)


def _check(p, x, other, *vectors):
    if not 0 <= p < 1:
        raise ValueError(f"expected 0 <= p < 1, got {p}")
    if other.shape != x.shape or any(v.shape != (x.shape[-1],) for v in vectors):
        raise ValueError(f"expected shapes that fit {tuple(x.shape)}, got {tuple(other.shape)}")
    if any(tensor.dtype != x.dtype for tensor in (other, *vectors)):
        raise ValueError(f"expected one dtype, {x.dtype}")


@triton.jit
def _merge(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / tl.where(count == 0.0, 1.0, count))
    step = mean_b - mean_a
    return mean_a + step * share, squares_a + squares_b + step * step * count_a * share, count


@triton.jit
def _forward(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, summed_ptr, mean_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_rr, stride_rd, stride_w, stride_b, d, p, kept_share, seed, eps,
    COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, COLS).to(tl.int64)
    means = tl.zeros((COLS,), tl.float32)
    squares = tl.zeros((COLS,), tl.float32)
    counts = tl.zeros((COLS,), tl.float32)
    summed = tl.zeros((COLS,), tl.float32)
    for start in range(0, d, COLS):
        c = start + lanes
        x = tl.load(x_ptr + row * stride_xr + c * stride_xd, c < d, 0.0).to(tl.float32)
        residual = tl.load(r_ptr + row * stride_rr + c * stride_rd, c < d, 0.0).to(tl.float32)
        summed = residual + tl.where(tl.rand(seed, row * d + c) >= p, x / kept_share, 0.0)
        tl.store(summed_ptr + row * d + c, summed, c < d)
        means, squares, counts = _merge(
            means, squares, counts, summed, tl.zeros((COLS,), tl.float32), tl.where(c < d, 1.0, 0.0)
        )
    of_row = tl.reduce((means, squares, counts), 0, _merge)
    mean, rstd = of_row[0], tl.rsqrt(of_row[1] / d + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, d, COLS):
        c = start + lanes
        if not FITS:
            x = tl.load(x_ptr + row * stride_xr + c * stride_xd, c < d, 0.0).to(tl.float32)
            residual = tl.load(r_ptr + row * stride_rr + c * stride_rd, c < d, 0.0).to(tl.float32)
            summed = residual + tl.where(tl.rand(seed, row * d + c) >= p, x / kept_share, 0.0)
        w = tl.load(w_ptr + c * stride_w, c < d, 0.0).to(tl.float32)
        b = tl.load(b_ptr + c * stride_b, c < d, 0.0).to(tl.float32)
        tl.store(y_ptr + row * d + c, (summed - mean) * rstd * w + b, c < d)


@triton.jit
def _backward(
    g_ptr, s_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, grad_residual_ptr, shares_ptr,
    stride_gr, stride_gd, stride_sr, stride_sd, stride_w, stride_m, stride_r, n, d, p, kept_share, seed,
    COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, COLS).to(tl.int64)
    for row in range(program, n, tl.num_programs(0)):
        mean = tl.load(mean_ptr + row * stride_m)
        rstd = tl.load(rstd_ptr + row * stride_r)
        total = tl.zeros((COLS,), tl.float32)
        along = tl.zeros((COLS,), tl.float32)
        g = tl.zeros((COLS,), tl.float32)
        x_hat = tl.zeros((COLS,), tl.float32)
        for start in range(0, d, COLS):
            c = start + lanes
            g = tl.load(g_ptr + row * stride_gr + c * stride_gd, c < d, 0.0).to(tl.float32)
            s = tl.load(s_ptr + row * stride_sr + c * stride_sd, c < d, 0.0).to(tl.float32)
            h = g * tl.load(w_ptr + c * stride_w, c < d, 0.0).to(tl.float32)
            x_hat = (s - mean) * rstd
            total += h
            along += h * x_hat
        h_mean = tl.sum(total, 0) / d
        h_along = tl.sum(along, 0) / d
        for start in range(0, d, COLS):
            c = start + lanes
            if not FITS:
                g = tl.load(g_ptr + row * stride_gr + c * stride_gd, c < d, 0.0).to(tl.float32)
                s = tl.load(s_ptr + row * stride_sr + c * stride_sd, c < d, 0.0).to(tl.float32)
                x_hat = (s - mean) * rstd
            h = g * tl.load(w_ptr + c * stride_w, c < d, 0.0).to(tl.float32)
            grad = rstd * (h - h_mean - x_hat * h_along)
            keep = tl.rand(seed, row * d + c) >= p
            tl.store(grad_residual_ptr + row * d + c, grad, c < d)
            tl.store(grad_x_ptr + row * d + c, tl.where(keep, grad / kept_share, 0.0), c < d)
            mine = shares_ptr + program * 2 * d + c
            tl.store(mine, tl.load(mine, c < d, 0.0) + g * x_hat, c < d)
            tl.store(mine + d, tl.load(mine + d, c < d, 0.0) + g, c < d)
