"""Decoding attention in the style of vLLM and sglang: stage 1 splits the keys and writes normalised partial outputs and
their logsumexp to mid_o and mid_lse, stage 2 merges them a query at a time. Splits that are empty are neither written
nor read. Few queries get many splits; as many as fill the GPU by themselves get one.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

_MIN_BLOCK_KV = 32


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    for x in (k, v):
        if x.shape[:-2] != q.shape[:-2] or x.shape[-1] != q.shape[-1] or x.dtype != q.dtype:
            raise ValueError(f"expected {q.dtype}, batch and d as in q {q.shape}, got {x.dtype} {x.shape}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {k.shape} and {v.shape}")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    (batch, n_queries, d), n_keys = q_.shape, k_.shape[1]
    block_h = 16 if n_queries <= 16 else 64 if d * q.element_size() <= 256 else 32
    max_kv_splits = 8 if n_queries <= 16 else 1
    mid_o = torch.empty((batch, n_queries, max_kv_splits, d), dtype=torch.float32, device=q.device)
    mid_lse = torch.empty((batch, n_queries, max_kv_splits), dtype=torch.float32, device=q.device)
    block_dmodel = max(16, triton.next_power_of_2(d))
    _fwd_grouped_kernel_stage1[batch, triton.cdiv(n_queries, block_h), max_kv_splits](
        q_, k_, v_, d**-0.5, mid_o, mid_lse,
        *q_.stride(), *k_.stride(), *v_.stride(), *mid_o.stride()[:3], n_queries, n_keys,
        IS_CAUSAL=is_causal, MAX_KV_SPLITS=max_kv_splits, MIN_BLOCK_KV=_MIN_BLOCK_KV,
        BLOCK_DMODEL=block_dmodel, BLOCK_N=32, BLOCK_H=block_h, Lk=d, num_warps=4, num_stages=1,
    )  # fmt: skip
    _fwd_kernel_stage2[batch, n_queries](
        mid_o, mid_lse, o, lse, *mid_o.stride()[:3], n_queries, n_keys,
        IS_CAUSAL=is_causal, MAX_KV_SPLITS=max_kv_splits, MIN_BLOCK_KV=_MIN_BLOCK_KV,
        BLOCK_DV=block_dmodel, Lv=d, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o, lse


@triton.jit
def _range_of(split, n_keys, MAX_KV_SPLITS: tl.constexpr, MIN_BLOCK_KV: tl.constexpr):
    """Where the split's keys start and end: nowhere for the last ones of few keys."""
    kv_len_per_split = tl.cdiv(tl.cdiv(n_keys, MAX_KV_SPLITS), MIN_BLOCK_KV) * MIN_BLOCK_KV
    split_kv_start = kv_len_per_split * split
    return split_kv_start, tl.minimum(split_kv_start + kv_len_per_split, n_keys)


