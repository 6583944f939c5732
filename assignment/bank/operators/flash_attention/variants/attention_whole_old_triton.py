"""FlashAttention's own first implementation in Triton: (batch, n, heads, d), heuristics EVEN_M, EVEN_N and EVEN_HEADDIM
that leave masks out, and a scratch buffer that vectors go through before they broadcast.

lse is carried along in place of the sum. Backward: a program a block of columns that adds to dq by atomics, or one
program for all of them that adds by load and store; the tuner chooses, and its hook clears dq before each launch.
"""

import math

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
    _check(q, k, v)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse_out = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse_out
    q_, k_, v_, o_ = map(_bnhd, (q, k, v, o))
    batch, seqlen_q, nheads, d = q_.shape
    seqlen_q_rounded = math.ceil(seqlen_q / 128) * 128
    tmp = torch.empty((batch, nheads, seqlen_q_rounded), device=q.device, dtype=torch.float32)
    BLOCK_HEADDIM, BLOCK = _sizes(d, q.element_size())
    _fwd_kernel[lambda META: (triton.cdiv(seqlen_q, META["BLOCK_M"]), batch * nheads)](
        q_, k_, v_, o_, lse_out, tmp, d**-0.5,
        *_strides(q_), *_strides(k_), *_strides(v_), *_strides(o_),
        nheads, seqlen_q, k_.shape[1], seqlen_q_rounded, d,
        is_causal, BLOCK_HEADDIM, BLOCK_M=BLOCK, BLOCK_N=BLOCK, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o, lse_out


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
    if not (grad_o.shape == o.shape == q.shape and grad_o.dtype == o.dtype == q.dtype):
        raise ValueError(f"expected grad_o and o as q {tuple(q.shape)}, got {grad_o.shape} and {o.shape}")
    if lse.shape != q.shape[:-1]:
        raise ValueError(f"expected lse {tuple(q.shape[:-1])}, got {tuple(lse.shape)}")
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    if q.numel() == 0:
        return dq, dk, dv
    do_, q_, k_, v_, o_, dq_, dk_, dv_ = map(_bnhd, (grad_o, q, k, v, o, dq, dk, dv))
    batch, seqlen_q, nheads, d = q_.shape
    seqlen_q_rounded = math.ceil(seqlen_q / 128) * 128
    lse_ = torch.full((batch * nheads, seqlen_q_rounded), torch.inf, dtype=torch.float32, device=q.device)
    lse_[:, :seqlen_q] = lse.reshape(-1, seqlen_q)
    delta = torch.empty_like(lse_)
    dq_accum = torch.empty(q_.shape, dtype=torch.float32, device=q.device)
    BLOCK_HEADDIM, BLOCK = _sizes(d, q.element_size())
    _bwd_preprocess_do_o_dot[(triton.cdiv(seqlen_q, 128), batch * nheads)](
        o_, do_, delta, *_strides(o_), *_strides(do_),
        nheads, seqlen_q, seqlen_q_rounded, d, BLOCK_M=128, BLOCK_HEADDIM=BLOCK_HEADDIM,
    )  # fmt: skip

    def grid(META):
        return triton.cdiv(k_.shape[1], META["BLOCK_N"]) if META["SEQUENCE_PARALLEL"] else 1, batch * nheads

    _bwd_kernel[grid](
        q_, k_, v_, do_, dq_accum, dk_, dv_, lse_, delta, d**-0.5,
        *_strides(q_), *_strides(k_), *_strides(v_), *_strides(do_),
        *_strides(dq_accum), *_strides(dk_), *_strides(dv_),
        nheads, seqlen_q, k_.shape[1], seqlen_q_rounded, d,
        seqlen_q // 32, k_.shape[1] // 32, is_causal, BLOCK_HEADDIM, BLOCK_M=BLOCK, BLOCK_N=BLOCK,
    )  # fmt: skip
    dq_.copy_(dq_accum)
    return dq, dk, dv


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("k", k), ("v", v)):
        if x.ndim != q.ndim or x.shape[:-2] != q.shape[:-2] or x.shape[-1] != q.shape[-1] or x.dtype != q.dtype:
            raise ValueError(f"expected {name} as q {tuple(q.shape)} {q.dtype}, got {tuple(x.shape)} {x.dtype}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"expected as many values as keys, got {v.shape[-2]} and {k.shape[-2]}")


def _bnhd(x: Tensor) -> Tensor:
    """(batch, n, heads, d), of (..., heads, n, d)."""
    heads = x.shape[-3] if x.ndim > 2 else 1
    return x.reshape(-1, heads, *x.shape[-2:]).transpose(1, 2)


def _strides(x: Tensor) -> tuple[int, int, int, int]:
    """Those of batch, heads, n and d."""
    return x.stride(0), x.stride(2), x.stride(1), x.stride(3)


def _sizes(d: int, itemsize: int) -> tuple[int, int]:
    BLOCK_HEADDIM = max(triton.next_power_of_2(d), 16)
    return BLOCK_HEADDIM, 64 if BLOCK_HEADDIM * itemsize <= 256 else 32 if BLOCK_HEADDIM * itemsize <= 512 else 16


@triton.jit
def _load(ptrs, rows, cols, n_rows, n_cols, EVEN_ROWS: tl.constexpr, EVEN_HEADDIM: tl.constexpr):
    """A tile with no more of a mask than it needs."""
    if EVEN_ROWS & EVEN_HEADDIM:
        x = tl.load(ptrs)
    elif EVEN_ROWS:
        x = tl.load(ptrs, mask=cols[None, :] < n_cols, other=0.0)
    elif EVEN_HEADDIM:
        x = tl.load(ptrs, mask=rows[:, None] < n_rows, other=0.0)
    else:
        x = tl.load(ptrs, mask=(rows[:, None] < n_rows) & (cols[None, :] < n_cols), other=0.0)
    return x


@triton.jit
def _through_memory(ptrs, x):
    """x as the program's threads read it back: other threads may load an element than have stored it."""
    tl.debug_barrier()
    tl.store(ptrs, x)
    tl.debug_barrier()
    return tl.load(ptrs)


@triton.heuristics(
    {
        "EVEN_M": lambda args: args["seqlen_q"] % args["BLOCK_M"] == 0,
        "EVEN_N": lambda args: args["seqlen_k"] % args["BLOCK_N"] == 0,
        "EVEN_HEADDIM": lambda args: args["headdim"] == args["BLOCK_HEADDIM"],
    }
)
@triton.jit
def _fwd_kernel(
    Q, K, V, Out, Lse, TMP, softmax_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_ob, stride_oh, stride_om, stride_od,
    nheads, seqlen_q, seqlen_k, seqlen_q_rounded, headdim,
    IS_CAUSAL: tl.constexpr, BLOCK_HEADDIM: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """TMP (batch, heads, seqlen_q_rounded) is scratch, each element a program's own; Lse is contiguous."""
    start_m = tl.program_id(0)
    off_hb = tl.program_id(1).to(tl.int64)
    off_b, off_h = off_hb // nheads, off_hb % nheads
    offs_m = start_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_HEADDIM).to(tl.int64)
    q_ptrs = Q + off_b * stride_qb + off_h * stride_qh + (offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qd)
    k_ptrs = K + off_b * stride_kb + off_h * stride_kh + (offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd)
    v_ptrs = V + off_b * stride_vb + off_h * stride_vh + (offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd)
    t_ptrs = TMP + off_hb * seqlen_q_rounded + offs_m
    lse_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    acc_o = tl.zeros([BLOCK_M, BLOCK_HEADDIM], dtype=tl.float32)
    q = _load(q_ptrs, offs_m, offs_d, seqlen_q, headdim, EVEN_M, EVEN_HEADDIM)
    end_n = seqlen_k if not IS_CAUSAL else tl.minimum((start_m + 1) * BLOCK_M, seqlen_k)
    for start_n in range(0, end_n, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        kn = tl.cast(start_n, tl.int64)
        k = _load(k_ptrs + kn * stride_kn, kn + offs_n, offs_d, seqlen_k, headdim, EVEN_N, EVEN_HEADDIM)
        qk = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        qk += tl.dot(q, tl.trans(k))
        if not EVEN_N:
            qk += tl.where((kn + offs_n)[None, :] < seqlen_k, 0, float("-inf"))
        if IS_CAUSAL:
            qk += tl.where(offs_m[:, None] >= (kn + offs_n)[None, :], 0, float("-inf"))
        m_ij = tl.maximum(tl.max(qk, 1) * softmax_scale, lse_i)
        p = tl.exp(qk * softmax_scale - m_ij[:, None])
        l_ij = tl.sum(p, 1)
        acc_o_scale = tl.exp(m_i - m_ij)
        acc_o_scale = _through_memory(t_ptrs, acc_o_scale)
        acc_o = acc_o * acc_o_scale[:, None]
        v = _load(v_ptrs + kn * stride_vn, kn + offs_n, offs_d, seqlen_k, headdim, EVEN_N, EVEN_HEADDIM)
        acc_o += tl.dot(p.to(v.dtype), v)
        m_i = m_ij
        l_i_new = tl.exp(lse_i - m_ij) + l_ij
        lse_i = m_ij + tl.log(l_i_new)
    o_scale = tl.exp(m_i - lse_i)
    o_scale = _through_memory(t_ptrs, o_scale)
    acc_o = acc_o * o_scale[:, None]
    tl.store(Lse + off_hb * seqlen_q + offs_m, lse_i, mask=offs_m < seqlen_q)
    out_ptrs = Out + off_b * stride_ob + off_h * stride_oh + (offs_m[:, None] * stride_om + offs_d[None, :] * stride_od)
    tl.store(out_ptrs, acc_o, mask=(offs_m[:, None] < seqlen_q) & (offs_d[None, :] < headdim))


@triton.jit
def _bwd_preprocess_do_o_dot(
    Out, DO, Delta, stride_ob, stride_oh, stride_om, stride_od, stride_dob, stride_doh, stride_dom, stride_dod,
    nheads, seqlen_q, seqlen_q_rounded, headdim, BLOCK_M: tl.constexpr, BLOCK_HEADDIM: tl.constexpr,
):  # fmt: skip
    off_hb = tl.program_id(1).to(tl.int64)
    off_b, off_h = off_hb // nheads, off_hb % nheads
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_HEADDIM).to(tl.int64)
    mask = (offs_m[:, None] < seqlen_q) & (offs_d[None, :] < headdim)
    o_ptrs = Out + off_b * stride_ob + off_h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :] * stride_od
    do_ptrs = DO + off_b * stride_dob + off_h * stride_doh + offs_m[:, None] * stride_dom + offs_d[None, :] * stride_dod
    o = tl.load(o_ptrs, mask=mask, other=0.0).to(tl.float32)
    do = tl.load(do_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(Delta + off_hb * seqlen_q_rounded + offs_m, tl.sum(o * do, axis=1))


@triton.jit
def _bwd_kernel_one_col_block(
    start_n, Q, K, V, DO, DQ, DK, DV, LSE, D, softmax_scale,
    stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_dom, stride_dod,
    stride_dqm, stride_dqd, stride_dkn, stride_dkd, stride_dvn, stride_dvd, seqlen_q, seqlen_k, headdim,
    ATOMIC_ADD: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK_HEADDIM: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    begin_m = 0 if not IS_CAUSAL else ((start_n * BLOCK_N) // BLOCK_M) * BLOCK_M
    offs_n = tl.cast(start_n, tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_HEADDIM).to(tl.int64)
    k_ptrs = K + (offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd)
    v_ptrs = V + (offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd)
    dv = tl.zeros([BLOCK_N, BLOCK_HEADDIM], dtype=tl.float32)
    dk = tl.zeros([BLOCK_N, BLOCK_HEADDIM], dtype=tl.float32)
    k = _load(k_ptrs, offs_n, offs_d, seqlen_k, headdim, EVEN_N, EVEN_HEADDIM)
    v = _load(v_ptrs, offs_n, offs_d, seqlen_k, headdim, EVEN_N, EVEN_HEADDIM)
    for start_m in range(begin_m, seqlen_q, BLOCK_M):
        offs_m = tl.cast(start_m, tl.int64) + tl.arange(0, BLOCK_M)
        q_ptrs = Q + (offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qd)
        do_ptrs = DO + (offs_m[:, None] * stride_dom + offs_d[None, :] * stride_dod)
        dq_ptrs = DQ + (offs_m[:, None] * stride_dqm + offs_d[None, :] * stride_dqd)
        q = _load(q_ptrs, offs_m, offs_d, seqlen_q, headdim, EVEN_M, EVEN_HEADDIM)
        qk = tl.dot(q, tl.trans(k))
        if not EVEN_N:
            qk = tl.where(offs_n[None, :] < seqlen_k, qk, float("-inf"))
        if IS_CAUSAL:
            qk = tl.where(offs_m[:, None] >= (offs_n[None, :]), qk, float("-inf"))
        lse_i = tl.load(LSE + offs_m)
        p = tl.exp(qk * softmax_scale - lse_i[:, None])
        do = _load(do_ptrs, offs_m, offs_d, seqlen_q, headdim, EVEN_M, EVEN_HEADDIM)
        dv += tl.dot(tl.trans(p.to(do.dtype)), do)
        dp = tl.dot(do, tl.trans(v))
        Di = tl.load(D + offs_m)
        ds = (p * (dp - Di[:, None]) * softmax_scale).to(q.dtype)
        dk += tl.dot(tl.trans(ds), q)
        mask = (offs_m[:, None] < seqlen_q) & (offs_d[None, :] < headdim)
        if ATOMIC_ADD:
            tl.atomic_add(dq_ptrs, tl.dot(ds, k), mask=mask)
        else:
            dq = tl.load(dq_ptrs, mask=mask, other=0.0, eviction_policy="evict_last")
            dq += tl.dot(ds, k)
            tl.store(dq_ptrs, dq, mask=mask, eviction_policy="evict_last")
    kv_mask = (offs_n[:, None] < seqlen_k) & (offs_d[None, :] < headdim)
    tl.store(DV + (offs_n[:, None] * stride_dvn + offs_d[None, :] * stride_dvd), dv, mask=kv_mask)
    tl.store(DK + (offs_n[:, None] * stride_dkn + offs_d[None, :] * stride_dkd), dk, mask=kv_mask)


def init_to_zero(name):
    return lambda nargs: nargs[name].zero_()


@triton.autotune(
    configs=[
        triton.Config({"SEQUENCE_PARALLEL": False}, num_warps=4, num_stages=1, pre_hook=init_to_zero("DQ")),
        triton.Config({"SEQUENCE_PARALLEL": True}, num_warps=4, num_stages=1, pre_hook=init_to_zero("DQ")),
    ],
    key=["CACHE_KEY_SEQLEN_Q", "CACHE_KEY_SEQLEN_K", "IS_CAUSAL", "BLOCK_HEADDIM"],
)
@triton.heuristics(
    {
        "EVEN_M": lambda args: args["seqlen_q"] % args["BLOCK_M"] == 0,
        "EVEN_N": lambda args: args["seqlen_k"] % args["BLOCK_N"] == 0,
        "EVEN_HEADDIM": lambda args: args["headdim"] == args["BLOCK_HEADDIM"],
    }
)
@triton.jit
def _bwd_kernel(
    Q, K, V, DO, DQ, DK, DV, LSE, D, softmax_scale,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, stride_dob, stride_doh, stride_dom, stride_dod,
    stride_dqb, stride_dqh, stride_dqm, stride_dqd, stride_dkb, stride_dkh, stride_dkn, stride_dkd,
    stride_dvb, stride_dvh, stride_dvn, stride_dvd,
    nheads, seqlen_q, seqlen_k, seqlen_q_rounded, headdim, CACHE_KEY_SEQLEN_Q, CACHE_KEY_SEQLEN_K,
    IS_CAUSAL: tl.constexpr, BLOCK_HEADDIM: tl.constexpr, SEQUENCE_PARALLEL: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_HEADDIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of columns or 1, batch · heads); LSE and D (batch · heads, seqlen_q_rounded); DQ in float32."""
    off_hb = tl.program_id(1).to(tl.int64)
    off_b, off_h = off_hb // nheads, off_hb % nheads
    Q += off_b * stride_qb + off_h * stride_qh
    K += off_b * stride_kb + off_h * stride_kh
    V += off_b * stride_vb + off_h * stride_vh
    DO += off_b * stride_dob + off_h * stride_doh
    DQ += off_b * stride_dqb + off_h * stride_dqh
    DK += off_b * stride_dkb + off_h * stride_dkh
    DV += off_b * stride_dvb + off_h * stride_dvh
    D += off_hb * seqlen_q_rounded
    LSE += off_hb * seqlen_q_rounded
    first = tl.program_id(0) if SEQUENCE_PARALLEL else 0
    last = first + 1 if SEQUENCE_PARALLEL else tl.cdiv(seqlen_k, BLOCK_N)
    for start_n in range(first, last):
        tl.debug_barrier()  # what one block has stored to DQ the next one loads
        _bwd_kernel_one_col_block(
            start_n, Q, K, V, DO, DQ, DK, DV, LSE, D, softmax_scale,
            stride_qm, stride_qd, stride_kn, stride_kd, stride_vn, stride_vd, stride_dom, stride_dod,
            stride_dqm, stride_dqd, stride_dkn, stride_dkd, stride_dvn, stride_dvd, seqlen_q, seqlen_k, headdim,
            ATOMIC_ADD=SEQUENCE_PARALLEL, IS_CAUSAL=IS_CAUSAL, BLOCK_HEADDIM=BLOCK_HEADDIM,
            EVEN_M=EVEN_M, EVEN_N=EVEN_N, EVEN_HEADDIM=EVEN_HEADDIM, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        )  # fmt: skip
