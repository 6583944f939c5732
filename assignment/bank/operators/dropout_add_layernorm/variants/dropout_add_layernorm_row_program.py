"""A program a row, as wide as the row, in the style of flash-attention's layer norm: the seed and the row's first index
move the counter, offsets are 32 bits wide within a row; a backward pass with a fixed number of programs.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 48


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    _check(p, x, weight, bias)
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(f"expected residual like x, {tuple(x.shape)}, got {tuple(residual.shape)}")
    a, b = x.reshape(-1, x.shape[-1]), residual.reshape(-1, x.shape[-1])
    M, N = a.shape
    y, out = torch.empty((M, N), dtype=x.dtype, device=x.device), torch.empty((M, N), dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(M, dtype=torch.float32, device=x.device) for _ in range(2))
    if M:
        block = triton.next_power_of_2(N)
        _fwd[(M,)](
            a, b, weight, bias, y, out, mean, rstd, *a.stride(), *b.stride(), *weight.stride(), *bias.stride(),
            N, p, seed, eps, BLOCK_N=block, HAS_DROPOUT=p > 0, num_warps=min(max(block // 256, 1), 16),
        )  # fmt: skip
    return y.view(x.shape), out.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    _check(p, summed, weight)
    if grad_y.shape != summed.shape or grad_y.dtype != summed.dtype:
        raise ValueError(f"expected grad_y like summed, {tuple(summed.shape)}, got {tuple(grad_y.shape)}")
    if mean.shape != summed.shape[:-1] or rstd.shape != summed.shape[:-1]:
        raise ValueError(f"expected mean and rstd {tuple(summed.shape[:-1])}")
    g, s = grad_y.reshape(-1, summed.shape[-1]), summed.reshape(-1, summed.shape[-1])
    M, N = s.shape
    dx, dres = torch.empty((2, M, N), dtype=s.dtype, device=s.device)
    rows = triton.cdiv(M, PROGRAMS)
    dw, db = torch.zeros((2, PROGRAMS, N), dtype=torch.float32, device=s.device)
    if M:
        block = triton.next_power_of_2(N)
        _bwd[(PROGRAMS,)](
            g, s, weight, mean.contiguous(), rstd.contiguous(), dx, dres, dw, db,
            *g.stride(), *s.stride(), *weight.stride(), M, N, p, seed, rows,
            BLOCK_N=block, HAS_DROPOUT=p > 0, num_warps=min(max(block // 256, 1), 16),
        )  # fmt: skip
    grads = (dw.sum(0).to(weight.dtype), db.sum(0).to(weight.dtype))
    return dx.view(summed.shape), dres.view(summed.shape), *grads


def dropout_add_layernorm(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return LayerNormFn.apply(x, residual, weight, bias, p, seed, eps)


class LayerNormFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, residual, weight, bias, p, seed, eps):
        y, out, mean, rstd = dropout_add_layernorm_forward(x, residual, weight, bias, p, seed, eps)
        ctx.save_for_backward(out, weight, mean, rstd)
        ctx.dropout = {"p": p, "seed": seed}
        return y

    @staticmethod
    def backward(ctx, dy):
        return (*dropout_add_layernorm_backward(dy, *ctx.saved_tensors, **ctx.dropout), None, None, None)


def _check(p, x, *vectors):
    if not 0 <= p < 1:
        raise ValueError(f"expected 0 <= p < 1, got {p}")
    for vector in vectors:
        if vector.shape != (x.shape[-1],) or vector.dtype != x.dtype:
            raise ValueError(f"expected ({x.shape[-1]},) of {x.dtype}, got {tuple(vector.shape)} of {vector.dtype}")


@triton.jit
def _fwd(
    X, R, W, B, Y, OUT, Mean, Rstd, stride_xr, stride_xd, stride_rr, stride_rd, stride_w, stride_b, N, p, seed, eps,
    BLOCK_N: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N).to(tl.int64)
    mask = cols < N
    x = tl.load(X + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    if HAS_DROPOUT:
        x = tl.where(tl.rand(seed, row * N + cols) >= p, x / (1.0 - p), 0.0)
    x += tl.load(R + row * stride_rr + cols * stride_rd, mask=mask, other=0.0).to(tl.float32)
    tl.store(OUT + row * N + cols, x, mask=mask)
    mean = tl.sum(x, axis=0) / N
    xbar = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(xbar * xbar, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    w = tl.load(W + cols * stride_w, mask=mask).to(tl.float32)
    b = tl.load(B + cols * stride_b, mask=mask).to(tl.float32)
    tl.store(Y + row * N + cols, (x - mean) * rstd * w + b, mask=mask)


@triton.jit
def _bwd(
    DY, S, W, Mean, Rstd, DX, DRES, DW, DB, stride_gr, stride_gd, stride_sr, stride_sd, stride_w,
    M, N, p, seed, rows_per_program, BLOCK_N: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N).to(tl.int64)
    mask = cols < N
    w = tl.load(W + cols * stride_w, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK_N,), dtype=tl.float32)
    db = tl.zeros((BLOCK_N,), dtype=tl.float32)
    row_end = min((block + 1) * rows_per_program, M)
    for row in range(block * rows_per_program, row_end):
        s = tl.load(S + row * stride_sr + cols * stride_sd, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(DY + row * stride_gr + cols * stride_gd, mask=mask, other=0.0).to(tl.float32)
        xhat = tl.where(mask, (s - tl.load(Mean + row)) * tl.load(Rstd + row), 0.0)
        wdy = w * dy
        dw += dy * xhat
        db += dy
        c1 = tl.sum(xhat * wdy, axis=0) / N
        c2 = tl.sum(wdy, axis=0) / N
        dres = (wdy - (xhat * c1 + c2)) * tl.load(Rstd + row)
        tl.store(DRES + row * N + cols, dres, mask=mask)
        if HAS_DROPOUT:
            dres = tl.where(tl.rand(seed, row * N + cols) >= p, dres / (1.0 - p), 0.0)
        tl.store(DX + row * N + cols, dres, mask=mask)
    tl.store(DW + block * N + cols, dw, mask=mask)
    tl.store(DB + block * N + cols, db, mask=mask)
