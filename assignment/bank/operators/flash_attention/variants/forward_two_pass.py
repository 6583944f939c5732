"""Two passes over the keys: the first finds lse, the second adds up exp(s − lse) v, which is never rescaled."""

import torch
import triton
import triton.language as tl
from torch import Tensor


class ShapeError(ValueError):
    """q, k and v that do not fit together."""


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention; lse is what the backward pass needs to recompute P."""
    _validate(q, k, v)
    lead = q.shape[:-2]
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    n_batches = lead.numel()
    o = q.new_empty((*lead, n_queries, d))
    lse = torch.empty((*lead, n_queries), device=q.device, dtype=torch.float32)
    if n_batches == 0:
        return o, lse

    q, k, v = (x.reshape(n_batches, -1, d) for x in (q, k, v))
    d_tile = max(triton.next_power_of_2(d), 16)
    tile = 64 if d_tile <= 128 else 32
    grid = (triton.cdiv(n_queries, tile) * n_batches,)
    _two_pass_kernel[grid](
        q, k, v, o, lse,
        *q.stride(), *k.stride(), *v.stride(),
        n_batches, n_queries, n_keys, d, d**-0.5,
        is_causal, tile, tile, d_tile,
        num_warps=4 if d_tile <= 64 else 8, num_stages=2 if d_tile <= 64 else 1,
    )  # fmt: skip
    return o, lse


def _validate(q: Tensor, k: Tensor, v: Tensor) -> None:
    if not (q.dtype is k.dtype is v.dtype):
        raise ValueError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not (q.shape[-1] == k.shape[-1] == v.shape[-1]):
        raise ShapeError(f"the last dimensions must be equal, got {q.shape[-1]}, {k.shape[-1]}, {v.shape[-1]}")
    if not (q.shape[:-2] == k.shape[:-2] == v.shape[:-2]):
        raise ShapeError(f"the batch dimensions must be equal, got {q.shape}, {k.shape}, {v.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError(f"k and v must be equally long, got {k.shape[-2]} and {v.shape[-2]}")


@triton.jit
def _two_pass_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """o (n_batches, n_queries, d) and lse (n_batches, n_queries) are contiguous; grid (batches · query tiles,)."""
    pid = tl.program_id(0)
    batch, tile = (pid % n_batches).to(tl.int64), pid // n_batches
    queries = tile.to(tl.int64) * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    query_mask, col_mask = queries < n_queries, cols < d
    q_ptrs = q_ptr + batch * stride_qb + (queries[:, None] * stride_qn + cols[None, :] * stride_qd)
    q = tl.load(q_ptrs, mask=query_mask[:, None] & col_mask[None, :], other=0.0)  # (Q, D)
    k_ptr += batch * stride_kb
    v_ptr += batch * stride_vb
    end = n_keys
    if IS_CAUSAL:
        end = tl.minimum(end, (tile + 1) * Q_TILE_SIZE)

    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, end, K_TILE_SIZE):
        keys = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        s = _logits(q, k_ptr, queries, keys, cols, stride_kn, stride_kd, n_keys, d, scale, IS_CAUSAL)
        larger = tl.maximum(row_max, tl.max(s, axis=1))
        row_sum = row_sum * tl.exp(row_max - larger) + tl.sum(tl.exp(s - larger[:, None]), axis=1)
        row_max = larger
    log_sum = tl.log(row_sum)

    o = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for start in range(0, end, K_TILE_SIZE):
        keys = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        s = _logits(q, k_ptr, queries, keys, cols, stride_kn, stride_kd, n_keys, d, scale, IS_CAUSAL)
        # The maximum first: it may be 1e4, and a sum with it would round the logarithm away.
        p = tl.exp((s - row_max[:, None]) - log_sum[:, None])  # (Q, K), normalised
        v_ptrs = v_ptr + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v = tl.load(v_ptrs, mask=(keys < n_keys)[:, None] & col_mask[None, :], other=0.0)  # (K, D)
        o += tl.dot(p.to(v.dtype), v)

    out = batch * n_queries + queries
    o_ptrs = o_ptr + out[:, None] * d + cols[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=query_mask[:, None] & col_mask[None, :])
    tl.store(lse_ptr + out, row_max + log_sum, mask=query_mask)


@triton.jit
def _logits(q, k_ptr, queries, keys, cols, stride_kn, stride_kd, n_keys, d, scale, IS_CAUSAL: tl.constexpr):
    """The tile q kᵀ · scale (Q, K), −∞ where a query does not see a key."""
    key_mask = keys < n_keys
    k_ptrs = k_ptr + keys[None, :] * stride_kn + cols[:, None] * stride_kd
    k = tl.load(k_ptrs, mask=key_mask[None, :] & (cols < d)[:, None], other=0.0)  # (D, K)
    visible = key_mask[None, :]
    if IS_CAUSAL:
        visible = visible & (keys[None, :] <= queries[:, None])
    return tl.where(visible, tl.dot(q, k) * scale, float("-inf"))
