"""FlashAttention-2, forward and backward, in as few lines as will do: contiguous copies, so that a tensor has one
stride, 32 × 32 tiles, one kernel forward and two backward.
"""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


def flash_attention(q, k, v, is_causal=False):
    """softmax(q kᵀ / √d) v, differentiable."""
    return Attention.apply(q, k, v, is_causal)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        o, lse = flash_forward_triton(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        q, k, v, o, lse = ctx.saved_tensors
        return *flash_backward_triton(grad_o, q, k, v, o, lse, ctx.is_causal), None


def flash_forward_triton(q, k, v, is_causal=False):
    """(o, lse)"""
    check(q, k, v)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o, lse = torch.empty_like(q), q.new_empty(q.shape[:-1], dtype=torch.float32)
    launch(forward_kernel, q.shape[-2], q, k, v, o, lse, is_causal=is_causal)
    return o, lse


def flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=False):
    """(grad_q, grad_k, grad_v)"""
    check(q, k, v)
    if not grad_o.dtype == o.dtype == q.dtype:
        raise ValueError(f"expected grad_o and o in {q.dtype}, got {grad_o.dtype} and {o.dtype}")
    if not grad_o.shape == o.shape == q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse for q {q.shape}, got {grad_o.shape}, {o.shape}, {lse.shape}")
    grad_o, q, k, v, o, lse = (x.contiguous() for x in (grad_o, q, k, v, o, lse))
    delta = (grad_o.float() * o.float()).sum(-1)
    grad_q, grad_k, grad_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    launch(grad_q_kernel, q.shape[-2], q, k, v, grad_o, lse, delta, grad_q, is_causal=is_causal)
    launch(grad_kv_kernel, k.shape[-2], q, k, v, grad_o, lse, delta, grad_k, grad_v, is_causal=is_causal)
    return grad_q, grad_k, grad_v


def check(q, k, v):
    if k.shape != v.shape or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q (..., n, d), k and v (..., m, d), got {q.shape}, {k.shape}, {v.shape}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")


def launch(kernel, n_rows, q, k, *tensors, is_causal):
    """Start one program for every batch and tile of n_rows."""
    n, m, d = q.shape[-2], k.shape[-2], q.shape[-1]
    d_tile = max(16, triton.next_power_of_2(d))
    tile = 32 if d_tile * q.element_size() <= 512 else 16
    n_programs = q.shape[:-2].numel() * triton.cdiv(n_rows, tile)
    if n_programs:
        kernel[(n_programs,)](q, k, *tensors, n, m, d, d**-0.5, is_causal, tile, d_tile, num_stages=1)


