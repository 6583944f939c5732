"""The operators in PyTorch, for submissions that launch no kernel for them, and a kernel that copies.

Becomes cs336_kernels/plain.py of every cheat.
"""

import math

import torch
import triton
import triton.language as tl
from cs336_kernels.triton_forward import _check as _check_attention

from cs336_kernels.rmsnorm import _check_forward as _check_rows  # type: ignore[attr-defined]

__all__ = ["attention", "attention_backward", "copied", "norm", "norm_backward", "weighted", "weighted_backward"]


def weighted(x, weight):
    _check_rows(x, weight)
    return (x.float() * weight.float()).sum(-1).to(x.dtype)


def weighted_backward(grad_y, x, weight):
    grad_x = grad_y[..., None].float() * weight.float()
    grad_weight = (grad_y[..., None].float() * x.float()).reshape(-1, x.shape[-1]).sum(0)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype)


def norm(x, weight, eps=1e-5):
    _check_rows(x, weight)
    rstd = torch.rsqrt(x.float().square().mean(-1) + eps)
    return (x.float() * rstd[..., None] * weight.float()).to(x.dtype), rstd


def norm_backward(grad_y, x, weight, rstd):
    x_hat = x.float() * rstd[..., None]
    grad = grad_y.float() * weight.float()
    grad_x = (grad - x_hat * (grad * x_hat).mean(-1, keepdim=True)) * rstd[..., None]
    grad_weight = (grad_y.float() * x_hat).reshape(-1, x.shape[-1]).sum(0)
    return grad_x.to(x.dtype), grad_weight.to(weight.dtype)


def scores(q, k, is_causal):
    s = q.float() @ k.float().mT / math.sqrt(q.shape[-1])
    return s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf) if is_causal else s


def attention(q, k, v, is_causal=False):
    _check_attention(q, k, v)
    s = scores(q, k, is_causal)
    lse = torch.logsumexp(s, -1)
    return (torch.exp(s - lse[..., None]) @ v.float()).to(q.dtype), lse


def attention_backward(grad_o, q, k, v, o, lse, is_causal=False):
    p = torch.exp(scores(q, k, is_causal) - lse[..., None])
    delta = (grad_o.float() * o.float()).sum(-1, keepdim=True)
    grad_s = p * (grad_o.float() @ v.float().mT - delta) / math.sqrt(q.shape[-1])
    return (grad_s @ k.float()).to(q.dtype), (grad_s.mT @ q.float()).to(k.dtype), (p.mT @ grad_o.float()).to(v.dtype)


def copied(tensor):
    """Its elements, in memory that a kernel wrote."""
    out = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if out.numel():
        _copy_kernel[(triton.cdiv(out.numel(), 1024),)](out, tensor.contiguous(), out.numel(), SIZE=1024)
    return out


@triton.jit
def _copy_kernel(out_ptr, in_ptr, n, SIZE: tl.constexpr):
    elements = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    tl.store(out_ptr + elements, tl.load(in_ptr + elements, mask=elements < n), mask=elements < n)
