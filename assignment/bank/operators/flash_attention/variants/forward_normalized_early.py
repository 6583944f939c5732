"""FlashAttention-1's order: P is divided by the sum so far before its product with v; o is right after each tile."""

import math

import torch
import triton
import triton.language as tl

TILE_SIZE = 64


def flash_forward_triton(q, k, v, is_causal=False):
    check(q, k, v)
    (*batch, n_queries, d), n_keys = q.shape, k.shape[-2]
    n_batches = math.prod(batch)
    q, k, v = q.reshape(n_batches, n_queries, d), k.reshape(n_batches, n_keys, d), v.reshape(n_batches, n_keys, d)
    o = q.new_empty(n_batches, n_queries, d)
    lse = q.new_empty(n_batches, n_queries, dtype=torch.float32)
    if n_batches > 0:
        d_tile = max(16, triton.next_power_of_2(d))
        tile = TILE_SIZE if d_tile <= 128 else TILE_SIZE // 2
        attention_kernel[triton.cdiv(n_queries, tile), n_batches](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
            n_queries, n_keys, d, 1 / math.sqrt(d),
            IS_CAUSAL=is_causal, Q_TILE_SIZE=tile, K_TILE_SIZE=tile, D_TILE_SIZE=d_tile, num_stages=1,
        )  # fmt: skip
    return o.reshape(*batch, n_queries, d), lse.reshape(*batch, n_queries)


def check(q, k, v):
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        shapes = [tuple(x.shape) for x in (q, k, v)]
        raise ValueError(f"expected q (..., n_queries, d), k and v (..., n_keys, d), got {shapes}")


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(1).to(tl.int64)
    queries = (tl.program_id(0) * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE)).to(tl.int64)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    query_mask = queries < n_queries
    q_mask = query_mask[:, None] & (cols < d)[None, :]
    q_ptrs = q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)
    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), tl.float32)
    o = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), tl.float32)
    end = tl.minimum(n_keys, (tl.program_id(0) + 1) * Q_TILE_SIZE) if IS_CAUSAL else n_keys
    for first_key in range(0, end, K_TILE_SIZE):
        keys = (first_key + tl.arange(0, K_TILE_SIZE)).to(tl.int64)
        kv_mask = (keys < n_keys)[:, None] & (cols < d)[None, :]
        k_ptrs = k_ptr + batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd
        v_ptrs = v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        k = tl.load(k_ptrs, mask=kv_mask, other=0.0)
        v = tl.load(v_ptrs, mask=kv_mask, other=0.0)
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        before = row_sum * tl.exp(row_max - new_max)
        row_sum = before + tl.sum(p, axis=1)
        p = p / row_sum[:, None]
        o = o * (before / row_sum)[:, None] + tl.dot(p.to(v.dtype), v)
        row_max = new_max
    o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)
    tl.store(lse_ptr + batch * stride_lb + queries * stride_ln, row_max + tl.log(row_sum), mask=query_mask)
