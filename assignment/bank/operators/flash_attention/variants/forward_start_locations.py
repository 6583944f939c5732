"""Context attention in the style of LightLLM: requests of their own lengths lie end to end in (tokens, heads, d), and
tables say where each begins and how long it is. The grid is (requests, heads, query tiles).

The accumulator is normalised in each step, as in the first FlashAttention: nothing is left to do at the end.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse); o is a view of (tokens, heads, d)."""
    if not (q.dtype == k.dtype == v.dtype):
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if k.shape != v.shape or k.shape[:-2] != q.shape[:-2] or k.shape[-1] != q.shape[-1]:
        raise ValueError(f"expected shapes that fit, got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}")
    if q.numel() == 0:
        return torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    (heads, n_requests), d = _heads_and_requests(q), q.shape[-1]
    q_, k_, v_ = (_tokens_first(x, heads) for x in (q, k, v))
    o = torch.empty(q_.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((heads, len(q_)), dtype=torch.float32, device=q.device)
    lengths = [torch.full((n_requests,), x.shape[-2], dtype=torch.int32, device=q.device) for x in (q, k)]
    starts = [torch.arange(n_requests, dtype=torch.int64, device=q.device) * x.shape[-2] for x in (q, k)]
    block_dmodel = max(16, triton.next_power_of_2(d))
    block = 64 if block_dmodel * q.element_size() <= 256 else 32 if block_dmodel * q.element_size() <= 512 else 16
    grid = (n_requests, heads, triton.cdiv(q.shape[-2], block))
    _fwd_kernel_no_pad[grid](
        q_, k_, v_, d**-0.5, *starts, *lengths, o, lse,
        *q_.stride(), *k_.stride(), *v_.stride(), *o.stride(), lse.stride(0), d,
        IS_CAUSAL=is_causal, BLOCK_M=block, BLOCK_DMODEL=block_dmodel, BLOCK_N=block, num_warps=4, num_stages=1,
    )  # fmt: skip
    o = o.unflatten(0, (n_requests, -1)).transpose(1, 2).reshape(q.shape)
    return o, lse.unflatten(1, (n_requests, -1)).transpose(0, 1).reshape(q.shape[:-1])


def _heads_and_requests(x: Tensor) -> tuple[int, int]:
    heads = x.shape[-3] if x.ndim > 3 else 1
    return heads, x.shape[:-2].numel() // heads


def _tokens_first(x: Tensor, heads: int) -> Tensor:
    """(tokens of all requests, heads, d), of (..., heads, n, d)."""
    return x.reshape(-1, heads, *x.shape[-2:]).transpose(1, 2).flatten(0, 1)


@triton.jit
def _fwd_kernel_no_pad(
    Q, K, V, sm_scale, B_Start_Q, B_Start_K, B_Len_Q, B_Len_K, Out, Lse,
    stride_qbs, stride_qh, stride_qd, stride_kbs, stride_kh, stride_kd,
    stride_vbs, stride_vh, stride_vd, stride_obs, stride_oh, stride_od, stride_lh, head_dim,
    IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_DMODEL: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    cur_batch, start_m = tl.program_id(0), tl.program_id(2)
    cur_head = tl.program_id(1).to(tl.int64)
    q_start, k_start = tl.load(B_Start_Q + cur_batch), tl.load(B_Start_K + cur_batch)
    q_len, k_len = tl.load(B_Len_Q + cur_batch), tl.load(B_Len_K + cur_batch)
    block_start_loc = BLOCK_M * start_m
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_DMODEL).to(tl.int64)
    offs_m = block_start_loc + tl.arange(0, BLOCK_M)
    mask_d = offs_d < head_dim
    off_q = (q_start + offs_m[:, None]) * stride_qbs + cur_head * stride_qh + offs_d[None, :] * stride_qd
    q = tl.load(Q + off_q, mask=(offs_m[:, None] < q_len) & mask_d[None, :], other=0.0)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_DMODEL], dtype=tl.float32)
    block_mask = tl.where(block_start_loc < q_len, 1, 0)
    end = tl.minimum(block_start_loc + BLOCK_M, k_len) if IS_CAUSAL else k_len
    for start_n in range(0, block_mask * end, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        rows = k_start + start_n + offs_n
        mask_n = start_n + offs_n < k_len
        off_k = rows[None, :] * stride_kbs + cur_head * stride_kh + offs_d[:, None] * stride_kd
        k = tl.load(K + off_k, mask=mask_n[None, :] & mask_d[:, None], other=0.0)
        qk = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        qk = tl.dot(q, k, qk)
        qk *= sm_scale
        qk = tl.where(mask_n[None, :], qk, float("-inf"))
        if IS_CAUSAL:
            qk = tl.where(offs_m[:, None] >= (start_n + offs_n[None, :]), qk, float("-inf"))
        m_ij = tl.max(qk, 1)
        m_i_new = tl.maximum(m_i, m_ij)
        p = tl.exp(qk - m_i_new[:, None])
        alpha = tl.exp(m_i - m_i_new)
        l_i_new = alpha * l_i + tl.sum(p, 1)
        acc_scale = l_i / l_i_new * alpha
        acc = acc * acc_scale[:, None]
        off_v = rows[:, None] * stride_vbs + cur_head * stride_vh + offs_d[None, :] * stride_vd
        v = tl.load(V + off_v, mask=mask_n[:, None] & mask_d[None, :], other=0.0)
        acc += tl.dot(p.to(v.dtype), v) / l_i_new[:, None]
        l_i = l_i_new
        m_i = m_i_new
    off_o = (q_start + offs_m[:, None]) * stride_obs + cur_head * stride_oh + offs_d[None, :] * stride_od
    tl.store(Out + off_o, acc, mask=(offs_m[:, None] < q_len) & mask_d[None, :])
    tl.store(Lse + cur_head * stride_lh + q_start + offs_m, m_i + tl.log(l_i), mask=offs_m < q_len)
