"""By torch.library.Library: a schema as text, kernels for "cuda" alone, fakes and gradients by name."""

import torch

from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton
from cs336_kernels.rmsnorm import rmsnorm_backward, rmsnorm_forward

library = torch.library.Library("cs336", "FRAGMENT")
library.define("rmsnorm(Tensor x, Tensor weight, float eps=1e-5) -> (Tensor y, Tensor rstd)")
library.define("rmsnorm_backward(Tensor grad_y, Tensor x, Tensor weight, Tensor rstd) -> (Tensor, Tensor)")
library.define("flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False) -> (Tensor o, Tensor lse)")
library.define(
    "flash_attention_backward(Tensor grad_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, bool is_causal)"
    " -> (Tensor, Tensor, Tensor)"
)
library.impl("rmsnorm", rmsnorm_forward, "CUDA")
library.impl("rmsnorm_backward", rmsnorm_backward, "CUDA")
torch.library.impl(library, "flash_attention", "CUDA")(flash_forward_triton)
torch.library.impl("cs336::flash_attention_backward", "cuda", flash_backward_triton, lib=library)


def rmsnorm_op(x, weight, eps=1e-5):
    if not x.is_cuda or x.device.type != "cuda":
        raise ValueError(f"expected x on a GPU, got {x.device}")
    y, _ = torch.ops.cs336.rmsnorm.default(x, weight, eps)
    return y


def attention_op(q, k, v, is_causal=False):
    o, _ = torch.ops.cs336.flash_attention.default(q, k, v, is_causal=is_causal)
    return o


@torch.library.register_fake("cs336::rmsnorm", lib=library)
def _(x, weight, eps=1e-5):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), x.new_empty(x.shape[:-1], dtype=torch.float32)


@torch.library.register_fake("cs336::rmsnorm_backward")
def _(grad_y, x, weight, rstd):
    return x.new_empty(x.shape), torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)


@torch.library.register_fake("cs336::flash_attention", lib=library)
def _(q, k, v, is_causal=False):
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.register_fake("cs336::flash_attention_backward")
def _(grad_o, q, k, v, o, lse, is_causal):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def _save_rmsnorm(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2], output[1])
    ctx.set_materialize_grads(False)


def _rmsnorm_gradients(ctx, grad_y, _):
    return *torch.ops.cs336.rmsnorm_backward(grad_y, *ctx.saved_tensors), None


def _save_attention(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.is_causal = inputs[3]


def _attention_gradients(ctx, grad_o, _):
    return *torch.ops.cs336.flash_attention_backward(grad_o, *ctx.saved_tensors, ctx.is_causal), None


torch.library.register_autograd("cs336::rmsnorm", _rmsnorm_gradients, setup_context=_save_rmsnorm, lib=library)
torch.library.register_autograd("cs336::flash_attention", _attention_gradients, setup_context=_save_attention)