@triton.jit
def _fwd_grouped_kernel_stage1(
    Q, K_Buffer, V_Buffer, sm_scale, Att_Out, Att_Lse,
    stride_qbs, stride_qh, stride_qd, stride_kbs, stride_kn, stride_kd, stride_vbs, stride_vn, stride_vd,
    stride_mid_ob, stride_mid_oh, stride_mid_os, n_queries, n_keys,
    IS_CAUSAL: tl.constexpr, MAX_KV_SPLITS: tl.constexpr, MIN_BLOCK_KV: tl.constexpr,
    BLOCK_DMODEL: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, Lk: tl.constexpr,
):  # fmt: skip
    """Grid (batch, groups of BLOCK_H queries, splits)."""
    cur_batch, split_kv_id = tl.program_id(0).to(tl.int64), tl.program_id(2)
    cur_head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H).to(tl.int64)
    mask_h = cur_head < n_queries
    offs_d = tl.arange(0, BLOCK_DMODEL).to(tl.int64)
    mask_d = offs_d < Lk
    split_kv_start, split_kv_end = _range_of(split_kv_id, n_keys, MAX_KV_SPLITS, MIN_BLOCK_KV)
    if IS_CAUSAL:
        split_kv_end = tl.minimum(split_kv_end, (tl.program_id(1) + 1) * BLOCK_H)
    e_max = tl.zeros([BLOCK_H], dtype=tl.float32) - float("inf")
    e_sum = tl.zeros([BLOCK_H], dtype=tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_DMODEL], dtype=tl.float32)
    if split_kv_end > split_kv_start:
        offs_q = cur_batch * stride_qbs + cur_head[:, None] * stride_qh + offs_d[None, :] * stride_qd
        q = tl.load(Q + offs_q, mask=mask_h[:, None] & mask_d[None, :], other=0.0)
        for start_n in range(split_kv_start, split_kv_end, BLOCK_N):
            offs_n = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
            offs_buf_k = cur_batch * stride_kbs + offs_n[None, :] * stride_kn + offs_d[:, None] * stride_kd
            k = tl.load(K_Buffer + offs_buf_k, mask=(offs_n[None, :] < split_kv_end) & mask_d[:, None], other=0.0)
            qk = tl.dot(q, k.to(q.dtype)) * sm_scale
            visible = offs_n[None, :] < split_kv_end
            if IS_CAUSAL:
                visible &= offs_n[None, :] <= cur_head[:, None]
            qk = tl.where(visible, qk, float("-inf"))
            offs_buf_v = cur_batch * stride_vbs + offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
            v = tl.load(V_Buffer + offs_buf_v, mask=(offs_n[:, None] < split_kv_end) & mask_d[None, :], other=0.0)
            n_e_max = tl.maximum(tl.max(qk, 1), e_max)
            re_scale = tl.exp(e_max - n_e_max)
            p = tl.exp(qk - n_e_max[:, None])
            acc *= re_scale[:, None]
            acc += tl.dot(p.to(v.dtype), v)
            e_sum = e_sum * re_scale + tl.sum(p, 1)
            e_max = n_e_max
        if IS_CAUSAL:
            mask_h &= cur_head >= split_kv_start  # the others see nothing of this split, and stage 2 knows it
        offs_mid_o = cur_batch * stride_mid_ob + cur_head * stride_mid_oh + split_kv_id * stride_mid_os
        mask_o = mask_h[:, None] & mask_d[None, :]
        tl.store(Att_Out + offs_mid_o[:, None] + offs_d[None, :], acc / e_sum[:, None], mask=mask_o)
        tl.store(Att_Lse + offs_mid_o // Lk, e_max + tl.log(e_sum), mask=mask_h)


@triton.jit
def _fwd_kernel_stage2(
    Mid_O, Mid_O_1, O, Lse, stride_mid_ob, stride_mid_oh, stride_mid_os, n_queries, n_keys,  # noqa: E741
    IS_CAUSAL: tl.constexpr, MAX_KV_SPLITS: tl.constexpr, MIN_BLOCK_KV: tl.constexpr,
    BLOCK_DV: tl.constexpr, Lv: tl.constexpr,
):  # fmt: skip
    """Grid (batch, queries); Mid_O is contiguous, so that its offsets divided by Lv are those of Mid_O_1."""
    cur_batch, cur_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offs_d = tl.arange(0, BLOCK_DV)
    mask_d = offs_d < Lv
    seen = tl.minimum(n_keys, cur_head + 1) if IS_CAUSAL else n_keys
    e_sum = 0.0
    e_max = -float("inf")
    acc = tl.zeros([BLOCK_DV], dtype=tl.float32)
    offs_v = cur_batch * stride_mid_ob + cur_head * stride_mid_oh
    for split_kv_id in range(0, MAX_KV_SPLITS):
        split_kv_start, split_kv_end = _range_of(split_kv_id, n_keys, MAX_KV_SPLITS, MIN_BLOCK_KV)
        if tl.minimum(split_kv_end, seen) > split_kv_start:
            tv = tl.load(Mid_O + offs_v + split_kv_id * stride_mid_os + offs_d, mask=mask_d, other=0.0)
            tlogic = tl.load(Mid_O_1 + offs_v // Lv + split_kv_id)
            n_e_max = tl.maximum(tlogic, e_max)
            old_scale = tl.exp(e_max - n_e_max)
            acc *= old_scale
            exp_logic = tl.exp(tlogic - n_e_max)
            acc += exp_logic * tv
            e_sum = e_sum * old_scale + exp_logic
            e_max = n_e_max
    row = cur_batch * n_queries + cur_head
    tl.store(O + row * Lv + offs_d, acc / e_sum, mask=mask_d)
    tl.store(Lse + row, e_max + tl.log(e_sum))
