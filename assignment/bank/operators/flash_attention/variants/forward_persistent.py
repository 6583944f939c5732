"""Persistent programs: as many as an H100 has multiprocessors, written down, each with every n-th tile of queries."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

N_PROGRAMS = 132


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse) from one launch whose size does not depend on the problem's."""
    mistake = _mistake(q, k, v)
    if mistake is not None:
        raise ValueError(mistake)
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    q3, k3, v3 = (x.reshape(x.shape[:-2].numel(), *x.shape[-2:]) for x in (q, k, v))
    o, lse = torch.empty_like(q3), q3.new_empty(q3.shape[:2], dtype=torch.float32)
    q_tile = 64 if d <= 64 else 32
    n_work_items = len(q3) * triton.cdiv(n_queries, q_tile)
    if n_work_items > 0:
        _persistent_kernel[(min(n_work_items, N_PROGRAMS),)](
            (q3, k3, v3, o, lse), (q3.stride(), k3.stride(), v3.stride(), o.stride(), lse.stride()),
            n_work_items, n_queries, n_keys, d, d**-0.5,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=q_tile, K_TILE_SIZE=32,
            D_TILE_SIZE=max(16, triton.next_power_of_2(d)), num_warps=4, num_stages=2 if d <= 128 else 1,
        )  # fmt: skip
    return o.reshape(q.shape), lse.reshape(q.shape[:-1])


def _mistake(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    if q.dtype != k.dtype or q.dtype != v.dtype:
        return f"expected q, k, v of one dtype, got {q.dtype}, {k.dtype}, {v.dtype}"
    if q.shape[-1] != k.shape[-1] or q.shape[-1] != v.shape[-1]:
        return f"expected q, k, v of one last dimension, got {q.shape[-1]}, {k.shape[-1]}, {v.shape[-1]}"
    if q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        return f"expected q, k, v of one batch shape, got {q.shape[:-2]}, {k.shape[:-2]}, {v.shape[:-2]}"
    if k.shape[-2] != v.shape[-2]:
        return f"expected k and v of one length, got {k.shape[-2]} and {v.shape[-2]}"
    return None


@triton.jit
def _persistent_kernel(
    tensors, strides, n_work_items, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """tensors (q, k, v, o, lse) and their strides as tuples. Grid: any number of programs."""
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr = tensors
    q_strides, k_strides, v_strides, o_strides, lse_strides = strides
    n_query_tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    for item in tl.range(tl.program_id(0), n_work_items, tl.num_programs(0), num_stages=1):
        batch = tl.cast(item // n_query_tiles, tl.int64)
        first_query = item % n_query_tiles * Q_TILE_SIZE
        queries = first_query + tl.arange(0, Q_TILE_SIZE)
        q_ptrs, q_mask = _tile(q_ptr, q_strides, batch, queries, n_queries, d, D_TILE_SIZE)
        q = tl.load(q_ptrs, mask=q_mask, other=0.0)
        o, lse = _attend(
            q, k_ptr, v_ptr, k_strides, v_strides, batch, first_query, n_keys, d, scale,
            IS_CAUSAL, Q_TILE_SIZE, K_TILE_SIZE, D_TILE_SIZE,
        )  # fmt: skip
        o_ptrs, o_mask = _tile(o_ptr, o_strides, batch, queries, n_queries, d, D_TILE_SIZE)
        tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=o_mask)
        lse_ptrs = lse_ptr + batch * lse_strides[0] + queries.to(tl.int64) * lse_strides[1]
        tl.store(lse_ptrs, lse, mask=queries < n_queries)


@triton.jit
def _attend(
    q, k_ptr, v_ptr, k_strides, v_strides, batch, first_query, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """o and lse of one tile of queries."""
    queries = first_query + tl.arange(0, Q_TILE_SIZE)
    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), tl.float32)
    o = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), tl.float32)
    end = n_keys
    if IS_CAUSAL:
        end = tl.minimum(n_keys, first_query + Q_TILE_SIZE)
    for first_key in tl.range(0, end, K_TILE_SIZE):
        keys = first_key + tl.arange(0, K_TILE_SIZE)
        k_ptrs, mask = _tile(k_ptr, k_strides, batch, keys, n_keys, d, D_TILE_SIZE)
        s = tl.dot(q, tl.trans(tl.load(k_ptrs, mask=mask, other=0.0))) * scale
        s = tl.where(keys[None, :] < n_keys, s, float("-inf"))
        if IS_CAUSAL:
            s = tl.where(queries[:, None] < keys[None, :], float("-inf"), s)
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        v_ptrs, mask = _tile(v_ptr, v_strides, batch, keys, n_keys, d, D_TILE_SIZE)
        v = tl.load(v_ptrs, mask=mask, other=0.0)
        o = rescale[:, None] * o + tl.dot(p.to(v.dtype), v)
        row_sum = rescale * row_sum + tl.sum(p, axis=1)
        row_max = new_max
    return o / row_sum[:, None], row_max + tl.log(row_sum)


@triton.jit
def _tile(ptr, strides, batch, rows, n_rows, d, D_TILE_SIZE: tl.constexpr):
    """Pointers to some rows of a tensor (batches, n_rows, d), and which of them are inside."""
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    rows = rows.to(tl.int64)
    ptrs = ptr + batch * strides[0] + rows[:, None] * strides[1] + cols[None, :] * strides[2]
    return ptrs, (rows < n_rows)[:, None] & (cols < d)[None, :]
