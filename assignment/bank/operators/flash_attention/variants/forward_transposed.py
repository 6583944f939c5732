"""Everything transposed: Sᵀ = K Qᵀ with keys in rows, softmax down the columns, Oᵀ = Vᵀ Pᵀ; only the pointers of the
loads and stores know. A backward pass of the same kind, grad_q in one kernel, grad_k and grad_v in another.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from einops import rearrange
from torch import Tensor

Q_TILE, K_TILE = 32, 32


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse); o is stored as its transpose, and returned as a view with d as the slow dimension."""
    _check(q, k, v)
    o = q.new_empty(*q.shape[:-2], q.shape[-1], q.shape[-2]).mT
    lse = q.new_empty(q.shape[:-1], dtype=torch.float32)
    q_, k_, v_, o_ = _merge_batch(q, k, v, o)
    if len(q_) > 0:
        _forward_kernel[(len(q_) * triton.cdiv(q_.shape[1], Q_TILE),)](
            q_, k_, v_, o_, lse,
            *q_.stride(), *k_.stride(), *v_.stride(), *o_.stride(),
            q_.shape[1], k_.shape[1], q_.shape[2], q_.shape[2] ** -0.5, is_causal, *_tiles(q),
            num_stages=1,
        )  # fmt: skip
    return o, lse


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v), like q, k and v."""
    _check(q, k, v)
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse of q's shape {tuple(q.shape)}, got {grad_o.shape}, {lse.shape}")
    delta = torch.einsum("...d,...d->...", grad_o.float(), o.float()).contiguous()
    grad_q, grad_k, grad_v = (x.new_empty(x.shape) for x in (q, k, v))
    q_, k_, v_, grad_o_ = _merge_batch(q, k, v, grad_o)
    (n_batches, n_queries, d), n_keys = q_.shape, k_.shape[1]
    arguments = (
        q_, k_, v_, grad_o_, lse.contiguous(), delta,
        *q_.stride(), *k_.stride(), *v_.stride(), *grad_o_.stride(), n_queries, n_keys, d, d**-0.5,
    )  # fmt: skip
    if n_batches > 0:
        q_grid, k_grid = (n_batches * triton.cdiv(n_queries, Q_TILE),), (n_batches * triton.cdiv(n_keys, K_TILE),)
        _grad_q_kernel[q_grid](*arguments, grad_q, is_causal, *_tiles(q), num_stages=1)
        _grad_kv_kernel[k_grid](*arguments, grad_k, grad_v, is_causal, *_tiles(q), num_stages=1)
    return grad_q, grad_k, grad_v


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """o of flash_forward_triton, differentiable in q, k and v."""
    return _FlashAttention.apply(q, k, v, is_causal)[0]


class _FlashAttention(torch.autograd.Function):
    """(o, lse), of which only o has a gradient."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
        return flash_forward_triton(q, k, v, is_causal=is_causal)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.is_causal = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*tensors, *output)

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        with torch.no_grad():
            return *flash_backward_triton(grad_o, q, k, v, o, lse, ctx.is_causal), None


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    if k.shape != v.shape or (*q.shape[:-2], q.shape[-1]) != (*k.shape[:-2], k.shape[-1]):
        raise ValueError(f"expected q (*b, n, d) and k, v (*b, m, d), got {[tuple(x.shape) for x in (q, k, v)]}")
    if q.dtype != k.dtype or q.dtype != v.dtype:
        raise ValueError(f"expected q, k and v of one dtype, got {[x.dtype for x in (q, k, v)]}")


def _merge_batch(*tensors: Tensor) -> list[Tensor]:
    return [rearrange(x.unsqueeze(0), "... n d -> (...) n d") for x in tensors]


def _tiles(x: Tensor) -> tuple[int, int, int]:
    return Q_TILE, K_TILE, max(16, triton.next_power_of_2(x.shape[-1]))


@triton.jit
def _ptrs(ptr, rows, cols, stride_row, stride_col):
    return ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col


@triton.jit
def _mask(rows, cols, n_rows, n_cols):
    return (rows < n_rows)[:, None] & (cols < n_cols)[None, :]


