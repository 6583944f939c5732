"""FlashAttention-2 backward on k scaled by 1/√d once it is loaded: the logits come out right without another multiply,
dQ = dS (K/√d) needs no factor at the end, and dK takes its own there.
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
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, each in the dtype of its input."""
    _require_alike(grad_o, q, k, v, o, lse)
    batch, n_queries, n_keys, d = q.shape[:-2], q.shape[-2], k.shape[-2], q.shape[-1]
    flat = [x.reshape(batch.numel(), *x.shape[len(batch) :]) for x in (grad_o, q, k, v, o, lse)]
    grad_q = torch.empty((batch.numel(), n_queries, d), dtype=q.dtype, device=q.device)
    grad_k = torch.empty((batch.numel(), n_keys, d), dtype=k.dtype, device=k.device)
    grad_v = torch.empty_like(grad_k)
    delta = torch.empty((batch.numel(), n_queries), dtype=torch.float32, device=q.device)

    if batch.numel() > 0:
        block_d = max(triton.next_power_of_2(d), 16)
        block = 32 if block_d * q.dtype.itemsize <= 512 else 16
        blocks = triton.cdiv(max(n_queries, n_keys), block)
        common = {"IS_CAUSAL": is_causal, "BLOCK": block, "BLOCK_D": block_d, "num_warps": 4, "num_stages": 1}
        strides = [stride for x in flat for stride in x.stride()]
        for gradients_of_keys in (False, True):  # the pass over the queries leaves delta for the one over the keys
            _pass_kernel[batch.numel() * blocks,](
                *flat, delta, grad_q, grad_k, grad_v, *strides, n_queries, n_keys, d, d**-0.5, blocks,
                OF_KEYS=gradients_of_keys, **common,
            )  # fmt: skip
    return grad_q.reshape(q.shape), grad_k.reshape(k.shape), grad_v.reshape(v.shape)


