"""Operators without gradients of their own, called by Functions of autograd."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton
from cs336_kernels.rmsnorm import rmsnorm_backward, rmsnorm_forward


def registered(name, body, fake, schema):
    operator = torch.library.custom_op(f"cs336::{name}", body, mutates_args=(), schema=schema)
    operator.register_fake(fake)
    return operator


def like(*tensors):
    return tuple(tensor.new_empty(tensor.size()) for tensor in tensors)


def with_row(x):
    return *like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)


forward_of_rows = registered(
    "rmsnorm",
    lambda x, weight, eps=1e-5: rmsnorm_forward(x, weight, eps),
    lambda x, weight, eps=1e-5: with_row(x),
    "(Tensor x, Tensor weight, float eps=1e-5) -> (Tensor, Tensor)",
)
backward_of_rows = registered(
    "rmsnorm_backward",
    rmsnorm_backward,
    lambda grad_y, x, weight, rstd: like(x, weight),
    "(Tensor grad_y, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)",
)
forward_of_heads = registered(
    "flash_attention",
    flash_forward_triton,
    lambda q, k, v, is_causal=False: with_row(q),
    "(Tensor q, Tensor k, Tensor v, bool is_causal=False) -> (Tensor, Tensor)",
)
backward_of_heads = registered(
    "flash_attention_backward",
    flash_backward_triton,
    lambda grad_o, q, k, v, o, lse, is_causal: like(q, k, v),
    "(Tensor grad_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool is_causal) -> (Tensor, Tensor, Tensor)",
)


class OfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        y, rstd = forward_of_rows(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return *backward_of_rows(grad_y, *ctx.saved_tensors), None


class OfHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal):
        o, lse = forward_of_heads(q, k, v, is_causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal = is_causal
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        return *backward_of_heads(grad_o, *ctx.saved_tensors, ctx.is_causal), None


def rmsnorm_op(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return OfRows.apply(x, weight, eps)


def attention_op(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return OfHeads.apply(q, k, v, is_causal)
