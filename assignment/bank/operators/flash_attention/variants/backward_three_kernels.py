"""FlashAttention-2 backward with a kernel for each gradient. The one for dV needs neither V nor D; the one for dQ goes
first and leaves D to the one for dK. P is recomputed transposed where the keys are the rows of the result.
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
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    """dQ = dS K/√d, dK = dSᵀ Q/√d and dV = Pᵀ dO, where dS = P ∘ (dO Vᵀ − D)."""
    for name, x, shape in (
        ("k", k, (*q.shape[:-2], *k.shape[-2:-1], q.shape[-1])),
        ("v", v, k.shape),
        ("grad_o", grad_o, q.shape),
        ("o", o, q.shape),
        ("lse", lse, q.shape[:-1]),
    ):
        if tuple(x.shape) != tuple(shape):
            raise ValueError(f"expected {name} of shape {tuple(shape)}, got {tuple(x.shape)}")
        if name != "lse" and x.dtype != q.dtype:
            raise ValueError(f"expected {name} in {q.dtype}, as q is, got {x.dtype}")

    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    if q.numel() == 0:
        return grad_q, grad_k, grad_v
    go3, q3, k3, v3, o3 = (x.reshape(-1, *x.shape[-2:]) for x in (grad_o, q, k, v, o))
    lse2 = lse.reshape(-1, n_queries).contiguous()
    delta = torch.empty_like(lse2)
    row_bytes = max(16, triton.next_power_of_2(d)) * q.element_size()
    tile = 64 if row_bytes <= 128 else 32 if row_bytes <= 512 else 16
    constants = {"CAUSAL": is_causal, "TILE": tile, "D_TILE": row_bytes // q.element_size()}
    constants |= {"num_warps": 4, "num_stages": 2 if row_bytes <= 128 else 1}
    sizes = n_queries, n_keys, d, d**-0.5
    n_batches = len(q3)
    _grad_q_kernel[(n_batches * triton.cdiv(n_queries, tile),)](
        go3, q3, k3, v3, o3, lse2, delta, grad_q,
        *go3.stride(), *q3.stride(), *k3.stride(), *v3.stride(), *o3.stride(), *sizes, **constants,
    )  # fmt: skip
    key_grid = (n_batches * triton.cdiv(n_keys, tile),)
    _grad_k_kernel[key_grid](
        go3, q3, k3, v3, lse2, delta, grad_k,
        *go3.stride(), *q3.stride(), *k3.stride(), *v3.stride(), *sizes, **constants,
    )  # fmt: skip
    _grad_v_kernel[key_grid](
        go3, q3, k3, lse2, grad_v,
        *go3.stride(), *q3.stride(), *k3.stride(), *sizes, **constants,
    )  # fmt: skip
    return grad_q, grad_k, grad_v


@triton.jit
def _place(n_rows, TILE: tl.constexpr):
    """Batch and first row of this program."""
    n_tiles = tl.cdiv(n_rows, TILE)
    return (tl.program_id(0) // n_tiles).to(tl.int64), (tl.program_id(0) % n_tiles) * TILE


@triton.jit
def _load(ptr, batch, rows, stride_b, stride_n, stride_d, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE).to(tl.int64)
    ptrs = ptr + batch * stride_b + rows.to(tl.int64)[:, None] * stride_n + cols[None, :] * stride_d
    return tl.load(ptrs, mask=(rows < n_rows)[:, None] & (cols < d)[None, :], other=0.0)


@triton.jit
def _store(ptr, x, batch, rows, n_rows, d, D_TILE: tl.constexpr):
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + (batch * n_rows + rows)[:, None] * d + cols[None, :]
    tl.store(ptrs, x.to(ptr.dtype.element_ty), mask=(rows < n_rows)[:, None] & (cols < d)[None, :])


@triton.jit
def _transposed_p(q, k, lse, queries, keys, n_keys, scale, CAUSAL: tl.constexpr):
    """Pᵀ (keys, queries); lse is +∞ for queries past the last."""
    seen = keys[:, None] < n_keys
    if CAUSAL:
        seen = seen & (keys[:, None] <= queries[None, :])
    return tl.exp(tl.where(seen, tl.dot(k, q.T) * scale, float("-inf")) - lse[None, :])


@triton.jit
def _grad_q_kernel(
    go_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, delta_ptr, grad_q_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d, o_b, o_n, o_d,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """go_b is the stride of grad_o along the batch, and so on; lse, delta and the gradients are contiguous."""
    batch, start = _place(n_queries, TILE)
    queries = start + tl.arange(0, TILE)
    q = _load(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
    o = _load(o_ptr, batch, queries, o_b, o_n, o_d, n_queries, d, D_TILE)
    go = _load(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
    lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=float("inf"))
    delta = tl.sum(go.to(tl.float32) * o.to(tl.float32), axis=1)
    tl.store(delta_ptr + batch * n_queries + queries, delta, mask=queries < n_queries)

    grad_q = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    stop = tl.minimum(n_keys, start + TILE) if CAUSAL else n_keys
    for first_key in range(0, stop, TILE):
        keys = first_key + tl.arange(0, TILE)
        k = _load(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
        v = _load(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
        seen = keys[None, :] < n_keys
        if CAUSAL:
            seen = seen & (keys[None, :] <= queries[:, None])
        p = tl.exp(tl.where(seen, tl.dot(q, k.T) * scale, float("-inf")) - lse[:, None])
        grad_s = p * (tl.dot(go, v.T) - delta[:, None])
        grad_q = tl.dot(grad_s.to(k.dtype), k, grad_q)
    _store(grad_q_ptr, grad_q * scale, batch, queries, n_queries, d, D_TILE)


@triton.jit
def _grad_k_kernel(
    go_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_k_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d, v_b, v_n, v_d,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    batch, start = _place(n_keys, TILE)
    keys = start + tl.arange(0, TILE)
    k = _load(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
    v = _load(v_ptr, batch, keys, v_b, v_n, v_d, n_keys, d, D_TILE)
    grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    for first_query in range(start if CAUSAL else 0, n_queries, TILE):
        queries = first_query + tl.arange(0, TILE)
        q = _load(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
        go = _load(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
        lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=float("inf"))
        delta = tl.load(delta_ptr + batch * n_queries + queries, mask=queries < n_queries, other=0.0)
        p = _transposed_p(q, k, lse, queries, keys, n_keys, scale, CAUSAL)
        grad_s = p * (tl.dot(v, go.T) - delta[None, :])
        grad_k = tl.dot(grad_s.to(q.dtype), q, grad_k)
    _store(grad_k_ptr, grad_k * scale, batch, keys, n_keys, d, D_TILE)


@triton.jit
def _grad_v_kernel(
    go_ptr, q_ptr, k_ptr, lse_ptr, grad_v_ptr,
    go_b, go_n, go_d, q_b, q_n, q_d, k_b, k_n, k_d,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    batch, start = _place(n_keys, TILE)
    keys = start + tl.arange(0, TILE)
    k = _load(k_ptr, batch, keys, k_b, k_n, k_d, n_keys, d, D_TILE)
    grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
    for first_query in range(start if CAUSAL else 0, n_queries, TILE):
        queries = first_query + tl.arange(0, TILE)
        q = _load(q_ptr, batch, queries, q_b, q_n, q_d, n_queries, d, D_TILE)
        go = _load(go_ptr, batch, queries, go_b, go_n, go_d, n_queries, d, D_TILE)
        lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=float("inf"))
        p = _transposed_p(q, k, lse, queries, keys, n_keys, scale, CAUSAL)
        grad_v = tl.dot(p.to(go.dtype), go, grad_v)
    _store(grad_v_ptr, grad_v, batch, keys, n_keys, d, D_TILE)
