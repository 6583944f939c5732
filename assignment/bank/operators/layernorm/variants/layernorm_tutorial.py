"""LayerNorm as Triton's tutorial 05 would write it: a program a row that walks along it three times, and a backward
pass that adds shares of grad_weight and grad_bias to a few buffers under a lock.
"""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


def layernorm_forward(x, weight, bias, eps=1e-5):
    _check(x, weight, bias)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = x_.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    mean = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    rstd = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    if n_rows:
        block = min(MAX_BLOCK, triton.next_power_of_2(n_cols))
        _fwd_fused[(n_rows,)](
            x_, y, weight, bias, mean, rstd, *x_.stride(), *weight.stride(), *bias.stride(), n_cols, eps,
            BLOCK_SIZE=block, num_warps=min(max(block // 256, 1), 8),
        )  # fmt: skip
    return y.view(x.shape), mean.view(x.shape[:-1]), rstd.view(x.shape[:-1])


def layernorm_backward(grad_y, x, weight, mean, rstd):
    _check(x, weight)
    _check_rows(grad_y, x, mean, rstd)
    dy, x_ = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])
    n_rows, n_cols = x_.shape
    dx = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if not n_rows:
        return dx.view(x.shape), torch.zeros_like(weight), torch.zeros_like(weight)
    group = next((size for limit, size in ((1024, 256), (4096, 128), (8192, 96)) if n_cols <= limit), 64)
    locks = torch.zeros(2 * group, dtype=torch.int32, device=x.device)
    shares = torch.zeros((2, group, n_cols), dtype=torch.float32, device=x.device)
    dw, db = (torch.empty((n_cols,), dtype=weight.dtype, device=x.device) for _ in range(2))
    block = triton.next_power_of_2(n_cols)
    _bwd_dx_fused[(n_rows,)](
        dx, dy, shares[0], shares[1], x_, weight, mean.contiguous(), rstd.contiguous(), locks,
        *dy.stride(), *x_.stride(), *weight.stride(), n_cols,
        GROUP_SIZE_M=group, BLOCK_SIZE_N=block, num_warps=min(max(block // 256, 1), 8),
    )  # fmt: skip
    _bwd_dwdb[(triton.cdiv(n_cols, 128),)](
        shares[0], shares[1], dw, db, min(group, n_rows), n_cols, BLOCK_SIZE_M=32, BLOCK_SIZE_N=128
    )
    return dx.view(x.shape), dw, db


def layernorm(x, weight, bias, eps=1e-5):
    return LayerNorm.apply(x, weight, bias, eps)


def _check(x, *vectors):
    for vector in vectors:
        if vector.shape != (x.shape[-1],) or vector.dtype != x.dtype:
            raise ValueError(f"expected ({x.shape[-1]},) of {x.dtype}, got {tuple(vector.shape)} of {vector.dtype}")


def _check_rows(grad_y, x, mean, rstd):
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like x, {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    if mean.shape != x.shape[:-1] or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected mean and rstd {tuple(x.shape[:-1])}, got {mean.shape} and {rstd.shape}")


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, mean, rstd = layernorm_forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dw, db = layernorm_backward(grad_y, x, weight, mean, rstd)
        return dx, dw, db, None


@triton.jit
def _fwd_fused(X, Y, W, B, Mean, Rstd, stride_xr, stride_xd, stride_w, stride_b, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    Y += row * N
    X += row * stride_xr
    sums = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE).to(tl.int64)
        sums += tl.load(X + cols * stride_xd, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / N
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE).to(tl.int64)
        x = tl.load(X + cols * stride_xd, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        squares += x * x
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE).to(tl.int64)
        mask = cols < N
        w = tl.load(W + cols * stride_w, mask=mask).to(tl.float32)
        b = tl.load(B + cols * stride_b, mask=mask).to(tl.float32)
        x = tl.load(X + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, ((x - mean) * rstd * w + b).to(Y.dtype.element_ty), mask=mask)


@triton.jit
def _bwd_dx_fused(
    DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride_dyr, stride_dyd, stride_xr, stride_xd, stride_w, N,
    GROUP_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE_N).to(tl.int64)
    mask = cols < N
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    dw_ptrs = DW + lock_id * N + cols
    db_ptrs = DB + lock_id * N + cols
    x = tl.load(X + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(DY + row * stride_dyr + cols * stride_dyd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + cols * stride_w, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    dx = (wdy - (xhat * c1 + c2)) * rstd
    tl.store(DX + row * N + cols, dx.to(DX.dtype.element_ty), mask=mask)
    partial_dw = dy * xhat
    partial_db = dy
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    if tl.load(Count) == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(dw_ptrs, mask=mask)
        partial_db += tl.load(db_ptrs, mask=mask)
    tl.store(dw_ptrs, partial_dw, mask=mask)
    tl.store(db_ptrs, partial_db, mask=mask)
    tl.debug_barrier()  # all threads have stored before the lock is given back
    tl.atomic_xchg(Lock, 0)


@triton.jit
def _bwd_dwdb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr):
    cols = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    dw = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for i in range(0, M, BLOCK_SIZE_M):
        rows = i + tl.arange(0, BLOCK_SIZE_M).to(tl.int64)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        offs = rows[:, None] * N + cols[None, :]
        dw += tl.load(DW + offs, mask=mask, other=0.0)
        db += tl.load(DB + offs, mask=mask, other=0.0)
    tl.store(FINAL_DW + cols, tl.sum(dw, axis=0).to(FINAL_DW.dtype.element_ty), mask=cols < N)
    tl.store(FINAL_DB + cols, tl.sum(db, axis=0).to(FINAL_DB.dtype.element_ty), mask=cols < N)
