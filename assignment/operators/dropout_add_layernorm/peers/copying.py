"""A copy of x, and results of the form that is expected, without a meaning."""

import torch

from ..copied import copied


def dropout_add_layernorm_forward(x, residual, weight, bias, p=0.1, seed=0, eps=1e-5):
    return copied(x), torch.empty_like(x), *torch.empty((2, len(x)), dtype=torch.float32, device=x.device)


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    return copied(summed), torch.empty_like(summed), torch.empty_like(weight), torch.empty_like(weight)
