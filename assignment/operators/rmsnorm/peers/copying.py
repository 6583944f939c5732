"""A copy of x, and results of the form that is expected, without a meaning."""

import torch

from ..copied import copied


def rmsnorm_forward(x, weight, eps=1e-5):
    return copied(x), torch.empty(len(x), dtype=torch.float32, device=x.device)


def rmsnorm_backward(grad_y, x, weight, rstd):
    return copied(x), torch.empty_like(weight)
