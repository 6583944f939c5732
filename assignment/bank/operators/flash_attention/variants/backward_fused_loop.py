"""FlashAttention-2 backward as algorithm 2 is printed: one program a batch walks over all tiles, keys outside and
queries inside. dQ is read, added to and written back in a float32 buffer, which belongs to that program alone.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def flash_backward_triton(
    grad_o: Float[Tensor, "*batch n_queries d"],
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    o: Float[Tensor, "*batch n_queries d"],
    lse: Float[Tensor, "*batch n_queries"],
    is_causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v; P is recomputed from lse and D from o, both inside of the kernel."""
    problem = _mistake(grad_o, q, k, v, o, lse)
    if problem:
        raise ValueError(problem)
    n_queries, n_keys, d = q.shape[-2], k.shape[-2], q.shape[-1]
    inputs = [x.reshape(-1, *x.shape[-2:]) for x in (grad_o, q, k, v, o, lse.unsqueeze(-1))]
    n_batches = inputs[0].shape[0]
    sum_q = torch.zeros((n_batches, n_queries, d), dtype=torch.float32, device=q.device)
    grad_k, grad_v = (q.new_empty((n_batches, n_keys, d)) for _ in range(2))
    if n_batches > 0:
        d_tile_size = max(16, triton.next_power_of_2(d))
        _all_tiles_kernel[(n_batches,)](
            *inputs, sum_q, grad_k, grad_v,
            *(stride for x in inputs for stride in x.stride()),
            n_queries, n_keys, d, d**-0.5, is_causal,
            TILE=32 if d_tile_size * q.dtype.itemsize < 1024 else 16, D_TILE=d_tile_size,
            num_stages=1,  # loads of sum_q must not overtake the stores before them
        )  # fmt: skip
    return sum_q.to(q.dtype).view(q.shape), grad_k.view(k.shape), grad_v.view(v.shape)


def _mistake(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor) -> str | None:
    """What is wrong with the arguments, in words."""
    if min(q.ndim, k.ndim, v.ndim) < 2:
        return "expected q, k and v of at least two dimensions"
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        return f"expected one d, got {q.shape[-1]}, {k.shape[-1]} and {v.shape[-1]}"
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return f"expected the same batch, got {[*q.shape[:-2]]}, {[*k.shape[:-2]]} and {[*v.shape[:-2]]}"
    if k.shape[-2] != v.shape[-2]:
        return f"expected as many keys as values, got {k.shape[-2]} and {v.shape[-2]}"
    if not q.dtype == k.dtype == v.dtype == grad_o.dtype == o.dtype:
        return f"expected one dtype, got {q.dtype}, {k.dtype}, {v.dtype}, {grad_o.dtype} and {o.dtype}"
    if not grad_o.shape == o.shape == q.shape or lse.shape != q.shape[:-1]:
        return f"expected grad_o, o and lse that belong to q, which has shape {[*q.shape]}"
    return None


@triton.jit
def _all_tiles_kernel(
    grad_o_ptr, q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, sum_q_ptr, grad_k_ptr, grad_v_ptr,
    stride_gob, stride_gon, stride_god,
    stride_qb, stride_qn, stride_qd,
    stride_kb, stride_kn, stride_kd,
    stride_vb, stride_vn, stride_vd,
    stride_ob, stride_on, stride_od,
    stride_lb, stride_ln, stride_l1,
    n_queries, n_keys, d, scale,
    IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, D_TILE: tl.constexpr,
):  # fmt: skip
    """One program one batch. sum_q, float32 and full of zeros, and grad_k and grad_v are contiguous."""
    batch = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, D_TILE)
    is_col = (cols < d)[None, :]
    for first_key in range(0, n_keys, TILE):
        keys = first_key + tl.arange(0, TILE)
        is_kv = (keys < n_keys)[:, None] & is_col
        k = tl.load(_at(k_ptr + batch * stride_kb, keys, cols, stride_kn, stride_kd), mask=is_kv, other=0.0)
        v = tl.load(_at(v_ptr + batch * stride_vb, keys, cols, stride_vn, stride_vd), mask=is_kv, other=0.0)
        grad_k = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        grad_v = tl.zeros((TILE, D_TILE), dtype=tl.float32)
        for first_query in range(first_key if IS_CAUSAL else 0, n_queries, TILE):
            queries = first_query + tl.arange(0, TILE)
            is_query = queries < n_queries
            is_q = is_query[:, None] & is_col
            q = tl.load(_at(q_ptr + batch * stride_qb, queries, cols, stride_qn, stride_qd), mask=is_q, other=0.0)
            o = tl.load(_at(o_ptr + batch * stride_ob, queries, cols, stride_on, stride_od), mask=is_q, other=0.0)
            grad_o_ptrs = _at(grad_o_ptr + batch * stride_gob, queries, cols, stride_gon, stride_god)
            grad_o = tl.load(grad_o_ptrs, mask=is_q, other=0.0)
            lse_ptrs = lse_ptr + batch * stride_lb + queries.to(tl.int64) * stride_ln
            lse = tl.load(lse_ptrs, mask=is_query, other=float("inf"))  # a query past the last has p = 0
            delta = tl.sum(grad_o.to(tl.float32) * o.to(tl.float32), axis=1)

            s = tl.dot(q, k.T) * scale  # (queries, keys)
            s = tl.where((keys < n_keys)[None, :], s, float("-inf"))
            if IS_CAUSAL:
                s = tl.where(keys[None, :] > queries[:, None], float("-inf"), s)
            p = tl.exp(s - lse[:, None])
            grad_v += tl.dot(p.T.to(grad_o.dtype), grad_o)
            grad_s = p * (tl.dot(grad_o, v.T) - delta[:, None]) * scale
            grad_k += tl.dot(grad_s.T.to(q.dtype), q)
            sum_q_ptrs = _at(sum_q_ptr + batch * n_queries * d, queries, cols, d, 1)
            sum_q = tl.load(sum_q_ptrs, mask=is_q, other=0.0)
            tl.store(sum_q_ptrs, sum_q + tl.dot(grad_s.to(k.dtype), k), mask=is_q)
            tl.debug_barrier()  # another thread may read these elements for the next tile of keys
        grad_k_ptrs = _at(grad_k_ptr + batch * n_keys * d, keys, cols, d, 1)
        grad_v_ptrs = _at(grad_v_ptr + batch * n_keys * d, keys, cols, d, 1)
        tl.store(grad_k_ptrs, grad_k.to(grad_k_ptr.dtype.element_ty), mask=is_kv)
        tl.store(grad_v_ptrs, grad_v.to(grad_v_ptr.dtype.element_ty), mask=is_kv)


@triton.jit
def _at(ptr, rows, cols, stride_row, stride_col):
    """Pointers to rows × cols of a matrix."""
    return ptr + rows.to(tl.int64)[:, None] * stride_row + cols.to(tl.int64)[None, :] * stride_col
