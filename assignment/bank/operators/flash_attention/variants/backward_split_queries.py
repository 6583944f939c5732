"""FlashAttention-2 backward for few keys and many queries: the queries are cut into chunks, each program makes the
share of dK and dV that one chunk gives one tile of keys, and PyTorch adds up the shares, in float32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_CHUNKS = 4


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v). The shares take MAX_CHUNKS times the memory of dK and dV in float32."""
    _validate({"q": q, "grad_o": grad_o, "o": o}, {"k": k, "v": v}, lse)
    b, n_queries, n_keys, d = q.shape[:-2].numel(), q.shape[-2], k.shape[-2], q.shape[-1]
    grad_o, q_, o = (x.reshape(b, n_queries, d) for x in (grad_o, q, o))
    k_, v_ = k.reshape(b, n_keys, d), v.reshape(b, n_keys, d)
    lse = lse.reshape(b, n_queries)

    d_tile = max(16, triton.next_power_of_2(d))
    tile = 32 if d_tile * q.element_size() <= 512 else 16
    query_tiles = triton.cdiv(n_queries, tile)
    tiles_per_chunk = triton.cdiv(query_tiles, MAX_CHUNKS)
    chunks = triton.cdiv(query_tiles, tiles_per_chunk)
    grad_q = q.new_empty(b, n_queries, d)
    shares = [q.new_empty(chunks, b, n_keys, d, dtype=torch.float32) for _ in range(2)]
    if b:
        delta = (grad_o * o.float()).sum(dim=-1, dtype=torch.float32)
        inputs = (grad_o, q_, k_, v_, lse, delta)
        sizes = (b, n_queries, n_keys, d, d**-0.5)
        strides = [s for x in inputs for s in x.stride()]
        constants = {"TILE": tile, "D_TILE": d_tile, "IS_CAUSAL": is_causal, "num_stages": 1}
        _query_tile_kernel[(b * query_tiles,)](*inputs, grad_q, *strides, *sizes, **constants)
        _chunk_kernel[(b * triton.cdiv(n_keys, tile) * chunks,)](
            *inputs, *shares, *strides, *sizes, chunks, tiles_per_chunk, **constants
        )
    grad_k, grad_v = (share.sum(0).to(k.dtype).reshape(k.shape) for share in shares)
    return grad_q.reshape(q.shape), grad_k, grad_v


