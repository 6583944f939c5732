"""FlashAttention-2 backward without a mask in its loads and stores: the wrapper copies everything into zero-padded,
contiguous tensors of whole tiles. Queries that are padding get lse = +∞, so that their P is 0.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

TILE = 32


def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    """(grad_q, grad_k, grad_v); grad_o, q, o (..., n_queries, d), k, v (..., n_keys, d) and lse (..., n_queries)."""
    check(grad_o, q, k, v, o, lse)
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    # A row of float32 at d > 128 takes 1 KB: halve the tiles.
    tile = TILE // 2 if d * q.element_size() > 512 else TILE
    d_padded = max(16, triton.next_power_of_2(d))

    padded = [pad(x, tile, d_padded) for x in (grad_o, q, k, v, o)]
    lse_padded = functional.pad(lse.reshape(-1, n_queries), (0, -n_queries % tile), value=float("inf")).contiguous()
    grads = [torch.empty_like(padded[i]) for i in (1, 2, 3)]
    n_batches, q_rows, _ = padded[1].shape
    k_rows = padded[2].shape[1]
    if n_batches > 0:
        sizes = (n_keys, q_rows, k_rows, d**-0.5)
        constants = {"CAUSAL": bool(is_causal), "TILE": tile, "D": d_padded}
        grad_q_kernel[(n_batches * (q_rows // tile),)](*padded, lse_padded, grads[0], *sizes, **constants)
        grad_kv_kernel[(n_batches * (k_rows // tile),)](*padded, lse_padded, *grads[1:], *sizes, **constants)
    return tuple(grad[:, : x.shape[-2], :d].reshape(x.shape) for grad, x in zip(grads, (q, k, v), strict=True))


def check(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    if any(x.ndim != q.ndim or x.shape[:-2] != q.shape[:-2] for x in (k, v, grad_o, o)):
        raise ValueError(f"batch dimensions differ: q {q.shape}, k {k.shape}, v {v.shape}")
    if any(x.shape[-1] != q.shape[-1] for x in (k, v, grad_o, o)):
        raise ValueError(f"last dimensions differ: q {q.shape}, k {k.shape}, v {v.shape}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected as many values as keys, {k.shape[-2]}, got {v.shape[-2]}")
    if any(x.shape[-2] != q.shape[-2] for x in (grad_o, o)) or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected {q.shape[-2]} rows in grad_o {grad_o.shape}, o {o.shape} and lse {lse.shape}")
    if any(x.dtype != q.dtype for x in (k, v, grad_o, o)):
        raise ValueError(f"dtypes differ: q {q.dtype}, k {k.dtype}, v {v.dtype}, grad_o {grad_o.dtype}, o {o.dtype}")


def pad(x: Tensor, tile: int, d_padded: int) -> Tensor:
    """x as (n_batches, whole tiles, d_padded), contiguous."""
    n, d = x.shape[-2:]
    return functional.pad(x.reshape(-1, n, d), (0, d_padded - d, 0, -n % tile)).contiguous()


@triton.jit
def tile_offsets(first_row, TILE: tl.constexpr, D: tl.constexpr):
    return (first_row + tl.arange(0, TILE))[:, None] * D + tl.arange(0, D)[None, :]


@triton.jit
def p_and_grad_s(grad_o, q, k, v, o, lse, queries, keys, n_keys, scale, CAUSAL: tl.constexpr):
    """Both (queries, keys), in float32."""
    s = tl.dot(q, tl.trans(k)) * scale
    s = tl.where(keys[None, :] < n_keys, s, float("-inf"))
    if CAUSAL:
        s = tl.where(queries[:, None] >= keys[None, :], s, float("-inf"))
    p = tl.exp(s - lse[:, None])
    row_sum = tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), axis=1)
    return p, p * (tl.dot(grad_o, tl.trans(v)) - row_sum[:, None])


@triton.jit
def grad_q_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, grad_q_ptr,
    n_keys, q_rows, k_rows, scale,
    CAUSAL: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """A program a tile of queries; (n_batches, q_rows, D) and (n_batches, k_rows, D) are what is padded."""
    tiles = q_rows // TILE
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    first_query = tl.program_id(0) % tiles * TILE
    queries = first_query + tl.arange(0, TILE)
    mine = tile_offsets(batch * q_rows + first_query, TILE, D)
    q, o, grad_o = tl.load(q_ptr + mine), tl.load(o_ptr + mine), tl.load(grad_o_ptr + mine)
    lse = tl.load(lse_ptr + batch * q_rows + queries)
    last = tl.minimum(first_query + TILE, k_rows) if CAUSAL else k_rows
    grad_q = tl.zeros((TILE, D), dtype=tl.float32)
    for first_key in range(0, last, TILE):
        theirs = tile_offsets(batch * k_rows + first_key, TILE, D)
        k, v = tl.load(k_ptr + theirs), tl.load(v_ptr + theirs)
        keys = first_key + tl.arange(0, TILE)
        _, grad_s = p_and_grad_s(grad_o, q, k, v, o, lse, queries, keys, n_keys, scale, CAUSAL)
        grad_q += tl.dot(grad_s.to(k.dtype), k) * scale
    tl.store(grad_q_ptr + mine, grad_q.to(q.dtype))


@triton.jit
def grad_kv_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, grad_k_ptr, grad_v_ptr,
    n_keys, q_rows, k_rows, scale,
    CAUSAL: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """A program a tile of keys."""
    tiles = k_rows // TILE
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    first_key = tl.program_id(0) % tiles * TILE
    keys = first_key + tl.arange(0, TILE)
    mine = tile_offsets(batch * k_rows + first_key, TILE, D)
    k, v = tl.load(k_ptr + mine), tl.load(v_ptr + mine)
    grad_k, grad_v = tl.zeros((TILE, D), dtype=tl.float32), tl.zeros((TILE, D), dtype=tl.float32)
    for first_query in range(first_key if CAUSAL else 0, q_rows, TILE):
        theirs = tile_offsets(batch * q_rows + first_query, TILE, D)
        q, o, grad_o = tl.load(q_ptr + theirs), tl.load(o_ptr + theirs), tl.load(grad_o_ptr + theirs)
        queries = first_query + tl.arange(0, TILE)
        lse = tl.load(lse_ptr + batch * q_rows + queries)
        p, grad_s = p_and_grad_s(grad_o, q, k, v, o, lse, queries, keys, n_keys, scale, CAUSAL)
        grad_v += tl.dot(tl.trans(p.to(q.dtype)), grad_o)
        grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)), q) * scale
    tl.store(grad_k_ptr + mine, grad_k.to(k.dtype))
    tl.store(grad_v_ptr + mine, grad_v.to(v.dtype))
