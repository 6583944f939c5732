"""FlashAttention-2 backward in one kernel: a program a key tile keeps dK and dV in registers and adds its share of dQ
to a float32 buffer by atomics. D = rowsum(dO ∘ O) is a line of PyTorch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_BYTES = 16 * 1024  # of q, k, v and grad_o each, and no row is longer than 1 KB: 16 to 64 rows


def flash_backward_triton(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v); see the kernel. Float32 accumulation, any strides, any shapes."""
    _check(grad_o, q, k, v, o, lse)
    *batch, n_queries, d = q.shape
    n_keys = k.shape[-2]
    n_batches = q.shape[:-2].numel()

    delta = (grad_o.float() * o.float()).sum(dim=-1).reshape(n_batches, n_queries)
    grad_o, q_, k_, v_ = (x.reshape(n_batches, x.shape[-2], d) for x in (grad_o, q, k, v))
    lse = lse.reshape(n_batches, n_queries)
    grad_q = torch.zeros(n_batches, n_queries, d, dtype=torch.float32, device=q.device)
    grad_k, grad_v = (torch.empty(n_batches, n_keys, d, dtype=q.dtype, device=q.device) for _ in range(2))

    d_tile = max(triton.next_power_of_2(d), 16)
    tile = min(64, TILE_BYTES // (d_tile * q.dtype.itemsize))
    if n_batches:
        backward_kernel[n_batches * triton.cdiv(n_keys, tile),](
            grad_o, q_, k_, v_, lse, delta, grad_q, grad_k, grad_v,
            *grad_o.stride(), *q_.stride(), *k_.stride(), *v_.stride(), *lse.stride(),
            n_queries, n_keys, d, d**-0.5,
            IS_CAUSAL=is_causal, Q_TILE_SIZE=tile, K_TILE_SIZE=tile, D_TILE_SIZE=d_tile,
            num_warps=4 if d_tile <= 64 else 8, num_stages=1,
        )  # fmt: skip
    return (
        grad_q.to(q.dtype).reshape(*batch, n_queries, d),
        grad_k.reshape(*batch, n_keys, d),
        grad_v.reshape(*batch, n_keys, d),
    )


def _check(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    if k.shape != v.shape:
        raise ValueError(f"expected k and v of one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    if q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"expected q and k alike but for the length, got {tuple(q.shape)} and {tuple(k.shape)}")
    if grad_o.shape != q.shape or o.shape != q.shape or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected grad_o, o and lse to fit q, which is {tuple(q.shape)}")
    dtypes = {x.dtype for x in (grad_o, q, k, v, o)}
    if len(dtypes) > 1:
        raise ValueError(f"expected one dtype, got {dtypes}")


@triton.jit
def backward_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, lse_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_lb, stride_ln,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, Q_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a key tile of one batch. delta and the three gradients are contiguous."""
    batch = (tl.program_id(0) // tl.cdiv(n_keys, K_TILE_SIZE)).to(tl.int64)
    first_key = tl.program_id(0) % tl.cdiv(n_keys, K_TILE_SIZE) * K_TILE_SIZE
    keys = first_key + tl.arange(0, K_TILE_SIZE).to(tl.int64)[:, None]  # (K, 1)
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)[None, :]  # (1, D)
    kv_mask = (keys < n_keys) & (cols < d)
    k = tl.load(k_ptr + batch * stride_kb + keys * stride_kn + cols * stride_kd, mask=kv_mask, other=0.0)
    v = tl.load(v_ptr + batch * stride_vb + keys * stride_vn + cols * stride_vd, mask=kv_mask, other=0.0)
    grad_k = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    grad_v = tl.zeros((K_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)

    first_tile = first_key // Q_TILE_SIZE if IS_CAUSAL else 0
    for tile in range(first_tile, tl.cdiv(n_queries, Q_TILE_SIZE)):
        rows = tile * Q_TILE_SIZE + tl.arange(0, Q_TILE_SIZE).to(tl.int64)
        queries = rows[:, None]  # (Q, 1)
        q_mask = (queries < n_queries) & (cols < d)
        q = tl.load(q_ptr + batch * stride_qb + queries * stride_qn + cols * stride_qd, mask=q_mask, other=0.0)
        grad_o_ptrs = grad_o_ptr + batch * stride_gob + queries * stride_gon + cols * stride_god
        grad_o = tl.load(grad_o_ptrs, mask=q_mask, other=0.0)
        lse = tl.load(lse_ptr + batch * stride_lb + rows * stride_ln, mask=rows < n_queries, other=0.0)
        delta = tl.load(delta_ptr + batch * n_queries + rows, mask=rows < n_queries, other=0.0)

        # Where nothing may be seen, or is not there, the exponent is −∞: whatever lse is, p is 0.
        visible = (queries < n_queries) & (tl.trans(keys) < n_keys)
        if IS_CAUSAL:
            visible &= tl.trans(keys) <= queries
        s = tl.dot(q, tl.trans(k)) * scale  # (Q, K)
        p = tl.exp(tl.where(visible, s - lse[:, None], float("-inf")))
        grad_s = p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None])
        grad_v = tl.dot(tl.trans(p).to(v.dtype), grad_o, acc=grad_v)
        grad_k = tl.dot(tl.trans(grad_s).to(q.dtype), q, acc=grad_k)
        grad_q = tl.dot(grad_s.to(k.dtype), k) * scale
        tl.atomic_add(grad_q_ptr + (batch * n_queries + queries) * d + cols, grad_q, mask=q_mask, sem="relaxed")

    grad_kv_offsets = (batch * n_keys + keys) * d + cols
    tl.store(grad_k_ptr + grad_kv_offsets, (grad_k * scale).to(grad_k_ptr.dtype.element_ty), mask=kv_mask)
    tl.store(grad_v_ptr + grad_kv_offsets, grad_v.to(grad_v_ptr.dtype.element_ty), mask=kv_mask)
