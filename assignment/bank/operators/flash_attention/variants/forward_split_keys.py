"""Split keys, as for decoding: each program sees one chunk of the keys and writes a normalised o and lse of its own; a
second kernel weighs the chunks by exp(lse − max lse) and adds them up.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor


@dataclass(frozen=True)
class Plan:
    """How the work is cut: chunk is the number of keys of one program, a multiple of tile."""

    tile: int
    d_tile: int
    chunk: int
    n_chunks: int

    @classmethod
    def of(cls, n_keys: int, d: int) -> "Plan":
        d_tile = max(16, triton.next_power_of_2(d))
        tile = 32 if d_tile > 64 else 64
        chunk = tile * max(1, triton.cdiv(n_keys, 8 * tile))  # at most eight chunks
        return cls(tile, d_tile, chunk, triton.cdiv(n_keys, chunk))


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse). Extra memory: one float32 o and lse for each of at most eight chunks of keys."""
    _check(q, k, v)
    q_, k_, v_ = (x.reshape(-1, x.shape[-2], x.shape[-1]) if q.numel() else x for x in (q, k, v))
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    (n_batches, n_queries, d), n_keys = q_.shape, k_.shape[1]
    plan = Plan.of(n_keys, d)
    chunk_o = torch.empty(plan.n_chunks, n_batches, n_queries, d, dtype=torch.float32, device=q.device)
    chunk_lse = torch.empty(plan.n_chunks, n_batches, n_queries, dtype=torch.float32, device=q.device)
    _chunk_kernel[triton.cdiv(n_queries, plan.tile) * n_batches, plan.n_chunks](
        q_, k_, v_, chunk_o, chunk_lse, *q_.stride(), *k_.stride(), *v_.stride(),
        n_batches, n_queries, n_keys, d, d**-0.5, plan.chunk,
        IS_CAUSAL=is_causal, TILE=plan.tile, D_TILE=plan.d_tile, num_stages=1,
    )  # fmt: skip
    n_rows = n_batches * n_queries
    _combine_kernel[(triton.cdiv(n_rows, 16),)](
        chunk_o, chunk_lse, o, lse, n_rows, d, plan.n_chunks, ROWS=16, D_TILE=plan.d_tile
    )
    return o, lse


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"expected keys and values alike, got {tuple(k.shape)} and {tuple(v.shape)}")
    for x in (k, v):
        if (x.shape[:-2], x.shape[-1], x.dtype) != (q.shape[:-2], q.shape[-1], q.dtype):
            got = f"{x.dtype} {tuple(x.shape)}"
            raise ValueError(f"expected {q.dtype} and all but the length as in q {tuple(q.shape)}, got {got}")


@triton.jit
def _chunk_kernel(
    q_ptr, k_ptr, v_ptr, chunk_o_ptr, chunk_lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale, chunk_size,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid (query tiles · batches, chunks); chunk_o (chunks, batches, queries, d) is contiguous, like chunk_lse."""
    n_tiles = tl.cdiv(n_queries, TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    first_query = tl.program_id(0) % n_tiles * TILE
    chunk = tl.program_id(1)
    queries = (first_query + tl.arange(0, TILE)).to(tl.int64)
    cols = tl.arange(0, D_TILE).to(tl.int64)
    mask = (queries[:, None] < n_queries) & (cols[None, :] < d)
    q_ptrs = q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=mask, other=0.0)

    row_max = tl.full((TILE,), float("-inf"), tl.float32)
    row_sum = tl.zeros((TILE,), tl.float32)
    o = tl.zeros((TILE, D_TILE), tl.float32)
    end = tl.minimum(n_keys, (chunk + 1) * chunk_size)
    if IS_CAUSAL:
        end = tl.minimum(end, first_query + TILE)
    for start in range(chunk * chunk_size, end, TILE):
        keys = (start + tl.arange(0, TILE)).to(tl.int64)
        kv_mask = (keys[:, None] < n_keys) & (cols[None, :] < d)
        kv_offsets = batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd
        k = tl.load(k_ptr + kv_offsets, mask=kv_mask, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        hidden = keys[None, :] >= n_keys
        if IS_CAUSAL:
            hidden |= keys[None, :] > queries[:, None]
        s = tl.where(hidden, float("-inf"), s)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        # A query may see no key of this chunk: its maximum stays −∞, and 0 stands in for it.
        finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
        p = tl.exp(s - finite_max[:, None])
        rescale = tl.exp(row_max - finite_max)
        row_sum = row_sum * rescale + tl.sum(p, axis=1)
        kv_offsets = batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd
        v = tl.load(v_ptr + kv_offsets, mask=kv_mask, other=0.0)
        o = o * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        row_max = new_max

    saw_any = row_sum > 0.0
    divisor = tl.where(saw_any, row_sum, 1.0)
    rows = (chunk * n_batches + batch) * n_queries + queries
    tl.store(chunk_o_ptr + rows[:, None] * d + cols[None, :], o / divisor[:, None], mask=mask)
    lse = tl.where(saw_any, row_max + tl.log(divisor), float("-inf"))
    tl.store(chunk_lse_ptr + rows, lse, mask=queries < n_queries)


@triton.jit
def _combine_kernel(
    chunk_o_ptr, chunk_lse_ptr, o_ptr, lse_ptr, n_rows, d, n_chunks, ROWS: tl.constexpr, D_TILE: tl.constexpr
):
    """o = Σ_c exp(lse_c − lse) o_c. Every row sees key 0, so the first chunk's lse is finite; grid (row tiles,)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, D_TILE)
    row_mask = rows < n_rows
    mask = row_mask[:, None] & (cols[None, :] < d)
    largest = tl.load(chunk_lse_ptr + rows, mask=row_mask, other=0.0)
    for chunk in range(1, n_chunks):
        chunk_rows = tl.cast(chunk, tl.int64) * n_rows + rows
        largest = tl.maximum(largest, tl.load(chunk_lse_ptr + chunk_rows, mask=row_mask, other=0.0))
    total = tl.zeros((ROWS,), tl.float32)
    o = tl.zeros((ROWS, D_TILE), tl.float32)
    for chunk in range(0, n_chunks):
        chunk_rows = tl.cast(chunk, tl.int64) * n_rows + rows
        weight = tl.exp(tl.load(chunk_lse_ptr + chunk_rows, mask=row_mask, other=0.0) - largest)
        total += weight
        chunk_o_ptrs = chunk_o_ptr + chunk_rows[:, None] * d + cols[None, :]
        o += weight[:, None] * tl.load(chunk_o_ptrs, mask=mask, other=0.0)
    o = (o / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + rows[:, None] * d + cols[None, :], o, mask=mask)
    tl.store(lse_ptr + rows, largest + tl.log(total), mask=row_mask)
