"""Exact float32 products (input_precision="ieee"), and hidden logits of -1e6 instead of −∞: far below any real one, so
that exp() gives zero without a special case.
"""

import functools
import operator

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

HIDDEN = tl.constexpr(-1e6)  # float32 can hold it beside logits of a few 1e4, and exp(HIDDEN - logit) is 0


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse); raises ValueError where q, k and v do not fit together."""
    check_inputs(q, k, v)
    *batch, n_queries, d = q.shape
    n_keys = k.shape[-2]
    n_batches = functools.reduce(operator.mul, batch, 1)
    q, k, v = q.reshape(n_batches, n_queries, d), k.reshape(n_batches, n_keys, d), v.reshape(n_batches, n_keys, d)
    o = torch.zeros_like(q, memory_format=torch.contiguous_format)
    lse = torch.zeros(n_batches, n_queries, dtype=torch.float32, device=q.device)

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (n_batches * triton.cdiv(n_queries, meta["BLOCK"]),)

    if n_batches:
        block = 32 if d > 64 else 64
        forward_kernel[grid](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), n_queries, n_keys, d, 1.0 / d**0.5,
            CAUSAL=is_causal, BLOCK=block, BLOCK_D=max(16, triton.next_power_of_2(d)), num_warps=4, num_stages=1,
        )  # fmt: skip
    return o.unflatten(0, batch) if batch else o.squeeze(0), lse.unflatten(0, batch) if batch else lse.squeeze(0)


def check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    problems = {
        "different dtypes": len({q.dtype, k.dtype, v.dtype}) > 1,
        "different head dimensions": len({q.shape[-1], k.shape[-1], v.shape[-1]}) > 1,
        "different batch dimensions": len({q.shape[:-2], k.shape[:-2], v.shape[:-2]}) > 1,
        "k and v of different lengths": k.shape[-2] != v.shape[-2],
    }
    for problem, found in problems.items():
        if found:
            got = ", ".join(f"{name} {x.dtype} {tuple(x.shape)}" for name, x in zip("qkv", (q, k, v), strict=True))
            raise ValueError(f"expected q, k and v that fit together, got {problem}: {got}")


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    sqb, sqn, sqd, skb, skn, skd, svb, svn, svd,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """o and lse are contiguous. A program takes BLOCK queries of one batch and walks over its keys, BLOCK at a time."""
    blocks = tl.cdiv(n_queries, BLOCK)
    pid = tl.program_id(0)
    batch = tl.cast(pid // blocks, tl.int64)
    first = (pid % blocks) * BLOCK
    offs = tl.arange(0, BLOCK).to(tl.int64)
    cols = tl.arange(0, BLOCK_D).to(tl.int64)[None, :]
    queries = (first + offs)[:, None]
    in_bounds = (queries < n_queries) & (cols < d)
    q = tl.load(q_ptr + batch * sqb + queries * sqn + cols * sqd, mask=in_bounds, other=0)
    k_ptrs = k_ptr + batch * skb + offs[:, None] * skn + cols * skd
    v_ptrs = v_ptr + batch * svb + offs[:, None] * svn + cols * svd

    o = tl.zeros([BLOCK, BLOCK_D], dtype=tl.float32)
    total = tl.zeros([BLOCK, 1], dtype=tl.float32)
    largest = tl.full([BLOCK, 1], HIDDEN, dtype=tl.float32)
    # Square tiles: the last one that a causal query sees is the one on the diagonal.
    n_blocks = tl.cdiv(n_keys, BLOCK)
    if CAUSAL:
        n_blocks = tl.minimum(n_blocks, pid % blocks + 1)
    for block in range(n_blocks):
        keys = block * BLOCK + offs
        kv_in_bounds = (keys < n_keys)[:, None] & (cols < d)
        k = tl.load(k_ptrs, mask=kv_in_bounds, other=0)
        v = tl.load(v_ptrs, mask=kv_in_bounds, other=0)
        logits = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        logits = tl.where((keys < n_keys)[None, :], logits, HIDDEN)
        if CAUSAL:
            logits = tl.where(keys[None, :] > queries, HIDDEN, logits)
        new_largest = tl.maximum(largest, tl.max(logits, axis=1, keep_dims=True))
        weights = tl.exp(logits - new_largest)
        decay = tl.exp(largest - new_largest)
        total = total * decay + tl.sum(weights, axis=1, keep_dims=True)
        o = o * decay + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest
        k_ptrs += BLOCK * tl.cast(skn, tl.int64)
        v_ptrs += BLOCK * tl.cast(svn, tl.int64)

    rows = batch * n_queries + queries
    tl.store(o_ptr + rows * d + cols, (o / total).to(o_ptr.dtype.element_ty), mask=in_bounds)
    tl.store(lse_ptr + rows, largest + tl.log(total), mask=queries < n_queries)
