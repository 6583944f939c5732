"""FlashAttention-2 forward in one Triton kernel: a program a batch and tile of queries."""

import math

import torch
import triton
import triton.language as tl


def flash_forward_triton(q, k, v, is_causal=False):
    _check(q, k, v)
    batch = q.shape[:-2]
    n_queries, d = q.shape[-2:]
    n_keys = k.shape[-2]
    scale = 1 / math.sqrt(d)
    n_batches = math.prod(batch)
    q = q.reshape(n_batches, n_queries, d)
    k = k.reshape(n_batches, n_keys, d)
    v = v.reshape(n_batches, n_keys, d)
    o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
    d_tile_size = max(16, triton.next_power_of_2(d))
    tile_size = min(64, 4096 // d_tile_size)
    grid = (n_batches, triton.cdiv(n_queries, tile_size))
    if n_batches > 0:
        _forward_kernel[grid](
            q, k, v, o, lse,
            q.stride(0), q.stride(1), q.stride(2),
            k.stride(0), k.stride(1), k.stride(2),
            v.stride(0), v.stride(1), v.stride(2),
            o.stride(0), o.stride(1), o.stride(2),
            lse.stride(0), lse.stride(1),
            n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=tile_size, K_TILE_SIZE=tile_size, D_TILE_SIZE=d_tile_size,
            num_stages=1,
        )  # fmt: skip
    return o.reshape(*batch, n_queries, d), lse.reshape(*batch, n_queries)


def _check(q, k, v):
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}"
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q and k of one d, got {shapes}")
    if q.shape[-1] != v.shape[-1]:
        raise ValueError(f"expected q and v of one d, got {shapes}")
    if q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"expected q and k of one batch, got {shapes}")
    if q.shape[:-2] != v.shape[:-2]:
        raise ValueError(f"expected q and v of one batch, got {shapes}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected k and v of one length, got {shapes}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")


@triton.jit
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od,
    stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    first_query = tl.program_id(1) * Q_TILE_SIZE
    queries = (first_query + tl.arange(0, Q_TILE_SIZE)).to(tl.int64)
    query_mask = queries < n_queries
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    col_mask = cols < d
    q_ptrs = q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd
    q_mask = query_mask[:, None] & col_mask[None, :]
    q = tl.load(q_ptrs, mask=q_mask, other=0.0)

    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)
    acc = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    end = n_keys
    if IS_CAUSAL:
        end = tl.minimum(n_keys, first_query + Q_TILE_SIZE)
    for first_key in range(0, end, K_TILE_SIZE):
        keys = (first_key + tl.arange(0, K_TILE_SIZE)).to(tl.int64)
        key_mask = keys < n_keys
        k_ptrs = k_ptr + batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd
        k_mask = key_mask[:, None] & col_mask[None, :]
        k = tl.load(k_ptrs, mask=k_mask, other=0.0)
        v_ptrs = v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v_mask = key_mask[:, None] & col_mask[None, :]
        v = tl.load(v_ptrs, mask=v_mask, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        visible = key_mask[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, s, float("-inf"))
        tile_max = tl.max(s, axis=1)
        new_max = tl.maximum(row_max, tile_max)
        p = tl.exp(s - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        row_sum = row_sum * rescale
        row_sum += tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        acc += tl.dot(p.to(v.dtype), v)
        row_max = new_max

    o = acc / row_sum[:, None]
    o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
    o_mask = query_mask[:, None] & col_mask[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=o_mask)
    lse = row_max + tl.log(row_sum)
    lse_ptrs = lse_ptr + batch * stride_lb + queries * stride_ln
    tl.store(lse_ptrs, lse, mask=query_mask)
