"""FlashAttention-2 backward in the smallest tiles that tl.dot takes, 16 × 16, in exact float32 products. A third grid
axis runs along d: a program recomputes P and dS from whole rows and writes 64 columns of the gradients.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

TILE = 16  # queries and keys
MAX_D_SLICE = 64
MAX_GRID_Y = 65_535  # CUDA's limit; programs take further tiles in turns


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    """(grad_q, grad_k, grad_v). Grid of each kernel: batches × tiles × slices of d."""
    if k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"expected q (..., n_queries, d) and k and v (..., n_keys, d), got {shapes}")
    if len({x.dtype for x in (grad_o, q, k, v, o)}) != 1:
        raise ValueError(f"expected q, k, v, grad_o and o in one dtype, got {q.dtype}, {k.dtype}, {v.dtype}, ...")
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o and o of shape {tuple(q.shape)} and lse of shape {tuple(q.shape[:-1])}")

    grad_o3, q3, k3, v3, o3 = (x.reshape(-1, *x.shape[-2:]) for x in (grad_o, q, k, v, o))
    lse2 = lse.reshape(-1, q.shape[-2])
    grad_q, grad_k, grad_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q3, k3, v3))
    (n_batches, n_queries, d), n_keys = q3.shape, k3.shape[1]
    if n_batches == 0:
        return grad_q.view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape)

    inputs = (grad_o3, q3, k3, v3, o3, lse2)
    arguments = (*inputs, *(stride for x in inputs for stride in x.stride()), n_queries, n_keys, d, d**-0.5)
    d_tile = max(TILE, triton.next_power_of_2(d))
    d_slice = min(d_tile, MAX_D_SLICE)
    constants = {"IS_CAUSAL": is_causal, "TILE": TILE, "D_TILE": d_tile, "D_SLICE": d_slice}
    query_grid, key_grid = (
        (n_batches, min(triton.cdiv(n, TILE), MAX_GRID_Y), triton.cdiv(d, d_slice)) for n in (n_queries, n_keys)
    )
    _query_kernel[query_grid](*arguments, grad_q, **constants, num_warps=1, num_stages=1)
    _key_kernel[key_grid](*arguments, grad_k, grad_v, **constants, num_warps=1, num_stages=1)
    return grad_q.view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape)


@triton.jit
def _load(base, rows, cols, stride_row, stride_col, n_rows, n_cols):
    pointers = base + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col
    return tl.load(pointers, mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols), other=0)


@triton.jit
def _store(base, value, rows, cols, n_rows, n_cols):
    """To a contiguous matrix."""
    pointers = base + rows.to(tl.int64)[:, None] * n_cols + cols[None, :]
    tl.store(pointers, value.to(base.dtype.element_ty), mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols))


@triton.jit
def _weights(q, k, v, grad_o, o, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL: tl.constexpr):
    """P and dS of one tile, queries × keys."""
    s = tl.dot(q, k.T, input_precision="ieee") * scale
    seen = (queries[:, None] < n_queries) & (keys[None, :] < n_keys)
    if IS_CAUSAL:
        seen = seen & (keys[None, :] <= queries[:, None])
    p = tl.where(seen, tl.exp(tl.where(seen, s - lse[:, None], 0.0)), 0.0)
    grad_p = tl.dot(grad_o, v.T, input_precision="ieee")
    delta = tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), axis=1)
    return p, p * (grad_p - delta[:, None])


@triton.jit
def _query_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale, grad_q_ptr,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, D_SLICE: tl.constexpr,
):  # fmt: skip
    """grad_q: one program a batch, a tile of queries (or every so many) and a slice of d."""
    batch = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE)
    own_cols = tl.program_id(2) * D_SLICE + tl.arange(0, D_SLICE)
    for tile in range(tl.program_id(1), tl.cdiv(n_queries, TILE), tl.num_programs(1)):
        queries = tile * TILE + tl.arange(0, TILE)
        q = _load(q_ptr + batch * stride_qb, queries, cols, stride_qn, stride_qd, n_queries, d)
        o = _load(o_ptr + batch * stride_ob, queries, cols, stride_on, stride_od, n_queries, d)
        grad_o = _load(grad_o_ptr + batch * stride_gob, queries, cols, stride_gon, stride_god, n_queries, d)
        lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
        lse = tl.load(lse_ptrs, mask=queries < n_queries, other=0.0)
        grad_q = tl.zeros((TILE, D_SLICE), dtype=tl.float32)
        n_key_tiles = tl.cdiv(n_keys, TILE)
        if IS_CAUSAL:
            n_key_tiles = tl.minimum(n_key_tiles, tile + 1)
        for key_tile in range(n_key_tiles):
            keys = key_tile * TILE + tl.arange(0, TILE)
            k = _load(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd, n_keys, d)
            v = _load(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd, n_keys, d)
            _, grad_s = _weights(q, k, v, grad_o, o, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL)
            own_k = _load(k_ptr + batch * stride_kb, keys, own_cols, stride_kn, stride_kd, n_keys, d)
            grad_q += tl.dot(grad_s.to(own_k.dtype), own_k, input_precision="ieee")
        _store(grad_q_ptr + batch * n_queries * d, grad_q * scale, queries, own_cols, n_queries, d)


@triton.jit
def _key_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale, grad_k_ptr, grad_v_ptr,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr, D_SLICE: tl.constexpr,
):  # fmt: skip
    """grad_k and grad_v: one program a batch, a tile of keys (or every so many) and a slice of d."""
    batch = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE)
    own_cols = tl.program_id(2) * D_SLICE + tl.arange(0, D_SLICE)
    for tile in range(tl.program_id(1), tl.cdiv(n_keys, TILE), tl.num_programs(1)):
        keys = tile * TILE + tl.arange(0, TILE)
        k = _load(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd, n_keys, d)
        v = _load(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd, n_keys, d)
        grad_k = tl.zeros((TILE, D_SLICE), dtype=tl.float32)
        grad_v = tl.zeros((TILE, D_SLICE), dtype=tl.float32)
        for query_tile in range(tile if IS_CAUSAL else 0, tl.cdiv(n_queries, TILE)):
            queries = query_tile * TILE + tl.arange(0, TILE)
            q = _load(q_ptr + batch * stride_qb, queries, cols, stride_qn, stride_qd, n_queries, d)
            o = _load(o_ptr + batch * stride_ob, queries, cols, stride_on, stride_od, n_queries, d)
            grad_o = _load(grad_o_ptr + batch * stride_gob, queries, cols, stride_gon, stride_god, n_queries, d)
            lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
            lse = tl.load(lse_ptrs, mask=queries < n_queries, other=0.0)
            p, grad_s = _weights(q, k, v, grad_o, o, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL)
            own_q = _load(q_ptr + batch * stride_qb, queries, own_cols, stride_qn, stride_qd, n_queries, d)
            own_grad_o = _load(grad_o_ptr + batch * stride_gob, queries, own_cols, stride_gon, stride_god, n_queries, d)
            grad_k += tl.dot(grad_s.T.to(own_q.dtype), own_q, input_precision="ieee")
            grad_v += tl.dot(p.T.to(own_grad_o.dtype), own_grad_o, input_precision="ieee")
        _store(grad_k_ptr + batch * n_keys * d, grad_k * scale, keys, own_cols, n_keys, d)
        _store(grad_v_ptr + batch * n_keys * d, grad_v, keys, own_cols, n_keys, d)
