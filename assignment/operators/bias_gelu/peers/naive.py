"""PyTorch's own words for it, one operation after the other."""

import math

import torch


def share(z, approximate):
    if approximate == "tanh":
        return torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))
    return 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))


def bias_gelu_forward(x, bias, approximate="none"):
    z = x.float() + bias
    return (z * share(z, approximate)).to(x.dtype)


def bias_gelu_backward(grad_y, x, bias, approximate="none"):
    z = x.float() + bias
    factor = share(z, approximate)
    if approximate == "tanh":
        density = 2 * math.sqrt(2 / math.pi) * factor * (1 - factor) * (1 + 3 * 0.044715 * z * z)
    else:
        density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    grad_x = grad_y * (factor + z * density)
    return grad_x.to(x.dtype), grad_x.sum(0).to(bias.dtype)