@triton.jit
def _hidden(keys, queries, n_keys, IS_CAUSAL: tl.constexpr):
    """(K, Q): the keys that a query does not see."""
    hidden = (keys >= n_keys)[:, None]
    if IS_CAUSAL:
        hidden = hidden | (keys[:, None] > queries[None, :])
    return hidden


@triton.jit
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_ob, stride_on, stride_od,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · query tiles,); lse is contiguous."""
    n_tiles = tl.cdiv(n_queries, Q_TILE)
    batch, first_query = (tl.program_id(0) // n_tiles).to(tl.int64), tl.program_id(0) % n_tiles * Q_TILE
    queries, cols = first_query + tl.arange(0, Q_TILE), tl.arange(0, D_TILE)
    q_ptrs = _ptrs(q_ptr + batch * stride_qb, cols, queries, stride_qd, stride_qn)
    q_t = tl.load(q_ptrs, mask=_mask(cols, queries, d, n_queries), other=0.0)  # (D, Q)
    row_max = tl.full((1, Q_TILE), float("-inf"), tl.float32)
    row_sum = tl.zeros((1, Q_TILE), tl.float32)
    o_t = tl.zeros((D_TILE, Q_TILE), tl.float32)
    for first_key in range(0, tl.minimum(n_keys, first_query + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        keys = first_key + tl.arange(0, K_TILE)
        k_ptrs = _ptrs(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd)
        k = tl.load(k_ptrs, mask=_mask(keys, cols, n_keys, d), other=0.0)  # (K, D)
        v_ptrs = _ptrs(v_ptr + batch * stride_vb, cols, keys, stride_vd, stride_vn)
        v_t = tl.load(v_ptrs, mask=_mask(cols, keys, d, n_keys), other=0.0)  # (D, K)
        s_t = tl.where(_hidden(keys, queries, n_keys, IS_CAUSAL), float("-inf"), tl.dot(k, q_t) * scale)  # (K, Q)
        new_max = tl.maximum(row_max, tl.max(s_t, axis=0, keep_dims=True))
        p_t = tl.exp(s_t - new_max)
        rescale = tl.exp(row_max - new_max)
        row_sum = row_sum * rescale + tl.sum(p_t, axis=0, keep_dims=True)
        o_t = o_t * rescale + tl.dot(v_t, p_t.to(v_t.dtype))
        row_max = new_max
    o_ptrs = _ptrs(o_ptr + batch * stride_ob, cols, queries, stride_od, stride_on)
    tl.store(o_ptrs, (o_t / row_sum).to(o_ptr.dtype.element_ty), mask=_mask(cols, queries, d, n_queries))
    lse_ptrs = lse_ptr + batch * n_queries + queries[None, :]
    tl.store(lse_ptrs, row_max + tl.log(row_sum), mask=(queries < n_queries)[None, :])


@triton.jit
def _weights(
    k, v, keys, queries, cols, q_ptr, grad_o_ptr, lse_ptr, delta_ptr,
    stride_qn, stride_qd, stride_gn, stride_gd, n_queries, n_keys, d, scale, IS_CAUSAL: tl.constexpr,
):  # fmt: skip
    """Pᵀ and dSᵀ (K, Q), and the Qᵀ and dOᵀ (D, Q) that they were made of."""
    mask = _mask(cols, queries, d, n_queries)
    q_t = tl.load(_ptrs(q_ptr, cols, queries, stride_qd, stride_qn), mask=mask, other=0.0)
    grad_o_t = tl.load(_ptrs(grad_o_ptr, cols, queries, stride_gd, stride_gn), mask=mask, other=0.0)
    lse = tl.load(lse_ptr + queries, mask=queries < n_queries, other=float("inf"))[None, :]  # p = 0 past the last query
    delta = tl.load(delta_ptr + queries, mask=queries < n_queries, other=0.0)[None, :]
    s_t = tl.where(_hidden(keys, queries, n_keys, IS_CAUSAL), float("-inf"), tl.dot(k, q_t) * scale)
    p_t = tl.exp(s_t - lse)
    return p_t, p_t * (tl.dot(v, grad_o_t) - delta), q_t, grad_o_t


@triton.jit
def _grad_q_kernel(
    q_ptr, k_ptr, v_ptr, grad_o_ptr, lse_ptr, delta_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_gb, stride_gn, stride_gd,
    n_queries, n_keys, d, scale, grad_q_ptr,
    IS_CAUSAL: tl.constexpr, Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · query tiles,); lse, delta and grad_q are contiguous."""
    n_tiles = tl.cdiv(n_queries, Q_TILE)
    batch, first_query = (tl.program_id(0) // n_tiles).to(tl.int64), tl.program_id(0) % n_tiles * Q_TILE
    queries, cols = first_query + tl.arange(0, Q_TILE), tl.arange(0, D_TILE)
    grad_q_t = tl.zeros((D_TILE, Q_TILE), tl.float32)
    for first_key in range(0, tl.minimum(n_keys, first_query + Q_TILE) if IS_CAUSAL else n_keys, K_TILE):
        keys = first_key + tl.arange(0, K_TILE)
        mask = _mask(keys, cols, n_keys, d)
        k = tl.load(_ptrs(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd), mask=mask, other=0.0)
        v = tl.load(_ptrs(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd), mask=mask, other=0.0)
        _, grad_s_t, _, _ = _weights(
            k, v, keys, queries, cols, q_ptr + batch * stride_qb, grad_o_ptr + batch * stride_gb,
            lse_ptr + batch * n_queries, delta_ptr + batch * n_queries,
            stride_qn, stride_qd, stride_gn, stride_gd, n_queries, n_keys, d, scale, IS_CAUSAL,
        )  # fmt: skip
        grad_q_t = tl.dot(tl.trans(k), grad_s_t.to(k.dtype), acc=grad_q_t)
    grad_q_ptrs = _ptrs(grad_q_ptr + batch * n_queries * d, cols, queries, 1, d)
    tl.store(grad_q_ptrs, (grad_q_t * scale).to(grad_q_ptr.dtype.element_ty), mask=_mask(cols, queries, d, n_queries))


@triton.jit
def _grad_kv_kernel(
    q_ptr, k_ptr, v_ptr, grad_o_ptr, lse_ptr, delta_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_gb, stride_gn, stride_gd,
    n_queries, n_keys, d, scale, grad_k_ptr, grad_v_ptr,
    IS_CAUSAL: tl.constexpr, Q_TILE: tl.constexpr, K_TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · key tiles,); lse, delta, grad_k and grad_v are contiguous."""
    n_tiles = tl.cdiv(n_keys, K_TILE)
    batch, first_key = (tl.program_id(0) // n_tiles).to(tl.int64), tl.program_id(0) % n_tiles * K_TILE
    keys, cols = first_key + tl.arange(0, K_TILE), tl.arange(0, D_TILE)
    mask = _mask(keys, cols, n_keys, d)
    k = tl.load(_ptrs(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd), mask=mask, other=0.0)
    v = tl.load(_ptrs(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd), mask=mask, other=0.0)
    grad_k, grad_v = tl.zeros((K_TILE, D_TILE), tl.float32), tl.zeros((K_TILE, D_TILE), tl.float32)
    for first_query in range(first_key // Q_TILE * Q_TILE if IS_CAUSAL else 0, n_queries, Q_TILE):
        queries = first_query + tl.arange(0, Q_TILE)
        p_t, grad_s_t, q_t, grad_o_t = _weights(
            k, v, keys, queries, cols, q_ptr + batch * stride_qb, grad_o_ptr + batch * stride_gb,
            lse_ptr + batch * n_queries, delta_ptr + batch * n_queries,
            stride_qn, stride_qd, stride_gn, stride_gd, n_queries, n_keys, d, scale, IS_CAUSAL,
        )  # fmt: skip
        grad_v += tl.dot(p_t.to(grad_o_t.dtype), tl.trans(grad_o_t))
        grad_k += tl.dot(grad_s_t.to(q_t.dtype), tl.trans(q_t))
    offset = batch * n_keys * d
    tl.store(_ptrs(grad_k_ptr + offset, keys, cols, d, 1), (grad_k * scale).to(grad_k_ptr.dtype.element_ty), mask=mask)
    tl.store(_ptrs(grad_v_ptr + offset, keys, cols, d, 1), grad_v.to(grad_v_ptr.dtype.element_ty), mask=mask)
