"""The backward pass of Triton's tutorial on fused attention: a preprocessing kernel, and one kernel whose programs each
make a tile of dk and dv and then a tile of dq, first on the diagonal in steps half as long, then off it.

The scale and log₂e are one factor of the logits, so that p is one exp2; lse is brought to base 2 when it is loaded.
"""

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

RCP_LN2 = 1.4426950408889634
LN2 = tl.constexpr(0.6931471824645996)
BLK_SLICE_FACTOR = 2


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    if {x.dtype for x in (k, v, o, grad_o)} != {q.dtype}:
        raise ValueError(f"expected {q.dtype} throughout, got {[x.dtype for x in (grad_o, q, k, v, o)]}")
    if k.shape != v.shape or k.shape[:-2] != q.shape[:-2] or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"expected k and v to fit q {q.shape}, got {k.shape} and {v.shape}")
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse to fit q {q.shape}, got {grad_o.shape}, {o.shape}, {lse.shape}")
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return dq, dk, dv
    q_, k_, v_, do, o_ = (x.reshape(-1, *x.shape[-2:]).contiguous() for x in (q, k, v, grad_o, o))
    batch, n_queries, d = q_.shape
    n_keys = k_.shape[1]
    head_dim = max(16, triton.next_power_of_2(d))
    row_bytes = head_dim * q.element_size()
    block1, block2 = (32, 64) if row_bytes <= 256 else (16, 32)
    pre_block, sm_scale = 64, 1.0 / math.sqrt(d)
    delta = torch.empty((batch, n_queries), dtype=torch.float32, device=q.device)
    _attn_bwd_preprocess[(triton.cdiv(n_queries, pre_block), batch)](
        o_, do, delta, n_queries, d, BLOCK_M=pre_block, HEAD_DIM=head_dim
    )
    grid = (triton.cdiv(max(n_queries, n_keys), block2), 1, batch)
    _attn_bwd[grid](
        q_, k_, v_, sm_scale, sm_scale * RCP_LN2, do, dq, dk, dv, lse.contiguous(), delta, n_queries, n_keys, d,
        BLOCK_M1=block1, BLOCK_N1=block2, BLOCK_M2=block2, BLOCK_N2=block1,
        BLK_SLICE_FACTOR=BLK_SLICE_FACTOR if block1 > 16 else 1, HEAD_DIM=head_dim, CAUSAL=is_causal,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return dq, dk, dv


@triton.jit
def _offsets(rows, D, HEAD_DIM: tl.constexpr):
    return rows.to(tl.int64)[:, None] * D + tl.arange(0, HEAD_DIM)[None, :]


@triton.jit
def _load(ptr, rows, n, D, HEAD_DIM: tl.constexpr):
    """Rows of a contiguous (n, D), zeros outside."""
    mask = (rows < n)[:, None] & (tl.arange(0, HEAD_DIM) < D)[None, :]
    return tl.load(ptr + _offsets(rows, D, HEAD_DIM), mask=mask, other=0.0)


@triton.jit
def _store(ptr, x, rows, n, D, HEAD_DIM: tl.constexpr):
    mask = (rows < n)[:, None] & (tl.arange(0, HEAD_DIM) < D)[None, :]
    tl.store(ptr + _offsets(rows, D, HEAD_DIM), x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _attn_bwd_preprocess(O, DO, Delta, N, D, BLOCK_M: tl.constexpr, HEAD_DIM: tl.constexpr):  # noqa: E741
    off_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    off_b = tl.program_id(1).to(tl.int64)
    o = _load(O + off_b * N * D, off_m, N, D, HEAD_DIM).to(tl.float32)
    do = _load(DO + off_b * N * D, off_m, N, D, HEAD_DIM).to(tl.float32)
    tl.store(Delta + off_b * N + off_m, tl.sum(o * do, axis=1), mask=off_m < N)


@triton.jit
def _attn_bwd_dkdv(
    dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D, start_n, start_m, num_steps,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, HEAD_DIM: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What num_steps blocks of queries from start_m on give the keys from start_n on."""
    offs_n = start_n + tl.arange(0, BLOCK_N1)
    tl.static_assert(BLOCK_N1 % BLOCK_M1 == 0)
    curr_m = start_m
    for _ in range(num_steps):
        offs_m = curr_m + tl.arange(0, BLOCK_M1)
        qT = tl.trans(_load(Q, offs_m, N_QUERIES, D, HEAD_DIM))
        m = tl.load(M + offs_m, mask=offs_m < N_QUERIES, other=float("inf")) / LN2
        pT = tl.math.exp2(tl.dot(k, qT) * qk_scale - m[None, :])
        if MASK:
            pT = tl.where(offs_m[None, :] >= offs_n[:, None], pT, 0.0)
        do = _load(DO, offs_m, N_QUERIES, D, HEAD_DIM)
        dv += tl.dot(pT.to(do.dtype), do)
        Di = tl.load(Delta + offs_m, mask=offs_m < N_QUERIES, other=0.0)
        dsT = pT * (tl.dot(v, tl.trans(do)) - Di[None, :])
        dk += tl.dot(dsT.to(k.dtype), tl.trans(qT))
        curr_m += BLOCK_M1
    return dk, dv


@triton.jit
def _attn_bwd_dq(
    dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, start_n, num_steps,
    BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr, HEAD_DIM: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """What num_steps blocks of keys from start_n on give the queries from start_m on."""
    offs_m = start_m + tl.arange(0, BLOCK_M2)
    tl.static_assert(BLOCK_M2 % BLOCK_N2 == 0)
    curr_n = start_n
    for _ in range(num_steps):
        offs_n = curr_n + tl.arange(0, BLOCK_N2)
        k = _load(K, offs_n, N_KEYS, D, HEAD_DIM)
        v = _load(V, offs_n, N_KEYS, D, HEAD_DIM)
        p = tl.math.exp2(tl.dot(q, k.T) * qk_scale - m)
        p = tl.where((offs_n < N_KEYS)[None, :], p, 0.0)
        if MASK:
            p = tl.where(offs_m[:, None] >= offs_n[None, :], p, 0.0)
        ds = (p * (tl.dot(do, v.T).to(tl.float32) - Di[:, None])).to(k.dtype)
        dq += tl.dot(ds, k)
        curr_n += BLOCK_N2
    return dq


@triton.jit
def _attn_bwd(
    Q, K, V, sm_scale, qk_scale, DO, DQ, DK, DV, M, Delta, N_QUERIES, N_KEYS, D,
    BLOCK_M1: tl.constexpr, BLOCK_N1: tl.constexpr, BLOCK_M2: tl.constexpr, BLOCK_N2: tl.constexpr,
    BLK_SLICE_FACTOR: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, 1, batches); all tensors are contiguous; M is lse, a natural logarithm."""
    bhid, pid = tl.program_id(2).to(tl.int64), tl.program_id(0)
    Q += bhid * N_QUERIES * D
    DO += bhid * N_QUERIES * D
    DQ += bhid * N_QUERIES * D
    K += bhid * N_KEYS * D
    V += bhid * N_KEYS * D
    DK += bhid * N_KEYS * D
    DV += bhid * N_KEYS * D
    M += bhid * N_QUERIES
    Delta += bhid * N_QUERIES

    start_n = pid * BLOCK_N1
    if start_n < N_KEYS:
        offs_n = start_n + tl.arange(0, BLOCK_N1)
        dv = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
        dk = tl.zeros([BLOCK_N1, HEAD_DIM], dtype=tl.float32)
        k = _load(K, offs_n, N_KEYS, D, HEAD_DIM)
        v = _load(V, offs_n, N_KEYS, D, HEAD_DIM)
        start_m = 0
        if CAUSAL:
            MASK_BLOCK_M1: tl.constexpr = BLOCK_M1 // BLK_SLICE_FACTOR
            num_steps = BLOCK_N1 // MASK_BLOCK_M1
            dk, dv = _attn_bwd_dkdv(
                dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D, start_n, start_n, num_steps,
                MASK_BLOCK_M1, BLOCK_N1, HEAD_DIM, MASK=True,
            )  # fmt: skip
            start_m = start_n + num_steps * MASK_BLOCK_M1
        dk, dv = _attn_bwd_dkdv(
            dk, dv, Q, k, v, DO, M, Delta, qk_scale, N_QUERIES, D,
            start_n, start_m, tl.cdiv(tl.maximum(N_QUERIES - start_m, 0), BLOCK_M1),
            BLOCK_M1, BLOCK_N1, HEAD_DIM, MASK=False,
        )  # fmt: skip
        _store(DV, dv, offs_n, N_KEYS, D, HEAD_DIM)
        _store(DK, dk * sm_scale, offs_n, N_KEYS, D, HEAD_DIM)

    start_m = pid * BLOCK_M2
    if start_m < N_QUERIES:
        offs_m = start_m + tl.arange(0, BLOCK_M2)
        q = _load(Q, offs_m, N_QUERIES, D, HEAD_DIM)
        do = _load(DO, offs_m, N_QUERIES, D, HEAD_DIM)
        m = tl.load(M + offs_m, mask=offs_m < N_QUERIES, other=float("inf"))[:, None] / LN2
        Di = tl.load(Delta + offs_m, mask=offs_m < N_QUERIES, other=0.0)
        dq = tl.zeros([BLOCK_M2, HEAD_DIM], dtype=tl.float32)
        end_n = N_KEYS
        if CAUSAL:
            MASK_BLOCK_N2: tl.constexpr = BLOCK_N2 // BLK_SLICE_FACTOR
            dq = _attn_bwd_dq(
                dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, start_m, BLOCK_M2 // MASK_BLOCK_N2,
                BLOCK_M2, MASK_BLOCK_N2, HEAD_DIM, MASK=True,
            )  # fmt: skip
            end_n = tl.minimum(start_m, N_KEYS)
        dq = _attn_bwd_dq(
            dq, q, K, V, do, m, Di, qk_scale, N_KEYS, D, start_m, 0, tl.cdiv(end_n, BLOCK_N2),
            BLOCK_M2, BLOCK_N2, HEAD_DIM, MASK=False,
        )  # fmt: skip
        _store(DQ, dq * sm_scale, offs_m, N_QUERIES, D, HEAD_DIM)
