"""The scale folded into the exponential, exp2(s · scale · log₂e − m): one multiply-subtract an element. Two loops over
the keys: whole tiles without a mask, then those at the diagonal and at the end with one. The backward pass is a single
kernel that adds to a float32 grad_q by atomics.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)


def flash_attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    """o of flash_forward_triton, differentiable in q, k and v."""
    return Attention.apply(q, k, v, is_causal)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
        o, lse = flash_forward_triton(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_o: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        return *flash_backward_triton(grad_o, q, k, v, o, lse, ctx.is_causal), None


def flash_forward_triton(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse): o in q's dtype, lse in float32 and base e."""
    require_attention_inputs(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if lse.numel() > 0:
        q3, k3, v3 = three_dimensional(q, k, v)
        options = tile_options(q)
        grid = (q3.shape[0] * triton.cdiv(q3.shape[1], options["TILE"]),)
        forward_kernel[grid](
            q3, k3, v3, o, lse, *q3.stride(), *k3.stride(), *v3.stride(),
            q3.shape[1], k3.shape[1], q3.shape[2], q3.shape[2] ** -0.5,
            IS_CAUSAL=is_causal, **options,
        )  # fmt: skip
    return o, lse


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v)."""
    require_attention_inputs(q, k, v)
    if not grad_o.shape == o.shape == q.shape or lse.shape != q.shape[:-1]:
        shapes = [tuple(x.shape) for x in (grad_o, o, lse)]
        raise ValueError(f"expected grad_o and o like q {tuple(q.shape)}, lse without its last, got {shapes}")
    grad_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    grad_k, grad_v = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (k, v))
    if lse.numel() > 0:
        grad_o3, q3, k3, v3 = three_dimensional(grad_o, q, k, v)
        delta = (grad_o.float() * o.float()).sum(-1).contiguous()
        options = tile_options(q)
        grid = (k3.shape[0] * triton.cdiv(k3.shape[1], options["TILE"]),)
        backward_kernel[grid](
            grad_o3, q3, k3, v3, lse.contiguous(), delta, grad_q, grad_k, grad_v,
            *grad_o3.stride(), *q3.stride(), *k3.stride(), *v3.stride(),
            q3.shape[1], k3.shape[1], q3.shape[2], q3.shape[2] ** -0.5,
            IS_CAUSAL=is_causal, **options,
        )  # fmt: skip
    return grad_q.to(q.dtype), grad_k, grad_v


def require_attention_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    alike = {(x.dtype, x.device, x.shape[:-2], x.shape[-1]) for x in (q, k, v)}
    if len(alike) > 1:
        raise ValueError(f"expected one dtype, device, batch shape and d for q, k and v, got {alike}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected a value for each key, got {v.shape[-2]} values for {k.shape[-2]} keys")


def three_dimensional(*tensors: Tensor) -> list[Tensor]:
    return [x.reshape(-1, x.shape[-2], x.shape[-1]) for x in tensors]


def tile_options(q: Tensor) -> dict[str, int]:
    width = max(16, triton.next_power_of_2(q.shape[-1]))
    tile = 64 if width <= 64 else 32 if width * q.element_size() <= 512 else 16
    return {"TILE": tile, "D_TILE": width, "num_warps": 4 if width <= 128 else 8, "num_stages": 1}


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · query tiles,); o and lse are contiguous."""
    tiles = tl.cdiv(n_queries, TILE)
    batch, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    queries = tile * TILE + tl.arange(0, TILE)
    q = tl.load(*tile_at(q_ptr + batch * stride_qb, queries, stride_qn, stride_qd, n_queries, d, D_TILE), other=0.0)
    k_ptr += batch * stride_kb
    v_ptr += batch * stride_vb
    # Keys before `whole` are in tiles that every query sees all of.
    whole, end = n_keys // TILE * TILE, n_keys
    if IS_CAUSAL:
        whole, end = tl.minimum(whole, tile * TILE), tl.minimum(end, (tile + 1) * TILE)
    m = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    o = tl.zeros((TILE, D_TILE), tl.float32)
    for start in range(0, whole, TILE):
        m, total, o = absorb(
            q, k_ptr, v_ptr, m, total, o, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
            n_keys, d, scale * LOG2_E, IS_CAUSAL, False, TILE, D_TILE,
        )  # fmt: skip
    for start in range(whole, end, TILE):
        m, total, o = absorb(
            q, k_ptr, v_ptr, m, total, o, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
            n_keys, d, scale * LOG2_E, IS_CAUSAL, True, TILE, D_TILE,
        )  # fmt: skip
    o_ptrs, mask = tile_at(o_ptr + batch * n_queries * d, queries, d, 1, n_queries, d, D_TILE)
    tl.store(o_ptrs, (o / total[:, None]).to(o_ptr.dtype.element_ty), mask=mask)
    tl.store(lse_ptr + batch * n_queries + queries, (m + tl.log2(total)) / LOG2_E, mask=queries < n_queries)


