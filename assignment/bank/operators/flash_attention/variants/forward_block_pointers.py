"""Block pointers: the tiles of k and v advance along the keys, and boundary checks fill what is outside with zeros."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse) of attention, for q (..., n_queries, d) and k, v (..., n_keys, d)."""
    validate(q, k, v)
    q_view, k_view, v_view = flat(q), flat(k), flat(v)
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    o_view = flat(o)
    lse = torch.empty(q_view.shape[:-1], dtype=torch.float32, device=q.device)
    n_batches, n_queries, d = q_view.shape
    if n_batches > 0:
        q_tile = 64 if d <= 64 else 32
        k_tile = 32 if d <= 128 else 16
        block_pointer_kernel[(triton.cdiv(n_queries, q_tile) * n_batches,)](
            q_view, k_view, v_view, o_view, lse,
            *q_view.stride(), *k_view.stride(), *v_view.stride(), *o_view.stride(), *lse.stride(),
            n_queries, k_view.shape[1], d, d**-0.5,
            q_tile, k_tile, max(16, triton.next_power_of_2(d)), is_causal,
            num_warps=4, num_stages=2 if d <= 64 else 1,
        )  # fmt: skip
    return o, lse.reshape(q.shape[:-1])


def flat(x: Tensor) -> Tensor:
    return x.reshape(x.shape[:-2].numel(), x.shape[-2], x.shape[-1])


def validate(q: Tensor, k: Tensor, v: Tensor) -> None:
    match (q.shape, k.shape, v.shape):
        case ((*a, _, i), (*b, n, j), (*c, m, l)) if a == b == c and i == j == l and n == m:
            pass
        case shapes:
            raise ValueError(f"expected q (*, n_queries, d) and k, v (*, n_keys, d), got {[tuple(s) for s in shapes]}")
    if q.dtype != k.dtype or k.dtype != v.dtype:
        raise ValueError(f"expected q, k and v of one type, got {q.dtype}, {k.dtype} and {v.dtype}")


@triton.jit
def block_pointer_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od,
    stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Grid: (query tiles · batches,). The block pointer of k is that of its transpose, (d, n_keys)."""
    n_query_tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    first_query = tl.program_id(0) % n_query_tiles * Q_TILE_SIZE
    batch = (tl.program_id(0) // n_query_tiles).to(tl.int64)
    q_block = tl.make_block_ptr(
        q_ptr + batch * stride_qb, (n_queries, d), (stride_qn, stride_qd),
        (first_query, 0), (Q_TILE_SIZE, D_TILE_SIZE), (1, 0),
    )  # fmt: skip
    k_block = tl.make_block_ptr(
        k_ptr + batch * stride_kb, (d, n_keys), (stride_kd, stride_kn), (0, 0), (D_TILE_SIZE, K_TILE_SIZE), (0, 1)
    )
    v_block = tl.make_block_ptr(
        v_ptr + batch * stride_vb, (n_keys, d), (stride_vn, stride_vd), (0, 0), (K_TILE_SIZE, D_TILE_SIZE), (1, 0)
    )
    o_block = tl.make_block_ptr(
        o_ptr + batch * stride_ob, (n_queries, d), (stride_on, stride_od),
        (first_query, 0), (Q_TILE_SIZE, D_TILE_SIZE), (1, 0),
    )  # fmt: skip
    lse_block = tl.make_block_ptr(
        lse_ptr + batch * stride_lb, (n_queries,), (stride_ln,), (first_query,), (Q_TILE_SIZE,), (0,)
    )

    q = tl.load(q_block, boundary_check=(0, 1), padding_option="zero")
    queries = first_query + tl.arange(0, Q_TILE_SIZE)
    m = tl.full([Q_TILE_SIZE], float("-inf"), tl.float32)
    normaliser = tl.zeros([Q_TILE_SIZE], tl.float32)
    acc = tl.zeros([Q_TILE_SIZE, D_TILE_SIZE], tl.float32)
    end = tl.minimum(first_query + Q_TILE_SIZE, n_keys) if IS_CAUSAL else n_keys
    for first_key in range(0, end, K_TILE_SIZE):
        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.dot(q, k) * scale
        keys = first_key + tl.arange(0, K_TILE_SIZE)
        visible = keys[None, :] < n_keys
        if IS_CAUSAL:
            visible &= keys[None, :] <= queries[:, None]
        s = tl.where(visible, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - m_new[:, None])
        decay = tl.exp(m - m_new)
        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")
        acc = acc * decay[:, None] + tl.dot(p.to(v.dtype), v)
        normaliser = normaliser * decay + tl.sum(p, axis=1)
        m = m_new
        k_block = tl.advance(k_block, (0, K_TILE_SIZE))
        v_block = tl.advance(v_block, (K_TILE_SIZE, 0))

    tl.store(o_block, (acc / normaliser[:, None]).to(o_ptr.dtype.element_ty), boundary_check=(0, 1))
    tl.store(lse_block, m + tl.log(normaliser), boundary_check=(0,))
