"""One query a program and no tl.dot: the query is a vector, a score is a sum of products in float32, and a table holds
where each batch of each tensor begins, so that no batch dimensions need to be merged.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32, Int64
from torch import Tensor


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse), without a copy of any input, whatever its strides."""
    same_everything = q.dtype == k.dtype == v.dtype and q.shape[-1:] == k.shape[-1:] and q.shape[:-2] == k.shape[:-2]
    if not same_everything or k.shape != v.shape:
        got = [f"{x.dtype} {tuple(x.shape)}" for x in (q, k, v)]
        raise ValueError(f"expected q (*batch, n, d), k and v (*batch, m, d) of one dtype, got {', '.join(got)}")
    n_queries, d = q.shape[-2:]
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if lse.numel() > 0:
        batch_starts = torch.stack([_batch_starts(x) for x in (q, k, v)]).to(q.device)  # (3, n_batches)
        d_tile = max(2, triton.next_power_of_2(d))
        _row_kernel[(lse.numel(),)](
            q, k, v, o, lse, batch_starts,
            *q.stride()[-2:], *k.stride()[-2:], *v.stride()[-2:],
            batch_starts.shape[1], n_queries, k.shape[-2], d, d**-0.5,
            IS_CAUSAL=is_causal, K_TILE=128 if d <= 128 else 64, D_TILE=d_tile, num_warps=4 if d <= 64 else 8,
        )  # fmt: skip
    return o, lse


def _batch_starts(x: Tensor) -> Int64[Tensor, " n_batches"]:
    """The offset, in elements, of each batch of x (*batch, n, d) from the first."""
    starts = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(x.shape[:-2], x.stride()[:-2], strict=True):
        starts = (starts[:, None] + torch.arange(size) * stride).flatten()
    return starts


@triton.jit
def _row_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, batch_starts_ptr,
    stride_qn, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """o and lse are contiguous; batch_starts (3, n_batches) is that of q, k and v. Grid: (batches · queries,)."""
    row = tl.program_id(0).to(tl.int64)
    batch, query = row // n_queries, row % n_queries
    q_start = tl.load(batch_starts_ptr + batch)
    k_start = tl.load(batch_starts_ptr + n_batches + batch)
    v_start = tl.load(batch_starts_ptr + 2 * n_batches + batch)
    cols = tl.arange(0, D_TILE).to(tl.int64)
    col_mask = cols < d
    q = tl.load(q_ptr + q_start + query * stride_qn + cols * stride_qd, mask=col_mask, other=0.0)  # (D,)
    q = q.to(tl.float32) * scale

    n_seen = n_keys
    if IS_CAUSAL:
        n_seen = tl.minimum(n_keys, (query + 1).to(tl.int32))
    largest = float("-inf")
    total = 0.0
    o = tl.zeros((D_TILE,), dtype=tl.float32)
    for start in range(0, n_seen, K_TILE):
        keys = (start + tl.arange(0, K_TILE)).to(tl.int64)
        key_mask = keys < n_seen  # a query sees its first n_seen keys: causal or not, this is all there is to hide
        mask = key_mask[:, None] & col_mask[None, :]
        k_ptrs = k_ptr + k_start + keys[:, None] * stride_kn + cols[None, :] * stride_kd
        k = tl.load(k_ptrs, mask=mask, other=0.0).to(tl.float32)  # (K, D)
        s = tl.where(key_mask, tl.sum(q[None, :] * k, axis=1), float("-inf"))  # (K,)
        new_largest = tl.maximum(largest, tl.max(s, axis=0))
        p = tl.exp(s - new_largest)
        rescale = tl.exp(largest - new_largest)
        v_ptrs = v_ptr + v_start + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v = tl.load(v_ptrs, mask=mask, other=0.0).to(tl.float32)  # (K, D)
        o = o * rescale + tl.sum(p[:, None] * v, axis=0)
        total = total * rescale + tl.sum(p, axis=0)
        largest = new_largest

    tl.store(o_ptr + row * d + cols, (o / total).to(o_ptr.dtype.element_ty), mask=col_mask)
    tl.store(lse_ptr + row, largest + tl.log(total))
