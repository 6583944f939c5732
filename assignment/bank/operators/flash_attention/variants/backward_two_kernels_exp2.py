"""FlashAttention-2 backward with a kernel for D, one for dQ and one for dK and dV, on rectangular tiles: what a program
keeps is long, what it walks along is short. Powers of two throughout, with scale · log₂e and lse · log₂e folded in.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = math.log2(math.e)


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v) from what the forward pass left."""
    _expect(min(q.ndim, k.ndim) >= 2, "q and k of two dimensions or more", (q.shape, k.shape))
    _expect(k.shape == (*q.shape[:-2], k.shape[-2], q.shape[-1]), f"k to fit q {tuple(q.shape)}", k.shape)
    _expect(v.shape == k.shape, f"v of k's shape {tuple(k.shape)}", v.shape)
    _expect(q.dtype == k.dtype == v.dtype == grad_o.dtype == o.dtype, "one dtype", (q.dtype, k.dtype, v.dtype))
    _expect(grad_o.shape == o.shape == q.shape, f"grad_o and o of q's shape {tuple(q.shape)}", o.shape)
    _expect(lse.shape == q.shape[:-1], f"lse of shape {tuple(q.shape[:-1])}", lse.shape)

    grad_o, q_, k_, v_, o = (x.flatten(0, -3) if x.ndim > 2 else x.unsqueeze(0) for x in (grad_o, q, k, v, o))
    lse = lse.reshape(q_.shape[:2])
    grad_q, grad_k, grad_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() > 0:
        _launch(grad_o, q_, k_, v_, o, lse, grad_q, grad_k, grad_v, is_causal)
    return grad_q, grad_k, grad_v


def _expect(condition: bool, what: str, got: object) -> None:
    if not condition:
        raise ValueError(f"expected {what}, got {got}")


def _launch(grad_o, q, k, v, o, lse, grad_q, grad_k, grad_v, is_causal: bool) -> None:
    """Fill the gradients, which are contiguous; every input has one batch dimension."""
    (n_batches, n_queries, d), n_keys = q.shape, k.shape[1]
    d_tile = max(16, triton.next_power_of_2(d))
    long, short = {32: (128, 32), 64: (128, 32), 128: (128, 32), 256: (128, 32), 512: (64, 32), 1024: (32, 16)}[
        d_tile * q.element_size()
    ]
    delta = torch.empty_like(lse, memory_format=torch.contiguous_format)
    _delta_kernel[n_batches * triton.cdiv(n_queries, 32),](
        grad_o, o, delta, *grad_o.stride(), *o.stride(), n_queries, d, Q_TILE_SIZE=32, D_TILE_SIZE=d_tile
    )
    inputs = (
        grad_o, q, k, v, lse, delta,
        *grad_o.stride(), *q.stride(), *k.stride(), *v.stride(), *lse.stride(),
        n_queries, n_keys, d, d**-0.5 * LOG2_E,
    )  # fmt: skip
    options = {"IS_CAUSAL": is_causal, "D_TILE_SIZE": d_tile, "num_warps": 8, "num_stages": 1}
    _dq_kernel[n_batches * triton.cdiv(n_queries, long),](
        *inputs, d**-0.5, grad_q, Q_TILE_SIZE=long, K_TILE_SIZE=short, **options
    )
    _dkv_kernel[n_batches * triton.cdiv(n_keys, long),](
        *inputs, d**-0.5, grad_k, grad_v, Q_TILE_SIZE=short, K_TILE_SIZE=long, **options
    )


@triton.jit
def _offsets(rows, cols, stride_row, stride_col):
    return rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col


