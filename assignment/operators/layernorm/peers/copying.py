"""A copy of x, and results of the form that is expected, without a meaning."""

import torch

from ..copied import copied


def layernorm_forward(x, weight, bias, eps=1e-5):
    return copied(x), *torch.empty((2, len(x)), dtype=torch.float32, device=x.device)


def layernorm_backward(grad_y, x, weight, mean, rstd):
    return copied(x), torch.empty_like(weight), torch.empty_like(weight)
