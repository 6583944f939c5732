"""FlashAttention-2 backward in Triton: a program a batch and tile of keys, which adds to grad_q atomically."""

import math

import torch
import triton
import triton.language as tl


def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    _check(grad_o, q, k, v, o, lse)
    batch = q.shape[:-2]
    n_queries, d = q.shape[-2:]
    n_keys = k.shape[-2]
    scale = 1 / math.sqrt(d)
    n_batches = math.prod(batch)
    grad_o = grad_o.reshape(n_batches, n_queries, d)
    q = q.reshape(n_batches, n_queries, d)
    k = k.reshape(n_batches, n_keys, d)
    v = v.reshape(n_batches, n_keys, d)
    o = o.reshape(n_batches, n_queries, d)
    lse = lse.reshape(n_batches, n_queries)
    delta = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
    grad_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device)
    grad_k = torch.empty((n_batches, n_keys, d), dtype=k.dtype, device=k.device)
    grad_v = torch.empty((n_batches, n_keys, d), dtype=v.dtype, device=v.device)
    d_tile_size = max(16, triton.next_power_of_2(d))
    tile_size = min(64, 4096 // d_tile_size)
    query_grid = (n_batches, triton.cdiv(n_queries, tile_size))
    key_grid = (n_batches, triton.cdiv(n_keys, tile_size))
    if n_batches > 0:
        _delta_kernel[query_grid](
            grad_o, o, delta,
            grad_o.stride(0), grad_o.stride(1), grad_o.stride(2), o.stride(0), o.stride(1), o.stride(2),
            delta.stride(0), delta.stride(1),
            n_queries, d,
            Q_TILE_SIZE=tile_size, D_TILE_SIZE=d_tile_size,
        )  # fmt: skip
        _backward_kernel[key_grid](
            grad_o, q, k, v, lse, delta, grad_q, grad_k, grad_v,
            grad_o.stride(0), grad_o.stride(1), grad_o.stride(2),
            q.stride(0), q.stride(1), q.stride(2),
            k.stride(0), k.stride(1), k.stride(2),
            v.stride(0), v.stride(1), v.stride(2),
            lse.stride(0), lse.stride(1), delta.stride(0), delta.stride(1),
            grad_q.stride(0), grad_q.stride(1), grad_q.stride(2),
            grad_k.stride(0), grad_k.stride(1), grad_k.stride(2),
            grad_v.stride(0), grad_v.stride(1), grad_v.stride(2),
            n_queries, n_keys, d, scale,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=tile_size, K_TILE_SIZE=tile_size, D_TILE_SIZE=d_tile_size,
            num_stages=1,
        )  # fmt: skip
    grad_q = grad_q.to(q.dtype).reshape(*batch, n_queries, d)
    grad_k = grad_k.reshape(*batch, n_keys, d)
    grad_v = grad_v.reshape(*batch, n_keys, d)
    return grad_q, grad_k, grad_v


def _check(grad_o, q, k, v, o, lse):
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
    if not grad_o.shape == o.shape == q.shape:
        raise ValueError(f"expected grad_o and o like {shapes}, got {tuple(grad_o.shape)} and {tuple(o.shape)}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse of shape {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")


@triton.jit
def _delta_kernel(
    grad_o_ptr, o_ptr, delta_ptr,
    stride_gob, stride_gon, stride_god, stride_ob, stride_on, stride_od, stride_db, stride_dn,
    n_queries, d,
    Q_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    rows = (tl.program_id(1) * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE)).to(tl.int64)
    row_mask = rows < n_queries
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    o_mask = row_mask[:, None] & (cols < d)[None, :]
    go_ptrs = grad_o_ptr + batch * stride_gob + rows[:, None] * stride_gon + cols[None, :] * stride_god
    go = tl.load(go_ptrs, mask=o_mask, other=0.0).to(tl.float32)
    o_ptrs = o_ptr + batch * stride_ob + rows[:, None] * stride_on + cols[None, :] * stride_od
    o = tl.load(o_ptrs, mask=o_mask, other=0.0).to(tl.float32)
    row_delta = tl.sum(go * o, axis=1)
    row_delta_ptrs = delta_ptr + batch * stride_db + rows * stride_dn
    tl.store(row_delta_ptrs, row_delta, mask=row_mask)


@triton.jit
def _backward_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_lb, stride_ln, stride_db, stride_dn,
    stride_gqb, stride_gqn, stride_gqd,
    stride_gkb, stride_gkn, stride_gkd,
    stride_gvb, stride_gvn, stride_gvd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64)
    first_key = tl.program_id(1) * K_TILE_SIZE
    keys = (first_key + tl.arange(0, K_TILE_SIZE)).to(tl.int64)
    key_mask = keys < n_keys
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    col_mask = cols < d
    k_mask = key_mask[:, None] & col_mask[None, :]
    k_ptrs = k_ptr + batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd
    k = tl.load(k_ptrs, mask=k_mask, other=0.0)
    v_ptrs = v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd
    v = tl.load(v_ptrs, mask=k_mask, other=0.0)
    grad_k = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    grad_v = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    start = 0
    if IS_CAUSAL:
        start = first_key // Q_TILE_SIZE * Q_TILE_SIZE
    for first_query in range(start, n_queries, Q_TILE_SIZE):
        queries = (first_query + tl.arange(0, Q_TILE_SIZE)).to(tl.int64)
        query_mask = queries < n_queries
        q_mask = query_mask[:, None] & col_mask[None, :]
        q_ptrs = q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd
        q = tl.load(q_ptrs, mask=q_mask, other=0.0)
        grad_o_ptrs = grad_o_ptr + batch * stride_gob + queries[:, None] * stride_gon + cols[None, :] * stride_god
        grad_o = tl.load(grad_o_ptrs, mask=q_mask, other=0.0)
        lse_ptrs = lse_ptr + batch * stride_lb + queries * stride_ln
        lse = tl.load(lse_ptrs, mask=query_mask, other=0.0)
        delta_ptrs = delta_ptr + batch * stride_db + queries * stride_dn
        delta = tl.load(delta_ptrs, mask=query_mask, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        visible = query_mask[:, None] & key_mask[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, s, float("-inf"))
        p = tl.exp(s - lse[:, None])
        grad_v += tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o)
        grad_p = tl.dot(grad_o, tl.trans(v))
        grad_s = p * (grad_p - delta[:, None])
        grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale
        grad_q = tl.dot(grad_s.to(k.dtype), k) * scale
        grad_q_ptrs = grad_q_ptr + batch * stride_gqb + queries[:, None] * stride_gqn + cols[None, :] * stride_gqd
        tl.atomic_add(grad_q_ptrs, grad_q, mask=q_mask)
    grad_k_ptrs = grad_k_ptr + batch * stride_gkb + keys[:, None] * stride_gkn + cols[None, :] * stride_gkd
    tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dtype.element_ty), mask=k_mask)
    grad_v_ptrs = grad_v_ptr + batch * stride_gvb + keys[:, None] * stride_gvn + cols[None, :] * stride_gvd
    tl.store(grad_v_ptrs, grad_v.to(grad_v_ptr.dtype.element_ty), mask=k_mask)
