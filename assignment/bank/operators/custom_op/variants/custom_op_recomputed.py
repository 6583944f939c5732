"""Operators that return one tensor, for "cuda" alone: backward passes call the forward kernels again."""

from torch import Tensor
from torch.library import custom_op

from cs336_kernels.flash_attention import flash_backward_triton, flash_forward_triton
from cs336_kernels.rmsnorm import rmsnorm_backward, rmsnorm_forward


@custom_op("cs336::rmsnorm", mutates_args=(), device_types="cuda")
def rmsnorm_op(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    return rmsnorm_forward(x, weight, eps=eps)[0]


@custom_op("cs336::rmsnorm_gradients", mutates_args=(), device_types=("cpu", "cuda"))
def rmsnorm_gradients(grad_y: Tensor, x: Tensor, weight: Tensor, eps: float) -> list[Tensor]:
    _, rstd = rmsnorm_forward(x, weight, eps=eps)
    return list(rmsnorm_backward(grad_y, x, weight, rstd))


@custom_op("cs336::flash_attention", mutates_args=(), device_types="cuda")
def attention_op(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return flash_forward_triton(q, k, v, is_causal=is_causal)[0]


@custom_op("cs336::flash_attention_gradients", mutates_args=())
def attention_gradients(grad_o: Tensor, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> list[Tensor]:
    o, lse = flash_forward_triton(q, k, v, is_causal=is_causal)
    return list(flash_backward_triton(grad_o, q, k, v, o, lse, is_causal=is_causal))


rmsnorm_op.register_fake(lambda x, weight, eps=1e-5: x.new_empty(x.shape))
attention_op.register_fake(lambda q, k, v, is_causal=False: q.new_empty(q.shape))
rmsnorm_gradients.register_fake(lambda grad_y, x, weight, eps: [t.new_empty(t.shape) for t in (x, weight)])
attention_gradients.register_fake(lambda grad_o, q, k, v, is_causal: [t.new_empty(t.shape) for t in (q, k, v)])


def _save(ctx, inputs, output):
    *tensors, ctx.option = inputs
    ctx.save_for_backward(*tensors)


rmsnorm_op.register_autograd(
    lambda ctx, grad_y: (*rmsnorm_gradients(grad_y, *ctx.saved_tensors, ctx.option), None), setup_context=_save
)
attention_op.register_autograd(
    lambda ctx, grad_o: (*attention_gradients(grad_o, *ctx.saved_tensors, ctx.option), None), setup_context=_save
)
