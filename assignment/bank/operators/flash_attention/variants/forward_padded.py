"""Padding in place of masks: the wrapper copies q, k and v into contiguous tensors whose sizes are whole tiles, the
kernel loads and stores without a mask and only hides the keys that were added, and the results are cut back.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.nn import functional

Q_TILE_SIZE = 64
K_TILE_SIZE = 32


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse), views of padded results."""
    _check(q, k, v)
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    q_padded = _pad(q, Q_TILE_SIZE)
    k_padded, v_padded = _pad(k, K_TILE_SIZE), _pad(v, K_TILE_SIZE)
    n_batches, n_queries_padded, d_padded = q_padded.shape
    o = torch.empty_like(q_padded)
    lse = torch.empty(q_padded.shape[:2], dtype=torch.float32, device=q.device)
    if n_batches > 0:
        _padded_kernel[(n_queries_padded // Q_TILE_SIZE * n_batches,)](
            q_padded, k_padded, v_padded, o, lse,
            n_queries_padded, k_padded.shape[1], n_keys, d**-0.5,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=Q_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE, D=d_padded,
            num_warps=4 if d_padded <= 64 else 8, num_stages=2 if d_padded <= 64 else 1,
        )  # fmt: skip
    o = o[:, :n_queries, :d].unflatten(0, (*q.shape[:-2], 1)).squeeze(-3)
    return o, lse[:, :n_queries].unflatten(0, (*q.shape[:-2], 1)).squeeze(-2)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    (*q_batch, _, q_d), (*k_batch, k_length, k_d), (*v_batch, v_length, v_d) = q.shape, k.shape, v.shape
    for name, of_q, of_k, of_v in (
        ("head dimension", q_d, k_d, v_d),
        ("batch dimensions", q_batch, k_batch, v_batch),
        ("length of k and v", k_length, k_length, v_length),
        ("dtype", q.dtype, k.dtype, v.dtype),
    ):
        if of_q != of_k or of_k != of_v:
            raise ValueError(f"expected the same {name}, got {of_q}, {of_k} and {of_v}")


def _pad(x: Tensor, tile_size: int) -> Tensor:
    """(batches, whole tiles, a power of two from 16), contiguous; zeros add nothing to any product."""
    n, d = x.shape[-2:]
    padded = functional.pad(x.reshape(x.shape[:-2].numel(), n, d), (0, _width(d) - d, 0, -n % tile_size))
    return padded.contiguous()


def _width(d: int) -> int:
    return max(16, 1 << (d - 1).bit_length())


@triton.jit
def _padded_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    n_queries_padded, n_keys_padded, n_keys, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """All tensors are contiguous and whole tiles long. Grid: (batches · query tiles,)."""
    n_query_tiles = n_queries_padded // Q_TILE_SIZE
    batch = (tl.program_id(0) // n_query_tiles).to(tl.int64)
    first_query = (tl.program_id(0) % n_query_tiles) * Q_TILE_SIZE
    queries, keys, cols = tl.arange(0, Q_TILE_SIZE), tl.arange(0, K_TILE_SIZE), tl.arange(0, D)
    q_offset = (batch * n_queries_padded + first_query) * D
    q_tile = queries[:, None] * D + cols[None, :]
    kv_tile = keys[:, None] * D + cols[None, :]
    q = tl.load(q_ptr + q_offset + q_tile)
    k_ptr += batch * n_keys_padded * D
    v_ptr += batch * n_keys_padded * D

    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32)
    row_sum = tl.full((Q_TILE_SIZE,), 0.0, dtype=tl.float32)
    o = tl.full((Q_TILE_SIZE, D), 0.0, dtype=tl.float32)
    end = n_keys
    if IS_CAUSAL:
        end = tl.minimum(n_keys, first_query + Q_TILE_SIZE)
    for first_key in range(0, end, K_TILE_SIZE):
        k = tl.load(k_ptr + kv_tile)
        v = tl.load(v_ptr + kv_tile)
        s = tl.dot(q, k.T, out_dtype=tl.float32) * scale
        last_visible = n_keys - 1 - first_key  # of the keys of this tile
        if IS_CAUSAL:
            last_visible = tl.minimum(last_visible, first_query - first_key + queries)[:, None]
        s = tl.where(keys[None, :] <= last_visible, s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        rescale = tl.exp(row_max - new_max)
        p = tl.exp(s - new_max[:, None])
        row_sum = tl.fma(row_sum, rescale, tl.sum(p, axis=1))
        o = tl.dot(p.to(v.dtype), v, acc=o * rescale[:, None])
        row_max = new_max
        k_ptr += K_TILE_SIZE * D
        v_ptr += K_TILE_SIZE * D

    tl.store(o_ptr + q_offset + q_tile, (o / row_sum[:, None]).to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + batch * n_queries_padded + first_query + queries, row_max + tl.log(row_sum))
