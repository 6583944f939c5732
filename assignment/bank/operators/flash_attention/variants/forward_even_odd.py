"""Even and odd columns apart, as rotary embeddings hold them: two products make a logit, o is two accumulators that are
interleaved before the store. Two batches share a program: its tiles have three dimensions, and so have its products.

Maximum and sum of a tile come from one tl.reduce over pairs (max, sum of exponentials), with a combine function.
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
    if (q.shape[:-2], q.shape[-1]) != (k.shape[:-2], k.shape[-1]) or v.shape != k.shape:
        raise ValueError(f"expected q, k and v that fit, got {q.shape}, {k.shape} and {v.shape}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"expected {q.dtype}, got {k.dtype} and {v.dtype}")
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return o, lse
    q_, k_, v_ = (x.reshape(-1, *x.shape[-2:]) for x in (q, k, v))
    d, n_batches = q.shape[-1], len(q_)
    half = max(16, triton.next_power_of_2(triton.cdiv(d, 2)))
    m, n = (32, 32) if half <= 32 else (16, 16)
    _even_odd_kernel[triton.cdiv(n_batches, 2), triton.cdiv(q.shape[-2], m)](
        q_, k_, v_, o, lse, *q_.stride(), *k_.stride(), *v_.stride(), n_batches, q.shape[-2], k.shape[-2], d, d**-0.5,
        IS_CAUSAL=is_causal, M=m, N=n, HALF=half, num_warps=4, num_stages=1,
    )  # fmt: skip
    return o, lse


@triton.jit
def _pair(ptr, batches, n_batches, rows, n, d, stride_b, stride_n, stride_d, HALF: tl.constexpr):
    """The even and the odd columns of the batches' rows, (2, rows, HALF) each."""
    cols = 2 * tl.arange(0, HALF).to(tl.int64)[None, None, :]
    ptrs = ptr + batches[:, None, None] * stride_b + rows[None, :, None] * stride_n
    mask = (batches < n_batches)[:, None, None] & (rows < n)[None, :, None]
    even = tl.load(ptrs + cols * stride_d, mask=mask & (cols < d), other=0.0)
    odd = tl.load(ptrs + (cols + 1) * stride_d, mask=mask & (cols + 1 < d), other=0.0)
    return even, odd


@triton.jit
def _merge(max_a, sum_a, max_b, sum_b):
    """Σ exp over two sets, each given as its maximum and its sum of exp(· − maximum)."""
    top = tl.maximum(max_a, max_b)
    zero = tl.where(top == float("-inf"), 0.0, top)
    return top, sum_a * tl.exp(max_a - zero) + sum_b * tl.exp(max_b - zero)


@triton.jit
def _even_odd_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd, stride_vb, stride_vn, stride_vd,
    n_batches, n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, M: tl.constexpr, N: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Grid (pairs of batches, query tiles); o and lse are contiguous. Tiles are (2 batches, rows, columns)."""
    batches = tl.program_id(0).to(tl.int64) * 2 + tl.arange(0, 2)
    first = tl.program_id(1) * M
    queries = first + tl.arange(0, M).to(tl.int64)
    q_even, q_odd = _pair(q_ptr, batches, n_batches, queries, n_queries, d, stride_qb, stride_qn, stride_qd, HALF)
    o_even, o_odd = tl.zeros((2, M, HALF), tl.float32), tl.zeros((2, M, HALF), tl.float32)
    row_max = tl.full((2, M), float("-inf"), tl.float32)
    row_sum = tl.zeros((2, M), tl.float32)
    for start in range(0, tl.minimum(n_keys, first + M) if IS_CAUSAL else n_keys, N):
        keys = start + tl.arange(0, N).to(tl.int64)
        k_even, k_odd = _pair(k_ptr, batches, n_batches, keys, n_keys, d, stride_kb, stride_kn, stride_kd, HALF)
        v_even, v_odd = _pair(v_ptr, batches, n_batches, keys, n_keys, d, stride_vb, stride_vn, stride_vd, HALF)
        s = tl.dot(q_even, tl.permute(k_even, (0, 2, 1))) + tl.dot(q_odd, tl.trans(k_odd, 0, 2, 1))
        visible = (keys < n_keys)[None, :]
        if IS_CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(tl.expand_dims(visible, 0), s * scale, float("-inf"))
        tile_max, tile_sum = tl.reduce((s, tl.full(s.shape, 1.0, tl.float32)), 2, _merge)
        new_max, row_sum = _merge(row_max, row_sum, tile_max, tile_sum)
        p = tl.exp(s - new_max[:, :, None]).to(v_even.dtype)
        rescale = tl.exp(row_max - new_max)[:, :, None]
        o_even = o_even * rescale + tl.dot(p, v_even)
        o_odd = o_odd * rescale + tl.dot(p, v_odd)
        row_max = new_max
    o = tl.interleave(o_even / row_sum[:, :, None], o_odd / row_sum[:, :, None])  # (2, M, 2 · HALF)
    o = tl.reshape(o, (2 * M, 2 * HALF))
    rows = tl.reshape(batches[:, None] * n_queries + queries[None, :], (2 * M,))
    row_mask = tl.reshape((batches < n_batches)[:, None] & (queries < n_queries)[None, :], (2 * M,))
    cols = tl.arange(0, 2 * HALF)
    tl.store(
        o_ptr + rows[:, None] * d + cols[None, :], o.to(o_ptr.dtype.element_ty), mask=row_mask[:, None] & (cols < d)
    )
    lse = tl.reshape(row_max + tl.log(row_sum), (2 * M,))
    tl.store(lse_ptr + rows, lse, mask=row_mask)
