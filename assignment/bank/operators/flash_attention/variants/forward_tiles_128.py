"""Large tiles, 128 queries by 64 keys (64 by 128 where rows are long), over (batch, heads, n, d) views of the inputs
and a three-dimensional grid of (query tile, head, batch).
"""

import itertools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

CUDA_GRID_LIMIT = 65535  # of the second and third axis


class Tiling(NamedTuple):
    queries: int
    keys: int
    d: int
    num_warps: int
    num_stages: int


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse) of softmax(q kᵀ / √d) v."""
    require_same("dtypes", q.dtype, k.dtype, v.dtype)
    require_same("last dimensions", q.shape[-1], k.shape[-1], v.shape[-1])
    require_same("batch dimensions", q.shape[:-2], k.shape[:-2], v.shape[:-2])
    require_same("lengths of k and v", k.shape[-2], v.shape[-2])
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q4, k4, v4, o4 = (as_batch_heads(x) for x in (q, k, v, o))
    lse3 = as_batch_heads(lse[..., None])[..., 0]
    n_batches, n_heads = q4.shape[:2]
    starts = itertools.product(range(0, n_batches, CUDA_GRID_LIMIT), range(0, n_heads, CUDA_GRID_LIMIT))
    for batch, head in starts:
        part = slice(batch, batch + CUDA_GRID_LIMIT), slice(head, head + CUDA_GRID_LIMIT)
        launch(q4[part], k4[part], v4[part], o4[part], lse3[part], is_causal)
    return o, lse


def require_same(what: str, *values: object) -> None:
    if any(value != values[0] for value in values):
        raise ValueError(f"expected the same {what}, got {values}")


def as_batch_heads(x: Tensor) -> Tensor:
    """(batch, heads, n, d): missing batch dimensions are added in front, and all but the last are made one."""
    if x.ndim < 4:
        return x.expand(*[1] * (4 - x.ndim), *x.shape)
    return x.reshape(-1, *x.shape[-3:])


def tiling(d: int, element_size: int) -> Tiling:
    """The largest tiles whose q, k and v stay below 128 KB of shared memory."""
    d_tile = max(16, triton.next_power_of_2(d))
    row_bytes = d_tile * element_size
    if row_bytes <= 256:
        return Tiling(128, 64, d_tile, num_warps=8, num_stages=2)
    if row_bytes <= 512:
        return Tiling(64, 128, d_tile, num_warps=8, num_stages=1)
    return Tiling(64, 32, d_tile, num_warps=8, num_stages=1)


def launch(q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool) -> None:
    n_batches, n_heads, n_queries, d = q.shape
    tiles = tiling(d, q.element_size())
    grid = (triton.cdiv(n_queries, tiles.queries), n_heads, n_batches)
    attention_kernel[grid](
        q, *q.stride(), k, *k.stride(), v, *v.stride(), o, *o.stride(), lse, *lse.stride(),
        n_queries, k.shape[2], d, d**-0.5,
        IS_CAUSAL=is_causal, QUERIES=tiles.queries, KEYS=tiles.keys, D=tiles.d,
        num_warps=tiles.num_warps, num_stages=tiles.num_stages,
    )  # fmt: skip


@triton.jit
def attention_kernel(
    q_ptr, q_batch, q_head, q_row, q_col,
    k_ptr, k_batch, k_head, k_row, k_col,
    v_ptr, v_batch, v_head, v_row, v_col,
    o_ptr, o_batch, o_head, o_row, o_col,
    lse_ptr, lse_batch, lse_head, lse_row,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Each pointer is followed by its strides. Grid: (query tiles, heads, batches)."""
    tile, head, batch = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    queries = (tile * QUERIES + tl.arange(0, QUERIES)).to(tl.int64)
    cols = tl.arange(0, D).to(tl.int64)
    tile_mask = (queries < n_queries)[:, None] & (cols < d)[None, :]
    q_ptrs = q_ptr + batch * q_batch + head * q_head + queries[:, None] * q_row + cols[None, :] * q_col
    q = tl.load(q_ptrs, mask=tile_mask, other=0.0)
    k_ptr += batch * k_batch + head * k_head
    v_ptr += batch * v_batch + head * v_head

    m = tl.full((QUERIES,), -float("inf"), tl.float32)
    l = tl.zeros((QUERIES,), tl.float32)  # noqa: E741, the paper's name
    acc = tl.zeros((QUERIES, D), tl.float32)
    end = tl.minimum((tile + 1) * QUERIES, n_keys) if IS_CAUSAL else n_keys
    for first_key in range(0, end, KEYS):
        keys = (first_key + tl.arange(0, KEYS)).to(tl.int64)
        kv_mask = (keys < n_keys)[:, None] & (cols < d)[None, :]
        k = tl.load(k_ptr + keys[:, None] * k_row + cols[None, :] * k_col, mask=kv_mask, other=0.0)
        s = tl.dot(q, k.T) * scale
        if IS_CAUSAL:
            s += tl.where((keys[None, :] <= queries[:, None]) & (keys < n_keys)[None, :], 0.0, -float("inf"))
        else:
            s += tl.where(keys < n_keys, 0.0, -float("inf"))[None, :]
        m_next = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_next[:, None])
        alpha = tl.exp(m - m_next)
        l = l * alpha + tl.sum(p, 1)  # noqa: E741
        v = tl.load(v_ptr + keys[:, None] * v_row + cols[None, :] * v_col, mask=kv_mask, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_next

    o_ptrs = o_ptr + batch * o_batch + head * o_head + queries[:, None] * o_row + cols[None, :] * o_col
    tl.store(o_ptrs, (acc / l[:, None]).to(o_ptr.dtype.element_ty), mask=tile_mask)
    lse_ptrs = lse_ptr + batch * lse_batch + head * lse_head + queries * lse_row
    tl.store(lse_ptrs, m + tl.log(l), mask=queries < n_queries)