@triton.jit
def tile_of(n, T: tl.constexpr):
    """This program's first row, and its batch."""
    return tl.program_id(0) % tl.cdiv(n, T) * T, (tl.program_id(0) // tl.cdiv(n, T)).to(tl.int64)


@triton.jit
def at(batch, start, n, d, T: tl.constexpr, D: tl.constexpr):
    """Offsets and mask of T rows of a (batch, n, d) tensor."""
    rows, cols = start + tl.arange(0, T)[:, None], tl.arange(0, D)[None, :]
    return (batch * n + rows) * d + cols, (rows < n) & (cols < d)


@triton.jit
def scores(q, k, i, j, m, scale, CAUSAL: tl.constexpr, T: tl.constexpr):
    """Of queries i … i + T − 1 and keys j … j + T − 1; −∞ where nothing is to be seen."""
    rows, cols = i + tl.arange(0, T)[:, None], j + tl.arange(0, T)[None, :]
    seen = (cols < m) & (cols <= rows) if CAUSAL else cols < m
    return tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit
def forward_kernel(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n, m, d, scale,
                   CAUSAL: tl.constexpr, T: tl.constexpr, D: tl.constexpr):  # fmt: skip
    i, b = tile_of(n, T)
    q_at, q_mask = at(b, i, n, d, T, D)
    q = tl.load(q_ptr + q_at, mask=q_mask, other=0.0)
    acc, total = tl.zeros((T, D), tl.float32), tl.zeros((T,), tl.float32)
    top = tl.full((T,), float("-inf"), tl.float32)
    for j in range(0, tl.minimum(m, i + T) if CAUSAL else m, T):
        k_at, k_mask = at(b, j, m, d, T, D)
        k, v = tl.load(k_ptr + k_at, mask=k_mask, other=0.0), tl.load(v_ptr + k_at, mask=k_mask, other=0.0)
        s = scores(q, k, i, j, m, scale, CAUSAL, T)
        new_top = tl.maximum(top, tl.max(s, 1))  # finite: every query sees key 0
        p = tl.exp(s - new_top[:, None])
        shrink = tl.exp(top - new_top)
        acc = acc * shrink[:, None] + tl.dot(p.to(v.dtype), v)
        total = total * shrink + tl.sum(p, 1)
        top = new_top
    tl.store(o_ptr + q_at, (acc / total[:, None]).to(q.dtype), mask=q_mask)
    rows = i + tl.arange(0, T)
    tl.store(lse_ptr + b * n + rows, top + tl.log(total), mask=rows < n)


@triton.jit
def p_and_ds(q, k, v, go, lse_ptr, delta_ptr, b, i, j, n, m, scale, CAUSAL: tl.constexpr, T: tl.constexpr):
    rows = i + tl.arange(0, T)
    lse = tl.load(lse_ptr + b * n + rows, mask=rows < n, other=float("inf"))  # p = 0 past the last query
    delta = tl.load(delta_ptr + b * n + rows, mask=rows < n, other=0.0)
    p = tl.exp(scores(q, k, i, j, m, scale, CAUSAL, T) - lse[:, None])
    return p, p * (tl.dot(go, tl.trans(v)) - delta[:, None]) * scale


@triton.jit
def grad_q_kernel(q_ptr, k_ptr, v_ptr, go_ptr, lse_ptr, delta_ptr, gq_ptr, n, m, d, scale,
                  CAUSAL: tl.constexpr, T: tl.constexpr, D: tl.constexpr):  # fmt: skip
    i, b = tile_of(n, T)
    q_at, q_mask = at(b, i, n, d, T, D)
    q, go = tl.load(q_ptr + q_at, mask=q_mask, other=0.0), tl.load(go_ptr + q_at, mask=q_mask, other=0.0)
    gq = tl.zeros((T, D), tl.float32)
    for j in range(0, tl.minimum(m, i + T) if CAUSAL else m, T):
        k_at, k_mask = at(b, j, m, d, T, D)
        k, v = tl.load(k_ptr + k_at, mask=k_mask, other=0.0), tl.load(v_ptr + k_at, mask=k_mask, other=0.0)
        _, ds = p_and_ds(q, k, v, go, lse_ptr, delta_ptr, b, i, j, n, m, scale, CAUSAL, T)
        gq += tl.dot(ds.to(k.dtype), k)
    tl.store(gq_ptr + q_at, gq.to(q.dtype), mask=q_mask)


@triton.jit
def grad_kv_kernel(q_ptr, k_ptr, v_ptr, go_ptr, lse_ptr, delta_ptr, gk_ptr, gv_ptr, n, m, d, scale,
                   CAUSAL: tl.constexpr, T: tl.constexpr, D: tl.constexpr):  # fmt: skip
    j, b = tile_of(m, T)
    k_at, k_mask = at(b, j, m, d, T, D)
    k, v = tl.load(k_ptr + k_at, mask=k_mask, other=0.0), tl.load(v_ptr + k_at, mask=k_mask, other=0.0)
    gk, gv = tl.zeros((T, D), tl.float32), tl.zeros((T, D), tl.float32)
    for i in range(j if CAUSAL else 0, n, T):
        q_at, q_mask = at(b, i, n, d, T, D)
        q, go = tl.load(q_ptr + q_at, mask=q_mask, other=0.0), tl.load(go_ptr + q_at, mask=q_mask, other=0.0)
        p, ds = p_and_ds(q, k, v, go, lse_ptr, delta_ptr, b, i, j, n, m, scale, CAUSAL, T)
        gk += tl.dot(tl.trans(ds).to(q.dtype), q)
        gv += tl.dot(tl.trans(p).to(go.dtype), go)
    tl.store(gk_ptr + k_at, gk.to(k.dtype), mask=k_mask)
    tl.store(gv_ptr + k_at, gv.to(v.dtype), mask=k_mask)