@triton.jit
def absorb(
    q, k_ptr, v_ptr, m, total, o, queries, start, stride_kn, stride_kd, stride_vn, stride_vd,
    n_keys, d, scale_log2_e, IS_CAUSAL: tl.constexpr, MASKED: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """The running maximum (base 2, scaled), sum and o after one more tile of keys."""
    keys = start + tl.arange(0, TILE)
    k = tl.load(*tile_at(k_ptr, keys, stride_kn, stride_kd, n_keys, d, D_TILE), other=0.0)
    v = tl.load(*tile_at(v_ptr, keys, stride_vn, stride_vd, n_keys, d, D_TILE), other=0.0)
    s = tl.dot(q, tl.trans(k))
    if MASKED:
        s = tl.where(visible(queries[:, None], keys[None, :], n_keys, IS_CAUSAL), s, float("-inf"))
    new_m = tl.maximum(m, tl.max(s, axis=1) * scale_log2_e)
    p = tl.exp2(s * scale_log2_e - new_m[:, None])
    shrink = tl.exp2(m - new_m)
    return new_m, total * shrink + tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, acc=o * shrink[:, None])


@triton.jit
def backward_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """Grid: (batches · key tiles,); lse, delta and the gradients are contiguous."""
    tiles = tl.cdiv(n_keys, TILE)
    batch, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    keys = tile * TILE + tl.arange(0, TILE)
    k = tl.load(*tile_at(k_ptr + batch * stride_kb, keys, stride_kn, stride_kd, n_keys, d, D_TILE), other=0.0)
    v = tl.load(*tile_at(v_ptr + batch * stride_vb, keys, stride_vn, stride_vd, n_keys, d, D_TILE), other=0.0)
    q_ptr += batch * stride_qb
    grad_o_ptr += batch * stride_gob
    grad_k = tl.zeros((TILE, D_TILE), tl.float32)
    grad_v = tl.zeros((TILE, D_TILE), tl.float32)
    for start in range(tile * TILE if IS_CAUSAL else 0, n_queries, TILE):
        queries = start + tl.arange(0, TILE)
        q = tl.load(*tile_at(q_ptr, queries, stride_qn, stride_qd, n_queries, d, D_TILE), other=0.0)
        grad_o = tl.load(*tile_at(grad_o_ptr, queries, stride_gon, stride_god, n_queries, d, D_TILE), other=0.0)
        lse = tl.load(lse_ptr + batch * n_queries + queries, mask=queries < n_queries, other=0.0)
        delta = tl.load(delta_ptr + batch * n_queries + queries, mask=queries < n_queries, other=0.0)
        s = tl.dot(q, tl.trans(k))
        p = tl.exp2(s * (scale * LOG2_E) - (lse * LOG2_E)[:, None])
        p = tl.where(visible(queries[:, None], keys[None, :], n_keys, IS_CAUSAL), p, 0.0)
        grad_v = tl.dot(tl.trans(p.to(grad_o.dtype)), grad_o, acc=grad_v)
        grad_s = (p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None]) * scale).to(q.dtype)
        grad_k = tl.dot(tl.trans(grad_s), q, acc=grad_k)
        grad_q_ptrs, mask = tile_at(grad_q_ptr + batch * n_queries * d, queries, d, 1, n_queries, d, D_TILE)
        tl.atomic_add(grad_q_ptrs, tl.dot(grad_s, k), mask=mask)
    offset = batch * n_keys * d
    grad_k_ptrs, mask = tile_at(grad_k_ptr + offset, keys, d, 1, n_keys, d, D_TILE)
    tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dtype.element_ty), mask=mask)
    grad_v_ptrs, mask = tile_at(grad_v_ptr + offset, keys, d, 1, n_keys, d, D_TILE)
    tl.store(grad_v_ptrs, grad_v.to(grad_v_ptr.dtype.element_ty), mask=mask)


@triton.jit
def tile_at(ptr, rows, stride_row, stride_col, n_rows, d, D_TILE: tl.constexpr):
    """Pointers and mask of whole rows."""
    cols = tl.arange(0, D_TILE)
    ptrs = ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col
    return ptrs, (rows < n_rows)[:, None] & (cols < d)[None, :]


@triton.jit
def visible(queries, keys, n_keys, IS_CAUSAL: tl.constexpr):
    return (keys < n_keys) & (keys <= queries) if IS_CAUSAL else keys < n_keys
