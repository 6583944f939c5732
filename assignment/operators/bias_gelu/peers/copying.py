"""A copy of x, and a gradient of the form that is expected, without a meaning."""

import torch

from ..copied import copied


def bias_gelu_forward(x, bias, approximate="none"):
    return copied(x)


def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    return copied(x), torch.empty_like(bias)
