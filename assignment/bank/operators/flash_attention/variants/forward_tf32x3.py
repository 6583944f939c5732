"""Three TF32 products in place of one float32 product (input_precision="tf32x3"), and the online softmax as a small
function of (row_max, row_sum, o) that every key tile is folded into.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse): o = softmax(q kᵀ / √d) v, lse the natural logarithm of each row's sum of exponentials."""
    expected = (*q.shape[:-2], k.shape[-2], q.shape[-1])
    if k.shape != expected or v.shape != expected:
        raise ValueError(f"expected k and v of shape {expected}, got {tuple(k.shape)} and {tuple(v.shape)}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"expected k and v in {q.dtype}, got {k.dtype} and {v.dtype}")
    q_, k_, v_ = (x[None] if x.ndim == 2 else x.flatten(0, -3) for x in (q, k, v))
    n_batches, n_queries, d = q_.shape
    o = q.new_empty(n_batches, n_queries, d)
    lse = torch.full((n_batches, n_queries), torch.nan, dtype=torch.float32, device=q.device)
    k_tile_size = 64 if d <= 64 else 32 if d <= 128 else 16
    if n_batches > 0:
        _kernel[(triton.cdiv(n_queries, 32) * n_batches, 1, 1)](
            q_, k_, v_, o, lse, n_queries, k_.size(1), d, 1 / d**0.5,
            q_.stride(0), q_.stride(1), q_.stride(2),
            k_.stride(0), k_.stride(1), k_.stride(2),
            v_.stride(0), v_.stride(1), v_.stride(2),
            IS_CAUSAL=is_causal, Q_TILE=32, K_TILE=k_tile_size, D_TILE=triton.next_power_of_2(max(d, 16)),
            num_warps=4, num_stages=1,
        )  # fmt: skip
    return o.view(q.shape), lse.view(q.shape[:-1])


@triton.jit
def _load(base, rows, cols, stride_row, stride_col, n_rows, n_cols):
    """The tile of (rows, cols), zero outside of the matrix, and which of the rows are inside."""
    inside = rows < n_rows
    ptrs = base + rows[:, None] * stride_row + cols[None, :] * stride_col
    return tl.load(ptrs, mask=inside[:, None] & (cols < n_cols)[None, :], other=0.0), inside


@triton.jit
def _softmax_step(s, row_max, row_sum):
    """One more tile of scores: its weights, the new maximum and sum, and the factor for what came before."""
    new_max = tl.maximum(row_max, tl.max(s, axis=1))
    factor = tl.exp(row_max - new_max)
    p = tl.exp(s - new_max[:, None])
    return p, new_max, factor * row_sum + tl.sum(p, axis=1), factor


@triton.jit
def _hide(s, queries, keys, keys_inside, IS_CAUSAL: tl.constexpr):
    s = tl.where(keys_inside[None, :], s, float("-inf"))
    if IS_CAUSAL:
        s = tl.where(queries[:, None] >= keys[None, :], s, float("-inf"))
    return s


@triton.jit
def _kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    n_queries, n_keys, d, scale,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    IS_CAUSAL: tl.constexpr, Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (query tiles · batches,), the query tiles of one batch side by side; o and lse are contiguous."""
    tiles_per_batch = tl.cdiv(n_queries, Q_TILE)
    batch = (tl.program_id(0) // tiles_per_batch).to(tl.int64)
    first_query = (tl.program_id(0) % tiles_per_batch) * Q_TILE
    queries = (first_query + tl.arange(0, Q_TILE)).to(tl.int64)
    cols = tl.arange(0, D_TILE).to(tl.int64)

    q, queries_inside = _load(q_ptr + batch * stride_qb, queries, cols, stride_qn, stride_qd, n_queries, d)
    row_max = tl.full((Q_TILE,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE,), dtype=tl.float32)
    o = tl.zeros((Q_TILE, D_TILE), dtype=tl.float32)
    stop = n_keys
    if IS_CAUSAL:
        stop = tl.minimum(n_keys, first_query + Q_TILE)
    for start in tl.range(0, stop, K_TILE):
        keys = (start + tl.arange(0, K_TILE)).to(tl.int64)
        k, keys_inside = _load(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd, n_keys, d)
        v, _ = _load(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd, n_keys, d)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale
        s = _hide(s, queries, keys, keys_inside, IS_CAUSAL)
        p, row_max, row_sum, factor = _softmax_step(s, row_max, row_sum)
        o = tl.dot(p.to(v.dtype), v, acc=o * factor[:, None], input_precision="tf32x3")

    out = batch * n_queries + queries
    o_mask = queries_inside[:, None] & (cols < d)[None, :]
    tl.store(o_ptr + out[:, None] * d + cols[None, :], (o / row_sum[:, None]).to(o_ptr.dtype.element_ty), mask=o_mask)
    tl.store(lse_ptr + out, row_max + tl.log(row_sum), mask=queries_inside)
