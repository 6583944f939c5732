"""Attention in the style of FlexAttention: what is visible is said by a mask_mod, a jit function that the kernel takes,
and by a block mask, tables of the key blocks that each query block has to visit, whole ones and partial ones apart.

The tables are made by PyTorch, of the lengths alone: mask_mod is asked in partial blocks, never in whole ones.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

BLOCKS = ((256, 64), (512, 32), (1024, 16))  # up to so many bytes of a row: the block of queries and of keys


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    for name, x in {"key": k, "value": v}.items():
        if x.dtype != q.dtype:
            raise ValueError(f"Expected query and {name} to have one dtype, but got {q.dtype} and {x.dtype}.")
        if x.shape[:-2] != q.shape[:-2] or x.shape[-1] != q.shape[-1] or x.shape != k.shape:
            raise ValueError(f"Expected {name} to fit query {q.shape} and key {k.shape}, but got {x.shape}.")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    head_dim = max(16, triton.next_power_of_2(q.shape[-1]))
    block = next(block for limit, block in BLOCKS if head_dim * q.element_size() <= limit)
    partial, full = _block_mask(q.shape[-2], k.shape[-2], block, is_causal, q.device)
    _flex_kernel[partial[0].numel(), len(q_)](
        q_, k_, v_, o, lse, *partial, *full, *q_.stride(), *k_.stride(), *v_.stride(),
        q.shape[-2], k.shape[-2], q.shape[-1], partial[1].stride(0),
        SM_SCALE=q.shape[-1] ** -0.5, MASK_MOD=causal_mask if is_causal else no_mask, SCORE_MOD=identity,
        BLOCK=block, HEAD_DIM=head_dim, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o, lse


def _block_mask(n_queries: int, n_keys: int, block: int, is_causal: bool, device: torch.device):
    """(kv_num_blks, kv_idx) of the partial blocks, and of the whole ones."""
    q_blocks = torch.arange(triton.cdiv(n_queries, block), dtype=torch.int32, device=device)
    kv_idx = torch.arange(triton.cdiv(n_keys, block), dtype=torch.int32, device=device)
    n_whole = torch.full_like(q_blocks, n_keys // block)
    n_visited = torch.full_like(q_blocks, len(kv_idx))
    if is_causal:
        n_whole, n_visited = torch.minimum(q_blocks, n_whole), torch.minimum(q_blocks + 1, n_visited)
    whole_first = kv_idx.expand(len(q_blocks), -1).contiguous()
    rest = torch.minimum(n_whole[:, None] + kv_idx, n_visited[:, None] - 1).to(torch.int32)
    return (n_visited - n_whole, rest.contiguous()), (n_whole, whole_first)


@triton.jit
def no_mask(q_idx, kv_idx):
    return (q_idx >= 0) & (kv_idx >= 0)


@triton.jit
def causal_mask(q_idx, kv_idx):
    return q_idx >= kv_idx


@triton.jit
def identity(score, q_idx, kv_idx):
    return score


@triton.jit
def _forward_inner(
    q, k_ptr, v_ptr, acc, l_i, m_i, kv_indices, kv_num_blocks, offs_m,
    stride_kn, stride_kd, stride_vn, stride_vd, n_keys, d, scale2,
    MASK_MOD: tl.constexpr, SCORE_MOD: tl.constexpr, IS_FULL_BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Fold in the blocks of a table's row, whose number is the same for all of the program."""
    offs_d = tl.arange(0, HEAD_DIM).to(tl.int64)
    for i in range(0, kv_num_blocks):
        first = tl.load(kv_indices + i, eviction_policy="evict_last") * BLOCK
        offs_n = tl.multiple_of(first, BLOCK).to(tl.int64) + tl.arange(0, BLOCK)
        mask = (offs_d < d)[None, :] if IS_FULL_BLOCKS else (offs_n < n_keys)[:, None] & (offs_d < d)[None, :]
        k = tl.load(k_ptr + offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd, mask=mask, other=0.0)
        qk = tl.dot(q, tl.trans(k))
        post_mod_scores = SCORE_MOD(qk, offs_m[:, None], offs_n[None, :]) * scale2
        if not IS_FULL_BLOCKS:
            is_visible = MASK_MOD(offs_m[:, None], offs_n[None, :]) & (offs_n < n_keys)[None, :]
            post_mod_scores = tl.where(is_visible, post_mod_scores, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(post_mod_scores, 1))
        masked_out_rows = m_ij == float("-inf")
        m_ij_masked = tl.where(masked_out_rows, 0, m_ij)
        alpha = tl.math.exp2(m_i - m_ij_masked)
        p = tl.math.exp2(post_mod_scores - m_ij_masked[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd, mask=mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m_i = m_ij
    return acc, l_i, m_i


@triton.jit
def _flex_kernel(
    Q, K, V, OUT, LSE, KV_NUM_BLKS, KV_IDX, FULL_KV_NUM_BLKS, FULL_KV_IDX,
    stride_qz, stride_qm, stride_qk, stride_kz, stride_kn, stride_kd, stride_vz, stride_vn, stride_vd,
    Q_LEN, KV_LEN, d, stride_kv_idx,
    SM_SCALE: tl.constexpr, MASK_MOD: tl.constexpr, SCORE_MOD: tl.constexpr,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """Grid (query blocks, batches); OUT and LSE are contiguous."""
    q_block, off_z = tl.program_id(0), tl.program_id(1).to(tl.int64)
    offs_m = q_block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_d = tl.arange(0, HEAD_DIM).to(tl.int64)
    mask = (offs_m < Q_LEN)[:, None] & (offs_d < d)[None, :]
    q_offsets = off_z * stride_qz + offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qk
    q = tl.load(Q + q_offsets, mask=mask, other=0.0)
    m_i = tl.zeros([BLOCK], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK], dtype=tl.float32)
    acc = tl.zeros([BLOCK, HEAD_DIM], dtype=tl.float32)
    K += off_z * stride_kz
    V += off_z * stride_vz
    scale2: tl.constexpr = SM_SCALE * 1.4426950408889634  # log2(e)
    acc, l_i, m_i = _forward_inner(
        q, K, V, acc, l_i, m_i, KV_IDX + q_block * stride_kv_idx, tl.load(KV_NUM_BLKS + q_block), offs_m,
        stride_kn, stride_kd, stride_vn, stride_vd, KV_LEN, d, scale2,
        MASK_MOD, SCORE_MOD, IS_FULL_BLOCKS=False, BLOCK=BLOCK, HEAD_DIM=HEAD_DIM,
    )  # fmt: skip
    acc, l_i, m_i = _forward_inner(
        q, K, V, acc, l_i, m_i, FULL_KV_IDX + q_block * stride_kv_idx, tl.load(FULL_KV_NUM_BLKS + q_block), offs_m,
        stride_kn, stride_kd, stride_vn, stride_vd, KV_LEN, d, scale2,
        MASK_MOD, SCORE_MOD, IS_FULL_BLOCKS=True, BLOCK=BLOCK, HEAD_DIM=HEAD_DIM,
    )  # fmt: skip
    l_i = tl.where(l_i == 0.0, 1, l_i)
    rows = off_z * Q_LEN + offs_m
    tl.store(OUT + rows[:, None] * d + offs_d[None, :], (acc / l_i[:, None]).to(OUT.dtype.element_ty), mask=mask)
    tl.store(LSE + rows, (m_i + tl.math.log2(l_i)) / 1.4426950408889634, mask=offs_m < Q_LEN)
