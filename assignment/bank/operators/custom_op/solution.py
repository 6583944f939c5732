"""RMSNorm and attention as operators that PyTorch knows, for practice: cs336::rmsnorm and cs336::flash_attention.

An operator of torch.library has a schema, a body, which launches kernels, and what a compiler and autograd need in
place of the body: a fake implementation, which makes results of the right shape, dtype and strides without data, and
a formula for its gradients, which calls a second operator. The kernels are those of cs336_kernels/rmsnorm.py and
cs336_kernels/flash_attention.py.
"""

import torch
from jaxtyping import Float
from torch import Tensor

# BEGIN SOLUTION
from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton
from cs336_kernels.rmsnorm import rmsnorm_backward, rmsnorm_forward

# END SOLUTION


def rmsnorm_op(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> Float[Tensor, "*batch d"]:
    """y of `rmsnorm_forward`, by the operator cs336::rmsnorm(Tensor x, Tensor weight, float eps=1e-05).

    The operator returns y, and what else its backward pass needs; it writes to no input.
    Gradients: of x and weight, by `rmsnorm_backward` in an operator of its own, in the namespace cs336.
    Without data: each operator's fake implementation gives the shape, dtype and strides of what its body returns.

    Raises:
        ValueError: as `rmsnorm_forward`, before any launch.
    """
    # BEGIN SOLUTION handout/custom_op.md
    return torch.ops.cs336.rmsnorm(x, weight, eps)[0]
    # END SOLUTION


def attention_op(
    q: Float[Tensor, "*batch n_queries d"],
    k: Float[Tensor, "*batch n_keys d"],
    v: Float[Tensor, "*batch n_keys d"],
    is_causal: bool = False,
) -> Float[Tensor, "*batch n_queries d"]:
    """o of `flash_forward_triton`, by cs336::flash_attention(Tensor q, Tensor k, Tensor v, bool is_causal=False).

    The operator returns o, and what else its backward pass needs; it writes to no input.
    Gradients: of q, k and v, by `flash_backward_triton` in an operator of its own, in the namespace cs336.
    Without data: as `rmsnorm_op`.

    Raises:
        ValueError: as `flash_forward_triton`, before any launch.
    """
    # BEGIN SOLUTION handout/custom_op.md
    return torch.ops.cs336.flash_attention(q, k, v, is_causal)[0]
    # END SOLUTION


# BEGIN SOLUTION
@torch.library.custom_op("cs336::rmsnorm", mutates_args=())
def _rmsnorm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """(y, rstd)"""
    return rmsnorm_forward(x, weight, eps)


@_rmsnorm.register_fake
def _rmsnorm_fake(x: Tensor, weight: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("cs336::rmsnorm_backward", mutates_args=())
def _rmsnorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    """(grad_x, grad_weight)"""
    return rmsnorm_backward(grad_y, x, weight, rstd)


@_rmsnorm_backward.register_fake
def _rmsnorm_backward_fake(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _save_rmsnorm(ctx, inputs, output):
    x, weight, _ = inputs
    _, rstd = output
    ctx.save_for_backward(x, weight, rstd)
    ctx.mark_non_differentiable(rstd)


def _rmsnorm_gradients(ctx, grad_y, _):
    return *_rmsnorm_backward(grad_y, *ctx.saved_tensors), None


_rmsnorm.register_autograd(_rmsnorm_gradients, setup_context=_save_rmsnorm)


@torch.library.custom_op("cs336::flash_attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    """(o, lse)"""
    return flash_forward_triton(q, k, v, is_causal)


@_attention.register_fake
def _attention_fake(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("cs336::flash_attention_backward", mutates_args=())
def _attention_backward(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """(grad_q, grad_k, grad_v)"""
    return flash_backward_triton(grad_o, q, k, v, o, lse, is_causal)


@_attention_backward.register_fake
def _attention_backward_fake(
    grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save_attention(ctx, inputs, output):
    *qkv, ctx.is_causal = inputs
    ctx.save_for_backward(*qkv, *output)
    ctx.mark_non_differentiable(output[1])


def _attention_gradients(ctx, grad_o, _):
    return *_attention_backward(grad_o, *ctx.saved_tensors, ctx.is_causal), None


_attention.register_autograd(_attention_gradients, setup_context=_save_attention)
# END SOLUTION
