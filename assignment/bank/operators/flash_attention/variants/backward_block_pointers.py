"""FlashAttention-2 backward with block pointers, which check their bounds by themselves, and one kernel for both
passes: a compile-time flag says whether it makes dQ or dK and dV.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v), contiguous."""
    if q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        raise ValueError(f"batch dimensions: expected those of q {q.shape}, got k {k.shape} and v {v.shape}")
    if q.shape[-1] != k.shape[-1] or q.shape[-1] != v.shape[-1]:
        raise ValueError(f"last dimension: expected that of q {q.shape}, got k {k.shape} and v {v.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"keys: expected as many as values, got k {k.shape} and v {v.shape}")
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse for q {q.shape}, got {grad_o.shape}, {o.shape} and {lse.shape}")
    for x in (k, v, grad_o, o):
        if x.dtype != q.dtype:
            raise ValueError(f"expected every tensor in q's dtype {q.dtype}, got {x.dtype}")

    grad_q, grad_k, grad_v = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
    n_batches, (n_queries, d), n_keys = q.shape[:-2].numel(), q.shape[-2:], k.shape[-2]
    if n_batches == 0:
        return grad_q, grad_k, grad_v
    operands = [x.reshape(n_batches, *x.shape[-2:]) for x in (q, k, v, grad_o, o)]
    operands += [lse.reshape(n_batches, n_queries)]
    tiles = _tiles(triton.next_power_of_2(d), q.element_size())
    for makes_dq, n, tile in ((True, n_queries, tiles["Q_TILE"]), (False, n_keys, tiles["K_TILE"])):
        _backward_kernel[(triton.cdiv(n, tile) * n_batches,)](
            *operands, grad_q, grad_k, grad_v, *(stride for x in operands for stride in x.stride()),
            n_queries, n_keys, d, d**-0.5,
            MAKES_DQ=makes_dq, IS_CAUSAL=is_causal, **tiles,
        )  # fmt: skip
    return grad_q, grad_k, grad_v


def _tiles(d_tile: int, element_size: int) -> dict[str, int]:
    """More keys than queries in a tile where rows are short; the least where they take 1 KB."""
    d_tile = max(16, d_tile)
    row_bytes = d_tile * element_size
    q_tile = 32 if row_bytes <= 512 else 16
    k_tile = 64 if row_bytes <= 256 else q_tile
    return {"Q_TILE": q_tile, "K_TILE": k_tile, "D_TILE": d_tile, "num_warps": 4, "num_stages": 1}


@triton.jit
def _block(ptr, n_rows, d, stride_row, stride_col, first_row, TILE: tl.constexpr, D_TILE: tl.constexpr):
    """A pointer to TILE rows from first_row on."""
    return tl.make_block_ptr(
        ptr,
        shape=(n_rows, d),
        strides=(stride_row, stride_col),
        offsets=(first_row, 0),
        block_shape=(TILE, D_TILE),
        order=(1, 0),
    )


@triton.jit
def _read(block):
    return tl.load(block, boundary_check=(0, 1), padding_option="zero")


@triton.jit
def _write(block, x):
    tl.store(block, x.to(block.dtype.element_ty.element_ty), boundary_check=(0, 1))


@triton.jit
def _read_lse(lse_ptr, n_queries, stride_n, first, TILE: tl.constexpr):
    block = tl.make_block_ptr(
        lse_ptr, shape=(n_queries,), strides=(stride_n,), offsets=(first,), block_shape=(TILE,), order=(0,)
    )
    return tl.load(block, boundary_check=(0,), padding_option="zero")


@triton.jit
def _p_and_ds(q, k, v, do, o, lse, first_query, first_key, n_keys, scale, IS_CAUSAL: tl.constexpr):
    """P and dS, (queries, keys). A query past the last has q, do, o and lse of zeros: p = 1 but ds = 0 and do = 0."""
    queries = first_query + tl.arange(0, q.shape[0])[:, None]
    keys = first_key + tl.arange(0, k.shape[0])[None, :]
    s = tl.where(keys < n_keys, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
    if IS_CAUSAL:
        s = tl.where(keys <= queries, s, float("-inf"))
    p = tl.exp(s - lse[:, None])
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1, keep_dims=True)
    return p, p * (tl.dot(do, tl.trans(v)) - delta)


@triton.jit
def _backward_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, o_ptr, lse_ptr, dq_ptr, dk_ptr, dv_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    stride_dob, stride_don, stride_dod, stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    MAKES_DQ: tl.constexpr, IS_CAUSAL: tl.constexpr,
    Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of queries (MAKES_DQ) or of keys, of one batch. The gradients are contiguous."""
    tiles = tl.cdiv(n_queries, Q_TILE) if MAKES_DQ else tl.cdiv(n_keys, K_TILE)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    first_query = tile * Q_TILE if MAKES_DQ else (tile * K_TILE // Q_TILE * Q_TILE if IS_CAUSAL else 0)
    first_key = 0 if MAKES_DQ else tile * K_TILE
    q_block = _block(q_ptr + batch * stride_qb, n_queries, d, stride_qn, stride_qd, first_query, Q_TILE, D_TILE)
    do_block = _block(do_ptr + batch * stride_dob, n_queries, d, stride_don, stride_dod, first_query, Q_TILE, D_TILE)
    o_block = _block(o_ptr + batch * stride_ob, n_queries, d, stride_on, stride_od, first_query, Q_TILE, D_TILE)
    k_block = _block(k_ptr + batch * stride_kb, n_keys, d, stride_kn, stride_kd, first_key, K_TILE, D_TILE)
    v_block = _block(v_ptr + batch * stride_vb, n_keys, d, stride_vn, stride_vd, first_key, K_TILE, D_TILE)
    lse_ptr += batch * stride_lb

    if MAKES_DQ:
        q, do, o = _read(q_block), _read(do_block), _read(o_block)
        lse = _read_lse(lse_ptr, n_queries, stride_ln, first_query, Q_TILE)
        dq = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
        end = tl.minimum(n_keys, first_query + Q_TILE) if IS_CAUSAL else n_keys
        for start in range(0, end, K_TILE):
            k, v = _read(k_block), _read(v_block)
            _, ds = _p_and_ds(q, k, v, do, o, lse, first_query, start, n_keys, scale, IS_CAUSAL)
            dq += tl.dot(ds.to(k.dtype), k)
            k_block = tl.advance(k_block, (K_TILE, 0))
            v_block = tl.advance(v_block, (K_TILE, 0))
        _write(_block(dq_ptr + batch * n_queries * d, n_queries, d, d, 1, first_query, Q_TILE, D_TILE), dq * scale)
    else:
        k, v = _read(k_block), _read(v_block)
        dk = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
        dv = tl.zeros((K_TILE, D_TILE), dtype=tl.float32)
        for start in range(first_query, n_queries, Q_TILE):
            q, do, o = _read(q_block), _read(do_block), _read(o_block)
            lse = _read_lse(lse_ptr, n_queries, stride_ln, start, Q_TILE)
            p, ds = _p_and_ds(q, k, v, do, o, lse, start, first_key, n_keys, scale, IS_CAUSAL)
            dv += tl.dot(tl.trans(p).to(do.dtype), do)
            dk += tl.dot(tl.trans(ds).to(q.dtype), q)
            q_block = tl.advance(q_block, (Q_TILE, 0))
            do_block = tl.advance(do_block, (Q_TILE, 0))
            o_block = tl.advance(o_block, (Q_TILE, 0))
        _write(_block(dk_ptr + batch * n_keys * d, n_keys, d, d, 1, first_key, K_TILE, D_TILE), dk * scale)
        _write(_block(dv_ptr + batch * n_keys * d, n_keys, d, d, 1, first_key, K_TILE, D_TILE), dv)
