"""Tiles of 16 queries by 16 keys, the least that tl.dot takes, on a grid of (query tiles, batch)."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_SIZE = 16
MAX_GRID_Y = 65_535  # what CUDA allows along the second axis


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse), one program for 16 queries of one batch."""
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q of shape (*batch, n, d) like k {tuple(k.shape)}, got {tuple(q.shape)}")
    batch, (n_queries, d) = q.shape[:-2], q.shape[-2:]
    n_batches = math.prod(batch)
    o = torch.empty((n_batches, n_queries, d), dtype=q.dtype, device=q.device)
    lse = torch.empty((n_batches, n_queries), dtype=torch.float32, device=q.device)
    q, k, v = (x.reshape(n_batches, *x.shape[-2:]) for x in (q, k, v))
    for start in range(0, n_batches, MAX_GRID_Y):
        part = slice(start, start + MAX_GRID_Y)
        _launch(q[part], k[part], v[part], o[part], lse[part], is_causal)
    return o.view(*batch, n_queries, d), lse.view(*batch, n_queries)


def _launch(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool) -> None:
    n_batches, n_queries, d = q.shape
    d_tile_size = max(TILE_SIZE, triton.next_power_of_2(d))
    _forward_kernel[triton.cdiv(n_queries, TILE_SIZE), n_batches](
        q, k, v, o, lse,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        n_queries, k.shape[1], d, 1 / math.sqrt(d),
        CAUSAL=is_causal, TILE_SIZE=TILE_SIZE, D_TILE_SIZE=d_tile_size,
        num_warps=1 if d_tile_size <= 64 else 4,
    )  # fmt: skip


@triton.jit
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """o (batches, n_queries, d) and lse (batches, n_queries) are contiguous; grid (query tiles, batches)."""
    batch = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * TILE_SIZE + tl.arange(0, TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    row_mask, col_mask = rows < n_queries, cols < d
    q = tl.load(
        q_ptr + batch * stride_qb + rows[:, None] * stride_qn + cols[None, :] * stride_qd,
        mask=row_mask[:, None] & col_mask[None, :],
        other=0.0,
    )
    k_ptrs = k_ptr + batch * stride_kb + cols[:, None] * stride_kd  # (D, 1): keys come as columns
    v_ptrs = v_ptr + batch * stride_vb + cols[None, :] * stride_vd  # (1, D)

    maximum = tl.full([TILE_SIZE], float("-inf"), tl.float32)
    denominator = tl.zeros([TILE_SIZE], tl.float32)
    numerator = tl.zeros([TILE_SIZE, D_TILE_SIZE], tl.float32)
    n_visible = n_keys
    if CAUSAL:
        n_visible = tl.minimum(n_keys, (tl.program_id(0) + 1) * TILE_SIZE)
    for start in range(0, n_visible, TILE_SIZE):
        keys = start + tl.arange(0, TILE_SIZE).to(tl.int64)
        k = tl.load(k_ptrs + keys[None, :] * stride_kn, mask=col_mask[:, None] & (keys < n_keys)[None, :], other=0.0)
        v = tl.load(v_ptrs + keys[:, None] * stride_vn, mask=(keys < n_keys)[:, None] & col_mask[None, :], other=0.0)
        logits = tl.dot(q, k) * scale  # (TILE, TILE)
        visible = (keys < n_keys)[None, :]
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None])
        logits = tl.where(visible, logits, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(logits, axis=1))  # finite: key 0 is visible to all
        correction = tl.exp(maximum - new_maximum)
        weights = tl.exp(logits - new_maximum[:, None])
        denominator = denominator * correction + tl.sum(weights, axis=1)
        numerator = numerator * correction[:, None]
        numerator = tl.dot(weights.to(v.dtype), v, acc=numerator)
        maximum = new_maximum

    o = numerator / denominator[:, None]
    out_rows = batch * n_queries + rows
    tl.store(
        o_ptr + out_rows[:, None] * d + cols[None, :],
        o.to(o_ptr.dtype.element_ty),
        mask=row_mask[:, None] & col_mask[None, :],
    )
    tl.store(lse_ptr + out_rows, maximum + tl.log(denominator), mask=row_mask)
