"""LayerNorm by tl.reduce over (mean, squares, count), as torch.compile generates it; tiles of rows and columns, merged
as they come. Backward: a kernel for grad_x, and one for the columns' sums, which reads everything again.
"""

import torch
import triton
import triton.language as tl

ROWS, COLS = 4, 1024


def layernorm_forward(x, weight, bias, eps=1e-5):
    _check(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    n, d = rows.shape
    y, (mean, rstd) = rows.new_empty((n, d)), rows.new_empty((2, n), dtype=torch.float32)
    if n:
        _forward[(triton.cdiv(n, ROWS),)](
            rows, weight, bias, y, mean, rstd, *rows.stride(), *weight.stride(), *bias.stride(), n, d, eps,
            ROWS=ROWS, COLS=_columns(d), FITS=d <= COLS,
        )  # fmt: skip
    return y.view(x.shape), mean.reshape(x.shape[:-1]), rstd.reshape(x.shape[:-1])


def layernorm_backward(grad_y, x, weight, mean, rstd):
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype or mean.shape != x.shape[:-1] or rstd.shape != mean.shape:
        raise ValueError(f"expected grad_y {x.shape}, mean and rstd {x.shape[:-1]}, got {grad_y.shape}, {mean.shape}")
    g, rows, mean, rstd = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1]), mean.ravel(), rstd.ravel()
    n, d = rows.shape
    grad_x, grad_w, grad_b = rows.new_empty((n, d)), torch.zeros_like(weight), torch.zeros_like(weight)
    if n:
        inputs = g, rows, weight, mean, rstd
        strides = [stride for tensor in inputs for stride in tensor.stride()]
        _grad_x[(triton.cdiv(n, ROWS),)](*inputs, grad_x, *strides, n, d, ROWS=ROWS, COLS=_columns(d), FITS=d <= COLS)
        _grad_vectors[(triton.cdiv(d, 64),)](*inputs, grad_w, grad_b, *strides, n, d, ROWS=64, COLS=64)
    return grad_x.view(x.shape), grad_w, grad_b


def layernorm(x, weight, bias, eps=1e-5):
    return _Function.apply(x, weight, bias, eps)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, *kept = layernorm_forward(x, weight, bias, eps=eps)
        ctx.save_for_backward(x, weight, *kept)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        return (*layernorm_backward(grad_y, *ctx.saved_tensors), None)


def _check(x, *vectors):
    if x.dim() < 1 or any(v.shape != (x.shape[-1],) or v.dtype != x.dtype for v in vectors):
        raise ValueError(f"expected vectors of {x.shape[-1:]} {x.dtype}, got {[(v.shape, v.dtype) for v in vectors]}")


def _columns(d):
    return min(COLS, triton.next_power_of_2(d))


@triton.jit
def _merge(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / tl.where(count == 0.0, 1.0, count))
    step = mean_b - mean_a
    return mean_a + step * share, squares_a + squares_b + step * step * count_a * share, count


@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, stride_xr, stride_xd, stride_w, stride_b, n, d, eps,
    ROWS: tl.constexpr, COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS).to(tl.int64)[None, :]
    mean = tl.zeros((ROWS,), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    x = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, d, COLS):
        inside = (r < n) & (start + c < d)
        x = tl.load(x_ptr + r * stride_xr + (start + c) * stride_xd, inside, 0.0).to(tl.float32)
        of_tile = tl.reduce((x, tl.zeros_like(x), tl.where(inside, 1.0, 0.0)), 1, _merge)
        mean, squares, count = _merge(mean, squares, count, of_tile[0], of_tile[1], of_tile[2])
    rstd = tl.rsqrt(squares / d + eps)
    line = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    tl.store(mean_ptr + line, mean, line < n)
    tl.store(rstd_ptr + line, rstd, line < n)
    for start in range(0, d, COLS):
        inside = (r < n) & (start + c < d)
        if not FITS:
            x = tl.load(x_ptr + r * stride_xr + (start + c) * stride_xd, inside, 0.0).to(tl.float32)
        w = tl.load(w_ptr + (start + c) * stride_w, start + c < d, 0.0).to(tl.float32)
        b = tl.load(b_ptr + (start + c) * stride_b, start + c < d, 0.0).to(tl.float32)
        tl.store(y_ptr + r * d + start + c, (x - mean[:, None]) * rstd[:, None] * w + b, inside)


@triton.jit
def _grad_x(
    g_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr,
    stride_gr, stride_gd, stride_xr, stride_xd, stride_w, stride_m, stride_s, n, d,
    ROWS: tl.constexpr, COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS).to(tl.int64)[None, :]
    mean = tl.load(mean_ptr + r * stride_m, r < n, 0.0)
    rstd = tl.load(rstd_ptr + r * stride_s, r < n, 0.0)
    h = tl.zeros((ROWS, COLS), tl.float32)
    x_hat = tl.zeros((ROWS, COLS), tl.float32)
    total = tl.zeros((ROWS, 1), tl.float32)
    along = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, d, COLS):
        inside = (r < n) & (start + c < d)
        w = tl.load(w_ptr + (start + c) * stride_w, start + c < d, 0.0).to(tl.float32)
        h = w * tl.load(g_ptr + r * stride_gr + (start + c) * stride_gd, inside, 0.0).to(tl.float32)
        x = tl.load(x_ptr + r * stride_xr + (start + c) * stride_xd, inside, 0.0).to(tl.float32)
        x_hat = (x - mean) * rstd
        total += tl.sum(h, 1, keep_dims=True)
        along += tl.sum(h * x_hat, 1, keep_dims=True)
    for start in range(0, d, COLS):
        inside = (r < n) & (start + c < d)
        if not FITS:
            w = tl.load(w_ptr + (start + c) * stride_w, start + c < d, 0.0).to(tl.float32)
            h = w * tl.load(g_ptr + r * stride_gr + (start + c) * stride_gd, inside, 0.0).to(tl.float32)
            x = tl.load(x_ptr + r * stride_xr + (start + c) * stride_xd, inside, 0.0).to(tl.float32)
            x_hat = (x - mean) * rstd
        tl.store(grad_x_ptr + r * d + start + c, rstd * (h - (total + x_hat * along) / d), inside)


@triton.jit
def _grad_vectors(
    g_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, grad_w_ptr, grad_b_ptr,
    stride_gr, stride_gd, stride_xr, stride_xd, stride_w, stride_m, stride_s, n, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0).to(tl.int64) * COLS + tl.arange(0, COLS)[None, :]
    grad_w = tl.zeros((ROWS, COLS), tl.float32)
    grad_b = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n, ROWS):
        r = start + tl.arange(0, ROWS).to(tl.int64)[:, None]
        inside = (r < n) & (c < d)
        g = tl.load(g_ptr + r * stride_gr + c * stride_gd, inside, 0.0).to(tl.float32)
        x = tl.load(x_ptr + r * stride_xr + c * stride_xd, inside, 0.0).to(tl.float32)
        x_hat = (x - tl.load(mean_ptr + r * stride_m, r < n, 0.0)) * tl.load(rstd_ptr + r * stride_s, r < n, 0.0)
        grad_w += g * x_hat
        grad_b += g
    tl.store(grad_w_ptr + c, tl.sum(grad_w, 0, keep_dims=True), c < d)
    tl.store(grad_b_ptr + c, tl.sum(grad_b, 0, keep_dims=True), c < d)
