"""Attention in the style of sglang's extend kernel: the older keys are a prefix in a cache, gathered by a table of page
indices, the newer ones follow in order; a program folds in the first, then the second.

d is split as 96 = 64 + 32 is: BLOCK_DMODEL, a power of two, and BLOCK_DPE for the rest, each with a product of its own.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

PREFIX_UNIT = 32  # keys


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    batch, (n_queries, d), n_keys = q.shape[:-2], q.shape[-2:], k.shape[-2]
    if k.shape != (*batch, n_keys, d) or v.shape != k.shape:
        raise ValueError(f"expected k and v {[*batch, n_keys, d]}, got {list(k.shape)} and {list(v.shape)}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"expected k and v in {q.dtype}, got {k.dtype} and {v.dtype}")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    n_prefix = n_keys // 2 // PREFIX_UNIT * PREFIX_UNIT
    kv_indices = torch.arange(max(n_prefix, 1), dtype=torch.int64, device=q.device)
    block_dmodel, block_dpe, block_dv = _split_head(d)
    block_m, block_n = (64, 32) if block_dv * q.element_size() <= 256 else (32, 16)
    _fwd_kernel[len(q_), triton.cdiv(n_queries, block_m)](
        q_, k_, v_, o, lse, kv_indices,
        *q_.stride(), *k_.stride(), *v_.stride(), n_queries, n_keys, n_prefix, d**-0.5,
        logit_cap=0.0, IS_CAUSAL=is_causal, Lq=d, BLOCK_DMODEL=block_dmodel, BLOCK_DPE=block_dpe, BLOCK_DV=block_dv,
        BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o, lse


def _split_head(d: int) -> tuple[int, int, int]:
    """BLOCK_DMODEL, BLOCK_DPE (0 where the first is enough) and BLOCK_DV."""
    whole = max(16, triton.next_power_of_2(d))
    if d <= whole // 2 + whole // 4 and whole >= 32 and d > 16:
        return whole // 2, max(16, triton.next_power_of_2(d - whole // 2)), whole
    return whole, 0, whole


@triton.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _logits(q, qpe, k, kpe, sm_scale, logit_cap: tl.constexpr, BLOCK_DPE: tl.constexpr):
    qk = tl.dot(q, k, out_dtype=tl.float32)
    if BLOCK_DPE > 0:
        qk += tl.dot(qpe, kpe)
    qk *= sm_scale
    if logit_cap > 0:
        qk = logit_cap * tanh(qk / logit_cap)
    return qk


@triton.jit
def _fold(qk, v, acc, deno, e_max):
    n_e_max = tl.maximum(tl.max(qk, 1), e_max)
    re_scale = tl.exp(e_max - n_e_max)
    p = tl.exp(qk - n_e_max[:, None])
    deno = deno * re_scale + tl.sum(p, 1)
    acc = acc * re_scale[:, None] + tl.dot(p.to(v.dtype), v)
    return acc, deno, n_e_max


@triton.jit
def _fwd_kernel(
    Q, K, V, O, Lse, kv_indices,  # noqa: E741
    stride_qb, stride_qbs, stride_qd, stride_kb, stride_kbs, stride_kd, stride_vb, stride_vbs, stride_vd,
    n_queries, n_keys, n_prefix, sm_scale,
    logit_cap: tl.constexpr, IS_CAUSAL: tl.constexpr, Lq: tl.constexpr,
    BLOCK_DMODEL: tl.constexpr, BLOCK_DPE: tl.constexpr, BLOCK_DV: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid (batches, query tiles); n_prefix is a multiple of BLOCK_N, kv_indices (n_prefix,) int64."""
    tl.static_assert(Lq <= BLOCK_DMODEL + BLOCK_DPE)
    cur_seq = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK_M
    offs_m = first + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_DMODEL).to(tl.int64)
    offs_dv = tl.arange(0, BLOCK_DV).to(tl.int64)
    mask_m, mask_d, mask_dv = offs_m < n_queries, offs_d < Lq, offs_dv < Lq
    Q += cur_seq * stride_qb + offs_m[:, None] * stride_qbs
    K += cur_seq * stride_kb
    V += cur_seq * stride_vb
    q = tl.load(Q + offs_d[None, :] * stride_qd, mask=mask_m[:, None] & mask_d[None, :], other=0.0)
    qpe = q
    if BLOCK_DPE > 0:
        offs_dpe = BLOCK_DMODEL + tl.arange(0, BLOCK_DPE).to(tl.int64)
        mask_dpe = offs_dpe < Lq
        qpe = tl.load(Q + offs_dpe[None, :] * stride_qd, mask=mask_m[:, None] & mask_dpe[None, :], other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_DV], dtype=tl.float32)
    deno = tl.zeros([BLOCK_M], dtype=tl.float32)
    e_max = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    end = tl.minimum(n_keys, first + BLOCK_M) if IS_CAUSAL else n_keys

    for start_n in range(0, tl.minimum(end, n_prefix), BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        offs_n = start_n + tl.arange(0, BLOCK_N)
        offs_kv_loc = tl.load(kv_indices + offs_n)
        k = tl.load(
            K + offs_kv_loc[None, :] * stride_kbs + offs_d[:, None] * stride_kd, mask=mask_d[:, None], other=0.0
        )
        kpe = k
        if BLOCK_DPE > 0:
            offs_kpe = offs_kv_loc[None, :] * stride_kbs + offs_dpe[:, None] * stride_kd
            kpe = tl.load(K + offs_kpe, mask=mask_dpe[:, None], other=0.0)
        qk = _logits(q, qpe, k, kpe, sm_scale, logit_cap, BLOCK_DPE)
        if IS_CAUSAL:
            qk = tl.where(offs_n[None, :] <= offs_m[:, None], qk, float("-inf"))
        offs_v = offs_kv_loc[:, None] * stride_vbs + offs_dv[None, :] * stride_vd
        acc, deno, e_max = _fold(qk, tl.load(V + offs_v, mask=mask_dv[None, :], other=0.0), acc, deno, e_max)

    for start_n in range(n_prefix, end, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        offs_n = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        mask_n = offs_n < end
        offs_k = offs_n[None, :] * stride_kbs + offs_d[:, None] * stride_kd
        k = tl.load(K + offs_k, mask=mask_n[None, :] & mask_d[:, None], other=0.0)
        kpe = k
        if BLOCK_DPE > 0:
            offs_kpe = offs_n[None, :] * stride_kbs + offs_dpe[:, None] * stride_kd
            kpe = tl.load(K + offs_kpe, mask=mask_n[None, :] & mask_dpe[:, None], other=0.0)
        qk = _logits(q, qpe, k, kpe, sm_scale, logit_cap, BLOCK_DPE)
        final_mask = mask_m[:, None] & mask_n[None, :]
        if IS_CAUSAL:
            final_mask &= offs_n[None, :] <= offs_m[:, None]
        qk = tl.where(final_mask | (~mask_m)[:, None], qk, float("-inf"))
        offs_v = offs_n[:, None] * stride_vbs + offs_dv[None, :] * stride_vd
        v = tl.load(V + offs_v, mask=mask_n[:, None] & mask_dv[None, :], other=0.0)
        acc, deno, e_max = _fold(qk, v, acc, deno, e_max)

    rows = cur_seq * n_queries + offs_m
    tl.store(O + rows[:, None] * Lq + offs_dv[None, :], acc / deno[:, None], mask=mask_m[:, None] & mask_dv[None, :])
    tl.store(Lse + rows, e_max + tl.log(deno), mask=mask_m)
