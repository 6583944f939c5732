"""The kernel of `benchmark`: a plain causal FlashAttention-2 forward."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def flash_forward(q: Tensor, k: Tensor, v: Tensor, tile: int, scale: float) -> Tensor:
    """Causal attention of contiguous q, k, v (batch, n, d)."""
    o = torch.empty_like(q)
    batch, n, d = q.shape
    flash_kernel[(triton.cdiv(n, tile), batch)](q, k, v, o, n, k.shape[1], scale, D=d, TILE=tile)
    return o


@triton.jit
def flash_kernel(q_ptr, k_ptr, v_ptr, o_ptr, n_queries, n_keys, scale, D: tl.constexpr, TILE: tl.constexpr):
    queries = tl.program_id(0) * TILE + tl.arange(0, TILE)
    batch = tl.program_id(1)
    cols = tl.arange(0, D)
    q_mask = queries[:, None] < n_queries
    q_at = batch * n_queries * D + queries[:, None] * D + cols[None, :]
    q = tl.load(q_ptr + q_at, mask=q_mask, other=0.0)  # (TILE, D)
    o = tl.zeros((TILE, D), tl.float32)
    m = tl.full((TILE,), -float("inf"), tl.float32)
    l = tl.zeros((TILE,), tl.float32)  # noqa: E741
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        keys = start + tl.arange(0, TILE)
        k_at = batch * n_keys * D + keys[:, None] * D + cols[None, :]
        k = tl.load(k_ptr + k_at, mask=keys[:, None] < n_keys, other=0.0)
        v = tl.load(v_ptr + k_at, mask=keys[:, None] < n_keys, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where((queries[:, None] >= keys[None, :]) & (keys[None, :] < n_keys), s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        rescale = tl.exp(m - m_new)
        l = l * rescale + tl.sum(p, 1)  # noqa: E741
        o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    tl.store(o_ptr + q_at, (o / l[:, None]).to(o_ptr.dtype.element_ty), mask=q_mask)
