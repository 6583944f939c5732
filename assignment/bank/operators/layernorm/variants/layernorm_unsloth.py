"""LayerNorm in the style of unsloth: a program a row, pointers moved to the row, everything in float32; grad_weight and
grad_bias by atomics into a few shares.
"""

import torch
import triton
import triton.language as tl

SHARES = 16


def layernorm_forward(x, weight, bias, eps=1e-5):
    _check(x, weight, bias)
    X = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = X.shape
    Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
    mu = torch.empty(n_rows, dtype=torch.float32, device=X.device)
    r = torch.empty(n_rows, dtype=torch.float32, device=X.device)
    if n_rows:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        with torch.cuda.device(X.device):
            _layernorm_forward[(n_rows,)](
                Y, Y.stride(0), X, X.stride(0), X.stride(1), weight, weight.stride(0), bias, bias.stride(0), r, mu,
                n_cols, eps, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
            )  # fmt: skip
    return Y.view(*x.shape), mu.view(x.shape[:-1]), r.view(x.shape[:-1])


def layernorm_backward(grad_y, x, weight, mean, rstd):
    _check(x, weight)
    for per_row in (mean, rstd):
        if per_row.shape != x.shape[:-1]:
            raise ValueError(f"expected {tuple(x.shape[:-1])}, got {tuple(per_row.shape)}")
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape)} of {x.dtype}, got {tuple(grad_y.shape)}")
    dY, X = (t.reshape(-1, x.shape[-1]) for t in (grad_y, x))
    n_rows, n_cols = X.shape
    dX = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
    shares = torch.zeros((SHARES, 2 * n_cols), dtype=torch.float32, device=X.device)
    if n_rows:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        with torch.cuda.device(X.device):
            _layernorm_backward[(n_rows,)](
                dY, dY.stride(0), dY.stride(1), dX, dX.stride(0), X, X.stride(0), X.stride(1),
                weight, weight.stride(0), rstd.contiguous(), mean.contiguous(), shares, shares.stride(0),
                n_cols, SHARES=SHARES, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
            )  # fmt: skip
    total = shares.sum(0).to(weight.dtype)
    return dX.view(*x.shape), total[:n_cols], total[n_cols:]


def layernorm(x, weight, bias, eps=1e-5):
    return FastLayernorm.apply(x, weight, bias, eps)


class FastLayernorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, W, b, eps):
        Y, mu, r = layernorm_forward(X, W, b, eps)
        ctx.save_for_backward(X, W, mu, r)
        return Y

    @staticmethod
    def backward(ctx, dY):
        dX, dW, db = layernorm_backward(dY, *ctx.saved_tensors)
        return dX, dW, db, None


def _check(x, *vectors):
    for vector in vectors:
        if (vector.shape, vector.dtype) != (x.shape[-1:], x.dtype):
            raise ValueError(f"expected {tuple(x.shape[-1:])} {x.dtype}, got {tuple(vector.shape)} {vector.dtype}")


def _settings(n):
    block = triton.next_power_of_2(n)
    return block, 32 if block >= 32768 else 16 if block >= 8192 else 8 if block >= 2048 else 4


@triton.jit
def _layernorm_forward(
    Y, Y_row_stride, X, X_row_stride, X_col_stride, W, W_stride, b, b_stride, r, mu, n_cols, eps,
    BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = col_offsets < n_cols
    Y += row_idx * Y_row_stride
    X += row_idx * X_row_stride
    r += row_idx
    mu += row_idx
    X_row = tl.load(X + col_offsets * X_col_stride, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets * W_stride, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + col_offsets * b_stride, mask=mask, other=0).to(tl.float32)
    mean_X = tl.sum(X_row, axis=0) / n_cols
    XX = tl.where(mask, X_row - mean_X, 0)
    row_var = tl.sum(XX * XX, axis=0) / n_cols
    inv_var = tl.math.rsqrt(row_var + eps)
    tl.store(r, inv_var)
    tl.store(mu, mean_X)
    output = (XX * inv_var) * W_row + b_row
    tl.store(Y + col_offsets, output, mask=mask)


@triton.jit
def _layernorm_backward(
    dY, dY_row_stride, dY_col_stride, dX, dX_row_stride, X, X_row_stride, X_col_stride, W, W_stride, r, mu, shares,
    shares_stride, n_cols, SHARES: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    dY_row = tl.load(dY + row_idx * dY_row_stride + cols * dY_col_stride, mask=mask, other=0).to(tl.float32)
    X_row = tl.load(X + row_idx * X_row_stride + cols * X_col_stride, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + cols * W_stride, mask=mask, other=0).to(tl.float32)
    inv_var = tl.load(r + row_idx)
    mean = tl.load(mu + row_idx)
    normed = (X_row - mean) * inv_var
    dY_W = dY_row * W_row
    dX_row = dY_W - tl.sum(dY_W, axis=0) / n_cols - normed * tl.sum(dY_W * normed, axis=0) / n_cols
    tl.store(dX + row_idx * dX_row_stride + cols, dX_row * inv_var, mask=mask)
    mine = shares + row_idx % SHARES * shares_stride
    tl.atomic_add(mine + cols, dY_row * normed, mask=mask)
    tl.atomic_add(mine + n_cols + cols, dY_row, mask=mask)
