"""The head dimension in pieces of at most 64, as xFormers and DeepSpeed split it: q and o are lists of tiles, a logit
is the sum of a product for each piece, and every piece of v has an accumulator of its own.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

MAX_PIECE = 64


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    same = [(x.shape[:-2], x.shape[-1], x.dtype) for x in (q, k, v)]
    if same[1:] != same[:-1] or k.shape != v.shape:
        raise ValueError(f"expected q, k and v that fit together, got {[(x.shape, x.dtype) for x in (q, k, v)]}")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    d = q.shape[-1]
    piece = max(16, min(MAX_PIECE, triton.next_power_of_2(d)))
    block_m = 64 if d * q.element_size() <= 256 else 32
    _kernel[triton.cdiv(q.shape[-2], block_m), len(q_)](
        q_, k_, v_, o, lse, q_.stride(), k_.stride(), v_.stride(), q.shape[-2], k.shape[-2], d, d**-0.5,
        N_PIECES=triton.cdiv(d, piece), PIECE=piece, BLOCK_M=block_m, BLOCK_N=32, IS_CAUSAL=is_causal,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return o, lse


@triton.jit
def _piece(ptr, rows, n, strides, d, index: tl.constexpr, PIECE: tl.constexpr):
    """Columns index · PIECE to (index + 1) · PIECE of the rows; strides of batch, row and column."""
    cols = index * PIECE + tl.arange(0, PIECE).to(tl.int64)
    mask = (rows < n)[:, None] & (cols < d)[None, :]
    return tl.load(ptr + rows[:, None] * strides[1] + cols[None, :] * strides[2], mask=mask, other=0.0)


@triton.jit
def _kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, q_strides, k_strides, v_strides, n_queries, n_keys, d, scale,
    N_PIECES: tl.constexpr, PIECE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Grid (query tiles, batches); o and lse are contiguous. There are at most four pieces of d."""
    start_m, batch = tl.program_id(0) * BLOCK_M, tl.program_id(1).to(tl.int64)
    q_ptr += batch * q_strides[0]
    k_ptr += batch * k_strides[0]
    v_ptr += batch * v_strides[0]
    queries = start_m + tl.arange(0, BLOCK_M).to(tl.int64)
    q = [_piece(q_ptr, queries, n_queries, q_strides, d, i, PIECE) for i in (0, 1, 2, 3)[:N_PIECES]]
    o = [tl.zeros((BLOCK_M, PIECE), dtype=tl.float32) for i in (0, 1, 2, 3)[:N_PIECES]]
    m = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    end = tl.minimum(n_keys, start_m + BLOCK_M) if IS_CAUSAL else n_keys
    for start_n in range(0, end, BLOCK_N):
        keys = start_n + tl.arange(0, BLOCK_N).to(tl.int64)
        s = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for i in tl.static_range(N_PIECES):
            s = tl.dot(q[i], _piece(k_ptr, keys, n_keys, k_strides, d, i, PIECE).T, acc=s)
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, s * scale, float("-inf"))
        new_m = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - new_m[:, None])
        alpha = tl.exp(m - new_m)
        total = total * alpha + tl.sum(p, axis=1)
        p = p.to(v_ptr.dtype.element_ty)
        o = [
            tl.dot(p, _piece(v_ptr, keys, n_keys, v_strides, d, i, PIECE), acc=o[i] * alpha[:, None])
            for i in (0, 1, 2, 3)[:N_PIECES]
        ]
        m = new_m
    rows = batch * n_queries + queries
    for i in tl.static_range(N_PIECES):
        cols = i * PIECE + tl.arange(0, PIECE)
        mask = (queries < n_queries)[:, None] & (cols < d)[None, :]
        tl.store(o_ptr + rows[:, None] * d + cols[None, :], o[i] / total[:, None], mask=mask)
    tl.store(lse_ptr + rows, m + tl.log(total), mask=queries < n_queries)