def _require_alike(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> None:
    shapes = {name: tuple(x.shape) for name, x in {"q": q, "k": k, "v": v, "grad_o": grad_o, "o": o}.items()}
    batches = {shape[:-2] for shape in shapes.values()}
    if len(batches) > 1 or lse.shape != q.shape[:-1]:
        raise ValueError(f"expected the same batch dimensions, got {shapes} and lse {tuple(lse.shape)}")
    if len({shape[-1] for shape in shapes.values()}) > 1:
        raise ValueError(f"expected the same last dimension, got {shapes}")
    if shapes["k"] != shapes["v"] or not shapes["q"] == shapes["grad_o"] == shapes["o"]:
        raise ValueError(f"expected k and v, and q, grad_o and o, of one length, got {shapes}")
    if len({x.dtype for x in (q, k, v, grad_o, o)}) > 1:
        raise ValueError(f"expected the same dtype, got q {q.dtype}, k {k.dtype}, v {v.dtype}")


@triton.jit
def _rows(ptr, rows, stride_row, stride_col, n_rows, d, BLOCK_D: tl.constexpr):
    """Whole rows of a matrix, zeros outside of it."""
    cols = tl.arange(0, BLOCK_D).to(tl.int64)
    return tl.load(
        ptr + rows[:, None] * stride_row + cols[None, :] * stride_col,
        mask=(rows < n_rows)[:, None] & (cols < d)[None, :],
        other=0.0,
    )


@triton.jit
def _write_rows(ptr, tile, rows, n_rows, d, BLOCK_D: tl.constexpr):
    cols = tl.arange(0, BLOCK_D)
    mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
    tl.store(ptr + rows[:, None] * d + cols[None, :], tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _p_tile(q, scaled_k, lse, queries, keys, n_queries, n_keys, IS_CAUSAL: tl.constexpr):
    """P, (queries, keys), in float32; 0 where a key is hidden or there is no such query."""
    hidden = (queries[:, None] >= n_queries) | (keys[None, :] >= n_keys)
    if IS_CAUSAL:
        hidden |= queries[:, None] < keys[None, :]
    exponent = tl.dot(q, tl.trans(scaled_k)) - lse[:, None]
    return tl.exp(tl.where(hidden, float("-inf"), exponent))


@triton.jit
def _pass_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, delta_ptr, grad_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god, stride_qb, stride_qn, stride_qd, stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd, stride_ob, stride_on, stride_od, stride_lb, stride_ln,
    n_queries, n_keys, d, scale, n_blocks,
    OF_KEYS: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program a block of queries, or, OF_KEYS, a block of keys."""
    batch = (tl.program_id(0) // n_blocks).to(tl.int64)
    block = tl.program_id(0) % n_blocks
    q_ptr += batch * stride_qb
    k_ptr += batch * stride_kb
    v_ptr += batch * stride_vb
    grad_o_ptr += batch * stride_gob
    lse_ptr += batch * stride_lb
    delta_ptr += batch * n_queries
    own = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    first = tl.zeros((BLOCK, BLOCK_D), dtype=tl.float32)
    second = tl.zeros((BLOCK, BLOCK_D), dtype=tl.float32)
    if OF_KEYS:
        k = _rows(k_ptr, own, stride_kn, stride_kd, n_keys, d, BLOCK_D)
        scaled_k = (k.to(tl.float32) * scale).to(k.dtype)
        v = _rows(v_ptr, own, stride_vn, stride_vd, n_keys, d, BLOCK_D)
        for i in range(block if IS_CAUSAL else 0, tl.cdiv(n_queries, BLOCK)):
            queries = i * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
            q = _rows(q_ptr, queries, stride_qn, stride_qd, n_queries, d, BLOCK_D)
            grad_o = _rows(grad_o_ptr, queries, stride_gon, stride_god, n_queries, d, BLOCK_D)
            lse = tl.load(lse_ptr + queries * stride_ln, mask=queries < n_queries, other=0.0)
            delta = tl.load(delta_ptr + queries, mask=queries < n_queries, other=0.0)
            p = _p_tile(q, scaled_k, lse, queries, own, n_queries, n_keys, IS_CAUSAL)
            grad_s = p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None])
            first += tl.dot(tl.trans(grad_s).to(q.dtype), q)
            second += tl.dot(tl.trans(p).to(grad_o.dtype), grad_o)
        _write_rows(grad_k_ptr + batch * n_keys * d, first * scale, own, n_keys, d, BLOCK_D)
        _write_rows(grad_v_ptr + batch * n_keys * d, second, own, n_keys, d, BLOCK_D)
    else:
        q = _rows(q_ptr, own, stride_qn, stride_qd, n_queries, d, BLOCK_D)
        o = _rows(o_ptr + batch * stride_ob, own, stride_on, stride_od, n_queries, d, BLOCK_D)
        grad_o = _rows(grad_o_ptr, own, stride_gon, stride_god, n_queries, d, BLOCK_D)
        lse = tl.load(lse_ptr + own * stride_ln, mask=own < n_queries, other=0.0)
        delta = tl.sum(o.to(tl.float32) * grad_o.to(tl.float32), axis=1)
        tl.store(delta_ptr + own, delta, mask=own < n_queries)
        for i in range(0, tl.minimum(tl.cdiv(n_keys, BLOCK), block + 1) if IS_CAUSAL else tl.cdiv(n_keys, BLOCK)):
            keys = i * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
            k = _rows(k_ptr, keys, stride_kn, stride_kd, n_keys, d, BLOCK_D)
            scaled_k = (k.to(tl.float32) * scale).to(k.dtype)
            v = _rows(v_ptr, keys, stride_vn, stride_vd, n_keys, d, BLOCK_D)
            p = _p_tile(q, scaled_k, lse, own, keys, n_queries, n_keys, IS_CAUSAL)
            grad_s = p * (tl.dot(grad_o, tl.trans(v)) - delta[:, None])
            first += tl.dot(grad_s.to(k.dtype), scaled_k)
        _write_rows(grad_q_ptr + batch * n_queries * d, first, own, n_queries, d, BLOCK_D)
