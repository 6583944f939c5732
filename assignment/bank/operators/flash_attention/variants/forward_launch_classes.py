"""Launch plans as classes: dataclasses cached by shape, an enumeration of precisions, a scale that NumPy computes."""

import contextlib
import enum
import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

HIDDEN = tl.constexpr(-1e6)  # float32 can hold it beside logits of a few 1e4, and exp(HIDDEN - logit) is 0


class Precision(enum.Enum):
    """How products of float32 are made."""

    EXACT = "ieee"
    TF32 = "tf32"


@dataclass(frozen=True)
class Plan:
    """How a shape is launched."""

    block: int
    block_d: int
    precision: Precision

    @classmethod
    @functools.cache
    def of(cls, d: int, dtype: torch.dtype) -> "Plan":
        padded = max(16, triton.next_power_of_2(d))
        match dtype, padded:
            case torch.float32, _:
                return cls(32, padded, Precision.EXACT)
            case _, 16 | 32 | 64:
                return cls(64, padded, Precision.TF32)
            case _:
                return cls(32, padded, Precision.TF32)

    def launch(self, *tensors: Tensor, is_causal: bool) -> None:
        q, k, v, o, lse = tensors
        n_batches, n_queries, d = q.shape
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.cuda.device(q.device))
            stack.enter_context(torch.cuda.nvtx.range("flash_forward"))
            _kernel[n_batches * triton.cdiv(n_queries, self.block), 1](
                q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), n_queries, k.shape[1], d, 1 / np.sqrt(d),
                CAUSAL=bool(is_causal), MODE=self.precision.value, BLOCK=self.block, BLOCK_D=self.block_d,
            )  # fmt: skip


def flash_forward_triton(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> tuple[Float[Tensor, "*batch n_queries d"], Float[Tensor, "*batch n_queries"]]:
    """(o, lse); raises ValueError where q, k and v do not fit together."""
    check_inputs(q, k, v)
    n_batches = math.prod(q.shape[:-2])
    q_, k_, v_ = (x.reshape(n_batches, *x.shape[-2:]) for x in (q, k, v))
    o, lse = torch.empty(q_.shape, dtype=q.dtype, device=q.device), q.new_empty(q_.shape[:-1], dtype=torch.float32)
    if n_batches:
        Plan.of(q.shape[-1], q.dtype).launch(q_, k_, v_, o, lse, is_causal=is_causal)
    return o.view(q.shape), lse.view(q.shape[:-1])


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
def _kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    sqb, sqn, sqd, skb, skn, skd, svb, svn, svd,
    n_queries, n_keys, d, scale,
    CAUSAL: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
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
        logits = tl.dot(q, tl.trans(k), input_precision=MODE) * scale
        logits = tl.where((keys < n_keys)[None, :], logits, HIDDEN)
        if CAUSAL:
            logits = tl.where(keys[None, :] > queries, HIDDEN, logits)
        new_largest = tl.maximum(largest, tl.max(logits, axis=1, keep_dims=True))
        weights = tl.exp(logits - new_largest)
        decay = tl.exp(largest - new_largest)
        total = total * decay + tl.sum(weights, axis=1, keep_dims=True)
        o = o * decay + tl.dot(weights.to(v.dtype), v, input_precision=MODE)
        largest = new_largest
        k_ptrs += BLOCK * tl.cast(skn, tl.int64)
        v_ptrs += BLOCK * tl.cast(svn, tl.int64)

    rows = batch * n_queries + queries
    tl.store(o_ptr + rows * d + cols, (o / total).to(o_ptr.dtype.element_ty), mask=in_bounds)
    tl.store(lse_ptr + rows, largest + tl.log(total), mask=queries < n_queries)
