"""Powers of two: q is multiplied by scale · log₂e once, before the loop, and cast back to its own dtype; the running
maximum and the sum live in base 2, and only the stored lse is a natural logarithm. Tiles of 32 queries by 64 keys.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from einops import rearrange
from torch import Tensor

Q_TILE_SIZE, K_TILE_SIZE = 32, 64
LN_2 = tl.constexpr(math.log(2))


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention; o in q's dtype, lse in float32."""
    for name, x in {"k": k, "v": v}.items():
        if x.dtype != q.dtype:
            raise ValueError(f"expected {name} in q's dtype {q.dtype}, got {x.dtype}")
        if x.shape[:-2] != q.shape[:-2] or x.shape[-1] != q.shape[-1]:
            expected = (*q.shape[:-2], "n_keys", q.shape[-1])
            raise ValueError(f"expected {name} of shape {expected}, got {tuple(x.shape)}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected as many values as keys, got {v.shape[-2]} and {k.shape[-2]}")

    o, lse = q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)
    if lse.numel() > 0:
        q3, k3, v3 = (rearrange(x[None], "... n d -> (...) n d") for x in (q, k, v))
        _launch(q3, k3, v3, o.view(q3.shape), lse.view(q3.shape[:-1]), is_causal)
    return o, lse


def _launch(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool) -> None:
    n_batches, n_queries, d = q.shape
    constants: dict[str, Any] = {
        "IS_CAUSAL": is_causal,
        "Q_TILE_SIZE": Q_TILE_SIZE,
        "K_TILE_SIZE": K_TILE_SIZE if d <= 128 else K_TILE_SIZE // 2,
        "D_TILE_SIZE": triton.next_power_of_2(max(d, 16)),
    }
    grid = (n_batches * triton.cdiv(n_queries, Q_TILE_SIZE),)
    _exp2_kernel[grid](
        q, k, v, o, lse,
        *q.stride(), *k.stride(), *v.stride(), *o.stride(), *lse.stride(),
        n_batches, n_queries, k.shape[1], d, math.log2(math.e) / math.sqrt(d),
        **constants, num_warps=4, num_stages=2 if d <= 128 else 1,
    )  # fmt: skip


@triton.jit
def _exp2_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_batches, n_queries, n_keys, d, scale_log2_e,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """Neighbouring programs take the same query tile of neighbouring batches, the longest causal rows first."""
    tile = tl.num_programs(0) // n_batches - 1 - tl.program_id(0) // n_batches
    batch = (tl.program_id(0) % n_batches).to(tl.int64)
    q_ptr, k_ptr, v_ptr = q_ptr + batch * stride_qb, k_ptr + batch * stride_kb, v_ptr + batch * stride_vb

    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    queries = tile.to(tl.int64) * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE)
    q_mask = (queries[:, None] < n_queries) & (cols[None, :] < d)
    q = tl.load(q_ptr + queries[:, None] * stride_qn + cols[None, :] * stride_qd, mask=q_mask, other=0.0)
    q = (q.to(tl.float32) * scale_log2_e).to(q_ptr.dtype.element_ty)

    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), tl.float32)
    o = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), tl.float32)
    last_key = n_keys
    if IS_CAUSAL:
        last_key = tl.minimum(last_key, (tile + 1) * Q_TILE_SIZE)
    keys = tl.arange(0, K_TILE_SIZE).to(tl.int64)
    for _ in range(0, last_key, K_TILE_SIZE):
        seen = keys < n_keys
        kt_mask = (cols[:, None] < d) & seen[None, :]
        k_transposed = tl.load(  # (D, K)
            k_ptr + cols[:, None] * stride_kd + keys[None, :] * stride_kn, mask=kt_mask, other=0.0
        )
        s = tl.dot(q, k_transposed)  # (Q, K), logits in units of ln 2
        s = tl.where(seen[None, :], s, float("-inf"))
        if IS_CAUSAL:
            s = tl.where(queries[:, None] >= keys[None, :], s, float("-inf"))
        previous_max = row_max
        row_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp2(s - row_max[:, None])
        shrink = tl.exp2(previous_max - row_max)
        row_sum = row_sum * shrink + tl.sum(p, axis=1)
        v_mask = seen[:, None] & (cols[None, :] < d)
        v = tl.load(v_ptr + keys[:, None] * stride_vn + cols[None, :] * stride_vd, mask=v_mask, other=0.0)  # (K, D)
        o = tl.dot(p.to(v.dtype), v, o * shrink[:, None])
        keys += K_TILE_SIZE

    o /= row_sum[:, None]
    o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=q_mask)
    lse = (row_max + tl.log2(row_sum)) * LN_2
    tl.store(lse_ptr + batch * stride_lb + queries * stride_ln, lse, mask=queries < n_queries)
