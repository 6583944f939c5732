"""No infinities: the running maximum starts at the least float32, hidden keys get weight zero by a select, sums stay
above zero and o is multiplied by their reciprocals. Both q and k are scaled by d^(−1/4), in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST = tl.constexpr(torch.finfo(torch.float32).min)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention."""
    shapes = [tuple(x.shape) for x in (q, k, v)]
    if min(map(len, shapes)) < 2:
        raise ValueError(f"expected matrices, got shapes {shapes}")
    (*batch, n_queries, d), (*k_batch, n_keys, k_d), (*v_batch, n_values, v_d) = shapes
    if not d == k_d == v_d or not batch == k_batch == v_batch or n_keys != n_values:
        raise ValueError(f"expected q (*batch, n, d), k and v (*batch, m, d), got {shapes}")
    dtypes = {x.dtype for x in (q, k, v)}
    if len(dtypes) != 1:
        raise ValueError(f"expected q, k and v in one dtype, got {dtypes}")
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty_like(q[..., 0], dtype=torch.float32, memory_format=torch.contiguous_format)
    if q.numel() > 0:
        # The last batch dimension is the "head": it has a stride of its own, and so has what is before it.
        n_heads = batch[-1] if batch else 1
        q, k, v = (x.reshape(-1, n_heads, *x.shape[-2:]) for x in (q, k, v))
        tile = 32 if d > 64 else 64
        grid = (q.shape[0] * n_heads * triton.cdiv(n_queries, tile),)
        kernel[grid](
            q, k, v, o, lse,
            *q.stride(), *k.stride(), *v.stride(),
            n_heads, n_queries, n_keys, d, d**-0.25,
            IS_CAUSAL=is_causal, TILE=tile, D_TILE=max(16, triton.next_power_of_2(d)), num_warps=4, num_stages=1,
        )  # fmt: skip
    return o, lse


@triton.jit
def kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qn, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    n_heads, n_queries, n_keys, d, root_scale,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · heads · query tiles,); o and lse are contiguous. root_scale² = 1/√d."""
    n_tiles = tl.cdiv(n_queries, TILE)
    tile, sequence = tl.program_id(0) % n_tiles, (tl.program_id(0) // n_tiles).to(tl.int64)
    batch, head = sequence // n_heads, sequence % n_heads
    span = tl.arange(0, TILE).to(tl.int64)
    cols = tl.arange(0, D_TILE).to(tl.int64)
    col_mask = cols < d
    queries = tile * TILE + span
    mask = (queries < n_queries)[:, None] & col_mask[None, :]
    q_ptrs = q_ptr + batch * stride_qb + head * stride_qh + queries[:, None] * stride_qn + cols[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=mask, other=0.0).to(tl.float32) * root_scale  # (Q, D)
    k_ptr += batch * stride_kb + head * stride_kh
    v_ptr += batch * stride_vb + head * stride_vh

    largest = tl.full((TILE,), LEAST, tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    o = tl.zeros((TILE, D_TILE), tl.float32)
    start = tl.zeros((), tl.int32)
    end = tl.minimum(n_keys, (tile + 1) * TILE) if IS_CAUSAL else n_keys
    while start < end:
        keys = start + span
        k_ptrs = k_ptr + cols[:, None] * stride_kd + keys[None, :] * stride_kn
        k = tl.load(k_ptrs, mask=col_mask[:, None] & (keys < n_keys)[None, :], other=0.0)  # (D, K)
        s = tl.dot(q, k.to(tl.float32) * root_scale)  # (Q, K)
        visible = (keys < n_keys)[None, :] & (queries < n_queries)[:, None]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        new_largest = tl.maximum(largest, tl.max(tl.where(visible, s, LEAST), axis=1))
        p = tl.where(visible, tl.exp(s - new_largest[:, None]), 0.0)
        shrink = tl.exp(largest - new_largest)
        v_ptrs = v_ptr + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v = tl.load(v_ptrs, mask=(keys < n_keys)[:, None] & col_mask[None, :], other=0.0)  # (K, D)
        o = tl.dot(p.to(v.dtype), v, acc=o * shrink[:, None])
        total = total * shrink + tl.sum(p, axis=1)
        largest = new_largest
        start += TILE

    total = tl.maximum(total, TINY)  # the rows past the last one saw no key
    o = o * (1.0 / total)[:, None]
    rows = sequence * n_queries + queries
    tl.store(o_ptr + rows[:, None] * d + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=mask)
    tl.store(lse_ptr + rows, largest + tl.log(total), mask=queries < n_queries)
