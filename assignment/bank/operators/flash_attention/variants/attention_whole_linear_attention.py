"""Softmax attention in the style of flash-linear-attention: guarded (contiguous) inputs, block pointers into (B, T, K),
exp2 and log2 as names of a helper module, options that are off told by arguments that are None, autotuned warps.

V is split over the grid's first axis in the forward pass; the backward has a kernel for dq and one for dk and dv.
"""

import functools
import math

import torch
import triton
import triton.language as tl
import triton.language.extra.libdevice as tldevice
from jaxtyping import Float, Float32
from torch import Tensor

USE_FAST_OPS = True
exp2 = tl.math.exp2 if USE_FAST_OPS else tldevice.exp2
log2 = tl.log2
RCP_LN2 = tl.constexpr(1.4426950216293335)
WARPS = [triton.Config({}, num_warps=num_warps, num_stages=1) for num_warps in (4, 8)]
tuned = triton.autotune(WARPS, key=["B", "K", "V", "BT", "BS", "BK", "BV", "IS_CAUSAL"])


def input_guard(fn):
    """Make all tensors contiguous."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        guarded = (x.contiguous() if isinstance(x, Tensor) else x for x in args)
        return fn(*guarded, **{k: v.contiguous() if isinstance(v, Tensor) else v for k, v in kwargs.items()})

    return wrapper


@input_guard
def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float32[Tensor, "*batch n_queries"]]:
    _check(q, k, v)
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() > 0:
        sizes, BS = _sizes(q, k)
        grid = (1, triton.cdiv(sizes["TQ"], sizes["BT"]), sizes["B"])
        parallel_attn_fwd_kernel[grid](
            q, k, v, o, None, lse, q.shape[-1] ** -0.5, None, BS=BS, IS_CAUSAL=is_causal, **sizes
        )
    return o, lse


@input_guard
def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float32[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_keys d"], Float[Tensor, "*batch n_keys d"]]:
    _check(q, k, v)
    for name, x in (("grad_o", grad_o), ("o", o)):
        if x.shape != q.shape or x.dtype != q.dtype:
            raise ValueError(f"expected {name} like q {q.shape} {q.dtype}, got {x.shape} {x.dtype}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse of shape {q.shape[:-1]}, got {lse.shape}")
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    if q.numel() == 0:
        return dq, dk, dv
    sizes, BS = _sizes(q, k)
    delta = torch.empty_like(lse)
    parallel_attn_bwd_kernel_preprocess[(delta.numel(),)](o, grad_o, delta, B=sizes["BV"], V=sizes["V"])
    scale = q.shape[-1] ** -0.5
    rest = {**sizes, "IS_CAUSAL": is_causal}
    parallel_attn_bwd_kernel_dq[(1, triton.cdiv(sizes["TQ"], sizes["BT"]), sizes["B"])](
        q, k, v, lse, delta, grad_o, dq, scale, None, BS=BS, **rest
    )
    parallel_attn_bwd_kernel_dkv[(1, triton.cdiv(sizes["TK"], sizes["BT"]), sizes["B"])](
        q, k, v, lse, delta, grad_o, dk, dv, scale, None, BS=BS, **rest
    )
    return dq, dk, dv


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if q.shape[:-2] != k.shape[:-2] or k.shape != v.shape or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected (..., T, K) that fit together, got {shapes}")
    if q.dtype != k.dtype or k.dtype != v.dtype:
        raise ValueError(f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")


def _sizes(q: Tensor, k: Tensor) -> tuple[dict[str, int], int]:
    K = q.shape[-1]
    BK = max(16, triton.next_power_of_2(K))
    BT, BS = (64, 32) if BK * q.element_size() <= 256 else (32, 16) if BK * q.element_size() <= 512 else (16, 16)
    B = math.prod(q.shape[:-2])
    return {"B": B, "TQ": q.shape[-2], "TK": k.shape[-2], "K": K, "V": K, "BT": BT, "BK": BK, "BV": BK}, BS


@triton.heuristics(
    {
        "USE_G": lambda args: args["g_cumsum"] is not None,
        "IS_VARLEN": lambda args: args["cu_seqlens"] is not None,
    }
)
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_fwd_kernel(
    q, k, v, o, g_cumsum, lse, scale, cu_seqlens, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr, IS_VARLEN: tl.constexpr,
):  # fmt: skip
    """Grid (pieces of V, query tiles, B); g_cumsum and cu_seqlens are for variants that are not asked for."""
    tl.static_assert(not USE_G and not IS_VARLEN)
    i_v, i_t, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_o = tl.make_block_ptr(o + i_b * TQ * V, (TQ, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_m = tl.full([BT], float("-inf"), dtype=tl.float32)
    b_acc = tl.zeros([BT], dtype=tl.float32)
    o_q = i_t * BT + tl.arange(0, BT)
    for i_s in range(0, min((i_t + 1) * BT, TK) if IS_CAUSAL else TK, BS):
        p_k = tl.make_block_ptr(k + i_b * TK * K, (K, TK), (1, K), (0, i_s), (BK, BS), (0, 1))
        p_v = tl.make_block_ptr(v + i_b * TK * V, (TK, V), (V, 1), (i_s, i_v * BV), (BS, BV), (1, 0))
        o_k = i_s + tl.arange(0, BS)
        m_k = o_k < TK
        b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
        b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
        b_s = tl.dot(b_q, b_k) * scale * RCP_LN2
        m_s = (o_q[:, None] >= o_k[None, :]) & m_k[None, :] if IS_CAUSAL else (o_q[:, None] >= 0) & m_k[None, :]
        b_s = tl.where(m_s, b_s, float("-inf"))
        b_m, b_mp = tl.maximum(b_m, tl.max(b_s, 1)), b_m
        b_r = exp2(b_mp - b_m)
        b_p = exp2(b_s - b_m[:, None])
        b_acc = b_acc * b_r + tl.sum(b_p, 1)
        b_o = b_o * b_r[:, None] + tl.dot(b_p.to(b_q.dtype), b_v)
    b_o = b_o / b_acc[:, None]
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))
    if i_v == 0:
        b_m += log2(b_acc)
        tl.store(p_lse, (b_m / RCP_LN2).to(p_lse.dtype.element_ty), boundary_check=(0,))


@triton.jit
def parallel_attn_bwd_kernel_preprocess(o, do, delta, B: tl.constexpr, V: tl.constexpr):
    i_n = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, B)
    m_d = o_d < V
    b_o = tl.load(o + i_n * V + o_d, mask=m_d, other=0)
    b_do = tl.load(do + i_n * V + o_d, mask=m_d, other=0).to(tl.float32)
    tl.store(delta + i_n, tl.sum(b_o * b_do).to(delta.dtype.element_ty))


@triton.heuristics({"USE_G": lambda args: args["g_cumsum"] is not None})
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_bwd_kernel_dq(
    q, k, v, lse, delta, do, dq, scale, g_cumsum, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr,
):  # fmt: skip
    tl.static_assert(not USE_G and BV >= V)
    i_t, i_b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_dq = tl.make_block_ptr(dq + i_b * TQ * K, (TQ, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_do = tl.make_block_ptr(do + i_b * TQ * V, (TQ, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    p_delta = tl.make_block_ptr(delta + i_b * TQ, (TQ,), (1,), (i_t * BT,), (BT,), (0,))
    b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
    b_do = tl.load(p_do, boundary_check=(0, 1), padding_option="zero")
    b_lse = tl.load(p_lse, boundary_check=(0,), padding_option="zero")
    b_delta = tl.load(p_delta, boundary_check=(0,), padding_option="zero")
    b_dq = tl.zeros([BT, BK], dtype=tl.float32)
    o_q = i_t * BT + tl.arange(0, BT)
    for i_s in range(0, min((i_t + 1) * BT, TK) if IS_CAUSAL else TK, BS):
        p_k = tl.make_block_ptr(k + i_b * TK * K, (TK, K), (K, 1), (i_s, 0), (BS, BK), (1, 0))
        p_v = tl.make_block_ptr(v + i_b * TK * V, (V, TK), (1, V), (0, i_s), (BV, BS), (0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
        b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
        o_k = i_s + tl.arange(0, BS)
        m_s = (o_q[:, None] < TQ) & (o_k[None, :] < TK)
        if IS_CAUSAL:
            m_s &= o_q[:, None] >= o_k[None, :]
        b_s = (tl.dot(b_q, tl.trans(b_k)) * scale - b_lse[:, None]) * RCP_LN2
        b_p = tl.where(m_s, exp2(b_s), 0)
        b_dp = tl.dot(b_do, b_v)
        b_ds = b_p * (b_dp.to(tl.float32) - b_delta[:, None])
        b_dq += tl.dot(b_ds.to(b_k.dtype), b_k)
    tl.store(p_dq, (b_dq * scale).to(p_dq.dtype.element_ty), boundary_check=(0, 1))


@triton.heuristics({"USE_G": lambda args: args["g_cumsum"] is not None})
@tuned
@triton.jit(do_not_specialize=["TQ", "TK"])
def parallel_attn_bwd_kernel_dkv(
    q, k, v, lse, delta, do, dk, dv, scale, g_cumsum, TQ, TK,
    B: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, IS_CAUSAL: tl.constexpr, USE_G: tl.constexpr,
):  # fmt: skip
    tl.static_assert(not USE_G and BV >= V)
    i_t, i_b = tl.program_id(1), tl.program_id(2).to(tl.int64)
    p_k = tl.make_block_ptr(k + i_b * TK * K, (TK, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_v = tl.make_block_ptr(v + i_b * TK * V, (TK, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    p_dk = tl.make_block_ptr(dk + i_b * TK * K, (TK, K), (K, 1), (i_t * BT, 0), (BT, BK), (1, 0))
    p_dv = tl.make_block_ptr(dv + i_b * TK * V, (TK, V), (V, 1), (i_t * BT, 0), (BT, BV), (1, 0))
    b_k = tl.load(p_k, boundary_check=(0, 1), padding_option="zero")
    b_v = tl.load(p_v, boundary_check=(0, 1), padding_option="zero")
    b_dk = tl.zeros([BT, BK], dtype=tl.float32)
    b_dv = tl.zeros([BT, BV], dtype=tl.float32)
    o_k = i_t * BT + tl.arange(0, BT)
    for i_s in range(i_t * BT if IS_CAUSAL else 0, TQ, BS):
        p_q = tl.make_block_ptr(q + i_b * TQ * K, (TQ, K), (K, 1), (i_s, 0), (BS, BK), (1, 0))
        p_do = tl.make_block_ptr(do + i_b * TQ * V, (TQ, V), (V, 1), (i_s, 0), (BS, BV), (1, 0))
        p_lse = tl.make_block_ptr(lse + i_b * TQ, (TQ,), (1,), (i_s,), (BS,), (0,))
        p_delta = tl.make_block_ptr(delta + i_b * TQ, (TQ,), (1,), (i_s,), (BS,), (0,))
        b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
        b_do = tl.load(p_do, boundary_check=(0, 1), padding_option="zero")
        b_lse = tl.load(p_lse, boundary_check=(0,), padding_option="zero")
        b_delta = tl.load(p_delta, boundary_check=(0,), padding_option="zero")
        o_q = i_s + tl.arange(0, BS)
        m_s = (o_k[:, None] < TK) & (o_q[None, :] < TQ)
        if IS_CAUSAL:
            m_s &= o_k[:, None] <= o_q[None, :]
        b_s = (tl.dot(b_k, tl.trans(b_q)) * scale - b_lse[None, :]) * RCP_LN2
        b_p = tl.where(m_s, exp2(b_s), 0)
        b_dv += tl.dot(b_p.to(b_do.dtype), b_do)
        b_dp = tl.dot(b_v, tl.trans(b_do))
        b_ds = b_p * (b_dp - b_delta[None, :])
        b_dk += tl.dot(b_ds.to(b_q.dtype), b_q)
    tl.store(p_dk, (b_dk * scale).to(p_dk.dtype.element_ty), boundary_check=(0, 1))
    tl.store(p_dv, b_dv.to(p_dv.dtype.element_ty), boundary_check=(0, 1))
