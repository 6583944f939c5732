"""A program a row in both passes, in the style of unsloth: contiguous copies, the scale from host code, p as a constant
of the kernel, and gradients of the vectors added by atomics into a few shares.
"""

import torch
import triton
import triton.language as tl

SHARES = 8


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    _check(p, x, residual, weight, bias)
    X, R = x.contiguous().view(-1, x.shape[-1]), residual.contiguous().view(-1, x.shape[-1])
    n_rows, n_cols = X.shape
    Y, S = torch.empty_like(X), torch.empty_like(X)
    r, mu = torch.empty((2, n_rows), dtype=torch.float32, device=X.device)
    if n_rows:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        _forward[(n_rows,)](
            Y, S, X, R, weight.contiguous(), bias.contiguous(), r, mu, n_cols, eps, seed,
            P=p, SCALE=1 / (1 - p), BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
        )  # fmt: skip
    return Y.view(x.shape), S.view(x.shape), mu.view(x.shape[:-1]), r.view(x.shape[:-1])


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    _check(p, summed, grad_y, weight)
    if mean.shape != summed.shape[:-1] or rstd.shape != summed.shape[:-1]:
        raise ValueError(f"expected mean and rstd {tuple(summed.shape[:-1])}")
    dY, S = grad_y.contiguous().view(-1, summed.shape[-1]), summed.contiguous().view(-1, summed.shape[-1])
    n_rows, n_cols = S.shape
    dX, dR = torch.empty_like(S), torch.empty_like(S)
    shares = torch.zeros((SHARES, 2, n_cols), dtype=torch.float32, device=S.device)
    if n_rows:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        _backward[(n_rows,)](
            dX, dR, dY, S, weight.contiguous(), rstd.contiguous(), mean.contiguous(), shares, n_cols, seed,
            P=p, SCALE=1 / (1 - p), SHARES=SHARES, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
        )  # fmt: skip
    dW, db = shares.sum(0).to(weight.dtype)
    return dX.view(summed.shape), dR.view(summed.shape), dW, db


def dropout_add_layernorm(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return FastDropoutAddLayerNorm.apply(x, residual, weight, bias, p, seed, eps)


class FastDropoutAddLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, R, W, b, p, seed, eps):
        Y, S, mu, r = dropout_add_layernorm_forward(X, R, W, b, p, seed, eps)
        ctx.save_for_backward(S, W, mu, r)
        ctx.p, ctx.seed = p, seed
        return Y

    @staticmethod
    def backward(ctx, dY):
        S, W, mu, r = ctx.saved_tensors
        dX, dR, dW, db = dropout_add_layernorm_backward(dY, S, W, mu, r, p=ctx.p, seed=ctx.seed)
        return dX, dR, dW, db, None, None, None


def _check(p, x, other, *vectors):
    if p < 0 or p >= 1:
        raise ValueError(f"expected 0 <= p < 1, got {p}")
    if (x.shape, x.dtype) != (other.shape, other.dtype):
        raise ValueError(f"expected {tuple(x.shape)} of {x.dtype}, got {tuple(other.shape)} of {other.dtype}")
    for vector in vectors:
        if (vector.shape, vector.dtype) != (x.shape[-1:], x.dtype):
            raise ValueError(f"expected {tuple(x.shape[-1:])} of {x.dtype}, got {tuple(vector.shape)}")


def _settings(n):
    block = triton.next_power_of_2(n)
    return block, 32 if block >= 32768 else 16 if block >= 8192 else 8 if block >= 2048 else 4


@triton.jit
def _forward(
    Y, S, X, R, W, b, r, mu, n_cols, eps, seed, P: tl.constexpr, SCALE: tl.constexpr, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    at = row_idx * n_cols + cols
    X_row = tl.load(X + at, mask=mask, other=0).to(tl.float32)
    R_row = tl.load(R + at, mask=mask, other=0).to(tl.float32)
    if P > 0:
        X_row = tl.where(tl.rand(seed, at) < P, 0.0, X_row * SCALE)
    S_row = X_row + R_row
    tl.store(S + at, S_row, mask=mask)
    mean = tl.sum(S_row, axis=0) / n_cols
    SS = tl.where(mask, S_row - mean, 0)
    inv_var = tl.math.rsqrt(tl.sum(SS * SS, axis=0) / n_cols + eps)
    tl.store(r + row_idx, inv_var)
    tl.store(mu + row_idx, mean)
    W_row = tl.load(W + cols, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + cols, mask=mask, other=0).to(tl.float32)
    tl.store(Y + at, SS * inv_var * W_row + b_row, mask=mask)


@triton.jit
def _backward(
    dX, dR, dY, S, W, r, mu, shares, n_cols, seed,
    P: tl.constexpr, SCALE: tl.constexpr, SHARES: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    at = row_idx * n_cols + cols
    dY_row = tl.load(dY + at, mask=mask, other=0).to(tl.float32)
    S_row = tl.load(S + at, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + cols, mask=mask, other=0).to(tl.float32)
    inv_var = tl.load(r + row_idx)
    normed = (S_row - tl.load(mu + row_idx)) * inv_var
    dY_W = dY_row * W_row
    dR_row = dY_W - tl.sum(dY_W, axis=0) / n_cols - normed * tl.sum(dY_W * normed, axis=0) / n_cols
    dR_row = dR_row * inv_var
    tl.store(dR + at, dR_row, mask=mask)
    if P > 0:
        dR_row = tl.where(tl.rand(seed, at) < P, 0.0, dR_row * SCALE)
    tl.store(dX + at, dR_row, mask=mask)
    mine = shares + row_idx % SHARES * 2 * n_cols + cols
    tl.atomic_add(mine, dY_row * normed, mask=mask)
    tl.atomic_add(mine + n_cols, dY_row, mask=mask)