def _validate(of_queries: dict[str, Tensor], of_keys: dict[str, Tensor], lse: Tensor) -> None:
    q, k = of_queries["q"], of_keys["k"]
    for name, x in (of_queries | of_keys).items():
        like = q if name in of_queries else k
        if x.dtype != q.dtype:
            raise ValueError(f"{name}: expected {q.dtype}, got {x.dtype}")
        if x.ndim < 2 or x.shape[:-2] != q.shape[:-2] or x.shape[-2:] != (like.shape[-2], q.shape[-1]):
            expected = (*q.shape[:-2], like.shape[-2], q.shape[-1])
            raise ValueError(f"{name}: expected shape {expected}, got {tuple(x.shape)}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"lse: expected shape {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")


@triton.jit
def _load_rows(ptr, batch, rows, stride_b, stride_n, stride_d, n, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    offsets = batch * stride_b + rows[:, None] * stride_n + cols.to(tl.int64)[None, :] * stride_d
    return tl.load(ptr + offsets, mask=(rows[:, None] < n) & (cols[None, :] < d), other=0.0)


@triton.jit
def _store_rows(ptr, x, rows, n, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    pointers = ptr + rows[:, None] * d + cols[None, :]
    tl.store(pointers, x.to(ptr.dtype.element_ty), mask=(rows[:, None] < n) & (cols[None, :] < d))


@triton.jit
def _p(q, k, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL: tl.constexpr):
    """P of a tile, and 0 where a key is hidden from a query or one of them does not exist."""
    s = tl.dot(q, tl.trans(k))
    visible = (queries < n_queries)[:, None] & (keys < n_keys)[None, :]
    if IS_CAUSAL:
        visible = visible & (queries[:, None] - keys[None, :] >= 0)
    return tl.exp(tl.where(visible, s * scale - lse[:, None], float("-inf")))


@triton.jit
def _query_tile_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_q_ptr,
    grad_o_b, grad_o_n, grad_o_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d, lse_b, lse_n, delta_b, delta_n,
    n_batches, n_queries, n_keys, d, scale,
    TILE: tl.constexpr, D_TILE: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """grad_q: one program a tile of queries of one batch, batches fastest. q_b, q_n and q_d are the strides of q."""
    batch = (tl.program_id(0) % n_batches).to(tl.int64)
    tile = tl.program_id(0) // n_batches
    queries = tile * TILE + tl.arange(0, TILE).to(tl.int64)
    q = _load_rows(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
    grad_o = _load_rows(grad_o_ptr, batch, queries, grad_o_b, grad_o_n, grad_o_d, n_queries, d, D_TILE)
    lse = tl.load(lse_ptr + batch * lse_b + queries * lse_n, mask=queries < n_queries, other=0.0)
    delta = tl.load(delta_ptr + batch * delta_b + queries * delta_n, mask=queries < n_queries, other=0.0)
    grad_q = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    stop = tl.cdiv(n_keys, TILE)
    if IS_CAUSAL:
        stop = tl.minimum(stop, tile + 1)
    for key_tile in range(stop):
        keys = key_tile * TILE + tl.arange(0, TILE).to(tl.int64)
        k = _load_rows(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
        v = _load_rows(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
        p = _p(q, k, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL)
        grad_s = p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None]) * scale
        grad_q += tl.dot(grad_s.to(k.dtype), k)
    _store_rows(grad_q_ptr + batch * n_queries * d, grad_q, queries, n_queries, d, D_TILE)


@triton.jit
def _chunk_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, share_k_ptr, share_v_ptr,
    grad_o_b, grad_o_n, grad_o_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d, lse_b, lse_n, delta_b, delta_n,
    n_batches, n_queries, n_keys, d, scale, n_chunks, tiles_per_chunk,
    TILE: tl.constexpr, D_TILE: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Shares of grad_k and grad_v, contiguous (n_chunks, n_batches, n_keys, d): one program a key tile and a chunk.

    A chunk that sees none of the keys writes zeros.
    """
    batch = (tl.program_id(0) % n_batches).to(tl.int64)
    chunk = tl.program_id(0) // n_batches % n_chunks
    tile = tl.program_id(0) // n_batches // n_chunks
    keys = tile * TILE + tl.arange(0, TILE).to(tl.int64)
    k = _load_rows(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
    v = _load_rows(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
    grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    start = chunk * tiles_per_chunk
    stop = tl.minimum(start + tiles_per_chunk, tl.cdiv(n_queries, TILE))
    if IS_CAUSAL:
        start = tl.maximum(start, tile)
    for query_tile in range(start, stop):
        queries = query_tile * TILE + tl.arange(0, TILE).to(tl.int64)
        q = _load_rows(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
        grad_o = _load_rows(grad_o_ptr, batch, queries, grad_o_b, grad_o_n, grad_o_d, n_queries, d, D_TILE)
        lse = tl.load(lse_ptr + batch * lse_b + queries * lse_n, mask=queries < n_queries, other=0.0)
        delta = tl.load(delta_ptr + batch * delta_b + queries * delta_n, mask=queries < n_queries, other=0.0)
        p = _p(q, k, lse, queries, keys, n_queries, n_keys, scale, IS_CAUSAL)
        grad_s = p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None]) * scale
        grad_v += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o)
        grad_k += tl.dot(tl.trans(grad_s).to(q.dtype), q)
    offset = (chunk * n_batches + batch) * n_keys * d
    _store_rows(share_k_ptr + offset, grad_k, keys, n_keys, d, D_TILE)
    _store_rows(share_v_ptr + offset, grad_v, keys, n_keys, d, D_TILE)
