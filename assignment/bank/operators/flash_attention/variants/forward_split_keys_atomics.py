"""Split keys with atomics: one kernel finds lse, then the programs of a second one each take a chunk of keys and add
exp(s − lse) v to a float32 o with tl.atomic_add; PyTorch casts it at the end. The order of the sum is not fixed.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

Q_TILE = 32
KEYS_PER_PROGRAM = 64


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention."""
    if len({x.dtype for x in (q, k, v)}) != 1:
        raise ValueError(f"dtypes differ: {[x.dtype for x in (q, k, v)]}")
    if len({(*x.shape[:-2], x.shape[-1]) for x in (q, k, v)}) != 1 or k.shape != v.shape or q.ndim != k.ndim:
        raise ValueError(f"shapes do not fit together: {[tuple(x.shape) for x in (q, k, v)]}")
    o = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if o.numel():
        n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
        q, k, v = q.reshape(-1, n_queries, d), k.reshape(-1, n_keys, d), v.reshape(-1, n_keys, d)
        n_programs = q.shape[0] * triton.cdiv(n_queries, Q_TILE)
        n_chunks = triton.cdiv(n_keys, KEYS_PER_PROGRAM)
        arguments = q, k, *q.stride(), *k.stride(), lse, n_queries, n_keys, d, d**-0.5
        sizes = {"Q_TILE": Q_TILE, "K_TILE": 32, "D_TILE": max(16, triton.next_power_of_2(d)), "CAUSAL": is_causal}
        lse_kernel[(n_programs,)](*arguments, **sizes)
        add_chunk_kernel[(n_programs * n_chunks,)](
            *arguments, v, *v.stride(), o, n_chunks, KEYS_PER_PROGRAM=KEYS_PER_PROGRAM, **sizes, num_stages=1
        )
    return o.to(q.dtype), lse


@triton.jit
def lse_kernel(
    q_ptr, k_ptr, stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    lse_ptr, n_queries, n_keys, d, scale,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """lse (batches, n_queries), contiguous; grid (batches · query tiles,)."""
    n_tiles = tl.cdiv(n_queries, Q_TILE)
    batch = (tl.program_id(0) // n_tiles).to(tl.int64)
    first_query = tl.program_id(0) % n_tiles * Q_TILE
    queries = first_query + tl.arange(0, Q_TILE)
    q = load(q_ptr + batch * stride_qb, queries, stride_qn, stride_qd, n_queries, d, D_TILE)
    stop = tl.minimum(first_query + Q_TILE, n_keys) if CAUSAL else n_keys
    largest = tl.full((Q_TILE,), float("-inf"), tl.float32)
    total = tl.zeros((Q_TILE,), tl.float32)
    for first_key in range(0, stop, K_TILE):
        keys = first_key + tl.arange(0, K_TILE)
        k = load(k_ptr + batch * stride_kb, keys, stride_kn, stride_kd, n_keys, d, D_TILE)
        s = scores(q, k, queries, keys, n_keys, scale, CAUSAL)
        new_largest = tl.maximum(largest, tl.max(s, 1))
        total = total * tl.exp(largest - new_largest) + tl.sum(tl.exp(s - new_largest[:, None]), 1)
        largest = new_largest
    tl.store(lse_ptr + batch * n_queries + queries, largest + tl.log(total), mask=queries < n_queries)


@triton.jit
def add_chunk_kernel(
    q_ptr, k_ptr, stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    lse_ptr, n_queries, n_keys, d, scale,
    v_ptr, stride_vb, stride_vn, stride_vd,
    o_ptr, n_chunks,
    KEYS_PER_PROGRAM: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """o (batches, n_queries, d), contiguous and zero before; grid (batches · query tiles · key chunks,)."""
    chunk, tile = tl.program_id(0) % n_chunks, tl.program_id(0) // n_chunks
    n_tiles = tl.cdiv(n_queries, Q_TILE)
    batch = (tile // n_tiles).to(tl.int64)
    first_query = tile % n_tiles * Q_TILE
    queries = first_query + tl.arange(0, Q_TILE)
    start = chunk * KEYS_PER_PROGRAM
    stop = tl.minimum(start + KEYS_PER_PROGRAM, n_keys)
    if CAUSAL:
        stop = tl.minimum(stop, first_query + Q_TILE)
    if start < stop:
        q = load(q_ptr + batch * stride_qb, queries, stride_qn, stride_qd, n_queries, d, D_TILE)
        lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=float("inf"))
        o = tl.zeros((Q_TILE, D_TILE), tl.float32)
        for first_key in range(start, stop, K_TILE):
            keys = first_key + tl.arange(0, K_TILE)
            k = load(k_ptr + batch * stride_kb, keys, stride_kn, stride_kd, n_keys, d, D_TILE)
            v = load(v_ptr + batch * stride_vb, keys, stride_vn, stride_vd, n_keys, d, D_TILE)
            p = tl.exp(scores(q, k, queries, keys, n_keys, scale, CAUSAL) - lse[:, None])
            o += tl.dot(p.to(v.dtype), v)
        cols = tl.arange(0, D_TILE)
        o_ptrs = o_ptr + (batch * n_queries + queries)[:, None] * d + cols[None, :]
        tl.atomic_add(o_ptrs, o, mask=(queries < n_queries)[:, None] & (cols < d)[None, :], sem="relaxed")


@triton.jit
def load(ptr, rows, stride_row, stride_col, n_rows, d, D_TILE: tl.constexpr):
    """(rows, D_TILE), zeros outside of the matrix."""
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows[:, None].to(tl.int64) * stride_row + cols[None, :].to(tl.int64) * stride_col
    return tl.load(ptrs, mask=(rows[:, None] < n_rows) & (cols[None, :] < d), other=0.0)


@triton.jit
def scores(q, k, queries, keys, n_keys, scale, CAUSAL: tl.constexpr):
    """q kᵀ · scale, −∞ for hidden keys."""
    s = tl.dot(q, tl.trans(k)) * scale
    s = tl.where(keys[None, :] < n_keys, s, float("-inf"))
    return tl.where(keys[None, :] <= queries[:, None], s, float("-inf")) if CAUSAL else s
