"""RMSNorm and attention, plainly registered by torch.library.custom_op."""

import torch
from torch import Tensor

from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton
from cs336_kernels.rmsnorm import rmsnorm_backward, rmsnorm_forward


def rmsnorm_op(x, weight, eps=1e-5):
    return torch.ops.cs336.rmsnorm(x, weight, eps)[0]


def attention_op(q, k, v, is_causal=False):
    return torch.ops.cs336.flash_attention(q, k, v, is_causal)[0]


@torch.library.custom_op("cs336::rmsnorm", mutates_args=())
def _rmsnorm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    return rmsnorm_forward(x, weight, eps)


@_rmsnorm.register_fake
def _rmsnorm_fake(x, weight, eps=1e-5):
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("cs336::rmsnorm_backward", mutates_args=())
def _rmsnorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    grad_x, grad_weight = rmsnorm_backward(grad_y, x, weight, rstd)
    return grad_x, grad_weight


@_rmsnorm_backward.register_fake
def _rmsnorm_backward_fake(grad_y, x, weight, rstd):
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _save_rmsnorm(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _rmsnorm_gradients(ctx, grad_y, grad_rstd):
    return *torch.ops.cs336.rmsnorm_backward(grad_y, *ctx.saved_tensors), None


_rmsnorm.register_autograd(_rmsnorm_gradients, setup_context=_save_rmsnorm)


@torch.library.custom_op("cs336::flash_attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    return flash_forward_triton(q, k, v, is_causal)


@_attention.register_fake
def _attention_fake(q, k, v, is_causal=False):
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("cs336::flash_attention_backward", mutates_args=())
def _attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return flash_backward_triton(grad_o, q, k, v, o, lse, is_causal)


@_attention_backward.register_fake
def _attention_backward_fake(grad_o, q, k, v, o, lse, is_causal):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_attention(ctx, inputs, output):
    *qkv, ctx.is_causal = inputs
    ctx.save_for_backward(*qkv, *output)


def _attention_gradients(ctx, grad_o, grad_lse):
    return *torch.ops.cs336.flash_attention_backward(grad_o, *ctx.saved_tensors, ctx.is_causal), None


_attention.register_autograd(_attention_gradients, setup_context=_save_attention)