@triton.jit
def _delta_kernel(
    do_ptr, o_ptr, delta_ptr, stride_dob, stride_don, stride_dod, stride_ob, stride_on, stride_od,
    n_queries, d, Q_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO ∘ O), contiguous (n_batches, n_queries)."""
    tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    queries = (tl.program_id(0) % tiles) * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE)
    mask = (queries < n_queries)[:, None] & (cols < d)[None, :]
    do = tl.load(do_ptr + batch * stride_dob + _offsets(queries, cols, stride_don, stride_dod), mask=mask, other=0.0)
    o = tl.load(o_ptr + batch * stride_ob + _offsets(queries, cols, stride_on, stride_od), mask=mask, other=0.0)
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    tl.store(delta_ptr + batch * n_queries + queries, delta, mask=queries < n_queries)


@triton.jit
def _p_and_ds(q, k, v, do, lse2, delta, queries, keys, n_keys, scale2, IS_CAUSAL: tl.constexpr):
    """P and dS of one tile, both (Q, K) in float32; 2 to the power of −∞ hides a key."""
    exponent = tl.dot(q, tl.trans(k)) * scale2 - lse2[:, None]
    hidden = (keys >= n_keys)[None, :]
    if IS_CAUSAL:
        hidden = hidden | (keys[None, :] > queries[:, None])
    p = tl.exp2(tl.where(hidden, float("-inf"), exponent))
    return p, p * (tl.dot(do, tl.trans(v)) - delta[:, None])


@triton.jit
def _dq_kernel(
    do_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr,
    stride_dob, stride_don, stride_dod, stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd, stride_lb, stride_ln,
    n_queries, n_keys, d, scale2, scale, dq_ptr,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a query tile; scale2 = scale · log₂e, dq is contiguous."""
    tiles = tl.cdiv(n_queries, Q_TILE_SIZE)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    start = (tl.program_id(0) % tiles) * Q_TILE_SIZE
    queries = start + tl.arange(0, Q_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE)
    in_d = (cols < d)[None, :]
    mask = (queries < n_queries)[:, None] & in_d
    q = tl.load(q_ptr + batch * stride_qb + _offsets(queries, cols, stride_qn, stride_qd), mask=mask, other=0.0)
    do = tl.load(do_ptr + batch * stride_dob + _offsets(queries, cols, stride_don, stride_dod), mask=mask, other=0.0)
    lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
    lse2 = tl.load(lse_ptrs, mask=queries < n_queries, other=float("inf")) * 1.4426950408889634
    delta = tl.load(delta_ptr + batch * n_queries + queries, mask=queries < n_queries, other=0.0)

    dq = tl.zeros((Q_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    end = tl.minimum(start + Q_TILE_SIZE, n_keys) if IS_CAUSAL else n_keys
    for first in range(0, end, K_TILE_SIZE):
        keys = first + tl.arange(0, K_TILE_SIZE)
        kv_mask = (keys < n_keys)[:, None] & in_d
        k = tl.load(k_ptr + batch * stride_kb + _offsets(keys, cols, stride_kn, stride_kd), mask=kv_mask, other=0.0)
        v = tl.load(v_ptr + batch * stride_vb + _offsets(keys, cols, stride_vn, stride_vd), mask=kv_mask, other=0.0)
        _, ds = _p_and_ds(q, k, v, do, lse2, delta, queries, keys, n_keys, scale2, IS_CAUSAL)
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(
        dq_ptr + batch * n_queries * d + _offsets(queries, cols, d, 1),
        (dq * scale).to(dq_ptr.dtype.element_ty),
        mask=mask,
    )


@triton.jit
def _dkv_kernel(
    do_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr,
    stride_dob, stride_don, stride_dod, stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd, stride_lb, stride_ln,
    n_queries, n_keys, d, scale2, scale, dk_ptr, dv_ptr,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a key tile; dk and dv are contiguous."""
    tiles = tl.cdiv(n_keys, K_TILE_SIZE)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    start = (tl.program_id(0) % tiles) * K_TILE_SIZE
    keys = start + tl.arange(0, K_TILE_SIZE)
    cols = tl.arange(0, D_TILE_SIZE)
    in_d = (cols < d)[None, :]
    mask = (keys < n_keys)[:, None] & in_d
    k = tl.load(k_ptr + batch * stride_kb + _offsets(keys, cols, stride_kn, stride_kd), mask=mask, other=0.0)
    v = tl.load(v_ptr + batch * stride_vb + _offsets(keys, cols, stride_vn, stride_vd), mask=mask, other=0.0)

    dk = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    dv = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    for first in range(start if IS_CAUSAL else 0, n_queries, Q_TILE_SIZE):
        queries = first + tl.arange(0, Q_TILE_SIZE)
        in_q = queries < n_queries
        q_mask = in_q[:, None] & in_d
        q = tl.load(q_ptr + batch * stride_qb + _offsets(queries, cols, stride_qn, stride_qd), mask=q_mask, other=0.0)
        do_ptrs = do_ptr + batch * stride_dob + _offsets(queries, cols, stride_don, stride_dod)
        do = tl.load(do_ptrs, mask=q_mask, other=0.0)
        # An lse of +∞ gives p = 0 for the queries past the last.
        lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
        lse2 = tl.load(lse_ptrs, mask=in_q, other=float("inf")) * 1.4426950408889634
        delta = tl.load(delta_ptr + batch * n_queries + queries, mask=in_q, other=0.0)
        p, ds = _p_and_ds(q, k, v, do, lse2, delta, queries, keys, n_keys, scale2, IS_CAUSAL)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv)
        dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk)
    out = batch * n_keys * d + _offsets(keys, cols, d, 1)
    tl.store(dk_ptr + out, (dk * scale).to(dk_ptr.dtype.element_ty), mask=mask)
    tl.store(dv_ptr + out, dv.to(dv_ptr.dtype.element_ty), mask=mask)
