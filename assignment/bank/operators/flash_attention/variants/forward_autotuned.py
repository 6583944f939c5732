"""Tile sizes found by trying: @triton.autotune picks among three configurations for each (lengths, d, causal), and
@triton.heuristics derive the width of a tile and whether the last key tile is full.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    """(o, lse) of attention; the first call for new sizes runs the kernel several times."""
    for x in (k, v):
        if x.ndim != q.ndim or x.shape[:-2] != q.shape[:-2] or x.shape[-1] != q.shape[-1]:
            raise ValueError(f"expected batch and d of q {list(q.shape)}, got {list(x.shape)}")
        if x.dtype != q.dtype:
            raise ValueError(f"expected {q.dtype} as q is, got {x.dtype}")
    if k.shape != v.shape:
        raise ValueError(f"expected as many values as keys, got {list(v.shape)} and {list(k.shape)}")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    n_batches = q.shape[:-2].numel()
    if n_batches == 0:
        return o, lse
    q_, k_, v_, o_ = (x.reshape(n_batches, *x.shape[-2:]) for x in (q, k, v, o))
    lse_ = lse.view(n_batches, -1)

    def grid(meta):
        return (n_batches * triton.cdiv(meta["n_queries"], meta["Q_TILE_SIZE"]),)

    _tuned_kernel[grid](
        q_, k_, v_, o_, lse_,
        *q_.stride(), *k_.stride(), *v_.stride(), *o_.stride(), *lse_.stride(),
        n_queries=q_.shape[1], n_keys=k_.shape[1], d=q_.shape[2], scale=q_.shape[2] ** -0.5, IS_CAUSAL=is_causal,
    )  # fmt: skip
    return o, lse


# The first fits whatever d is; the others are dropped where rows are long.
CONFIGS = [
    triton.Config({"Q_TILE_SIZE": 32, "K_TILE_SIZE": 32}, num_warps=4, num_stages=1),
    triton.Config({"Q_TILE_SIZE": 64, "K_TILE_SIZE": 32}, num_warps=4, num_stages=2),
    triton.Config({"Q_TILE_SIZE": 128, "K_TILE_SIZE": 64}, num_warps=8, num_stages=2),
]


def _fits(configs, named_args, **kwargs):
    """The configurations whose tiles take at most 128 KB in all stages."""
    row_bytes = max(16, triton.next_power_of_2(kwargs["d"])) * named_args["q_ptr"].element_size()
    rows = {c: c.kwargs["Q_TILE_SIZE"] + 2 * c.num_stages * c.kwargs["K_TILE_SIZE"] for c in configs}
    return [c for c in configs if rows[c] * row_bytes <= 128 * 1024]


@triton.autotune(CONFIGS, key=["n_queries", "n_keys", "d", "IS_CAUSAL"], prune_configs_by={"early_config_prune": _fits})
@triton.heuristics(
    {
        "D_TILE_SIZE": lambda args: max(16, triton.next_power_of_2(args["d"])),
        "EVEN_KEYS": lambda args: args["n_keys"] % args["K_TILE_SIZE"] == 0,
    }
)
@triton.jit
def _tuned_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
    D_TILE_SIZE: tl.constexpr, EVEN_KEYS: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · query tiles,). EVEN_KEYS: n_keys is a multiple of K_TILE_SIZE."""
    tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    first_query = (tl.program_id(0) % tiles) * Q_TILE_SIZE
    queries = first_query.to(tl.int64) + tl.arange(0, Q_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    col_mask = (cols < d)[None, :]
    query_mask = queries < n_queries
    q_ptrs = q_ptr + batch * stride_qb + queries[:, None] * stride_qn + cols[None, :] * stride_qd
    q = tl.load(q_ptrs, mask=query_mask[:, None] & col_mask, other=0.0)
    keys = tl.arange(0, K_TILE_SIZE).to(tl.int64)
    k_ptrs = k_ptr + batch * stride_kb + keys[:, None] * stride_kn + cols[None, :] * stride_kd
    v_ptrs = v_ptr + batch * stride_vb + keys[:, None] * stride_vn + cols[None, :] * stride_vd

    row_max = tl.full((Q_TILE_SIZE,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((Q_TILE_SIZE,), dtype=tl.float32)
    o = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    end = tl.minimum(first_query + Q_TILE_SIZE, n_keys) if IS_CAUSAL else n_keys
    for first_key in range(0, end, K_TILE_SIZE):
        step = tl.cast(first_key, tl.int64)
        mask = col_mask if EVEN_KEYS else col_mask & (step + keys < n_keys)[:, None]
        k = tl.load(k_ptrs + step * stride_kn, mask=mask, other=0.0)
        v = tl.load(v_ptrs + step * stride_vn, mask=mask, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        if not EVEN_KEYS:
            s = tl.where((step + keys < n_keys)[None, :], s, float("-inf"))
        if IS_CAUSAL:
            s = tl.where((step + keys)[None, :] <= queries[:, None], s, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(s, axis=1))
        p = tl.exp(s - new_max[:, None])
        rescale = tl.exp(row_max - new_max)
        row_sum = rescale * row_sum + tl.sum(p, axis=1)
        o = rescale[:, None] * o + tl.dot(p.to(v.dtype), v)
        row_max = new_max

    o_ptrs = o_ptr + batch * stride_ob + queries[:, None] * stride_on + cols[None, :] * stride_od
    tl.store(o_ptrs, (o / row_sum[:, None]).to(o_ptr.dtype.element_ty), mask=query_mask[:, None] & col_mask)
    tl.store(lse_ptr + batch * stride_lb + queries * stride_ln, row_max + tl.log(row_sum), mask=query_mask)
