"""PyTorch's LayerNorm; its forward pass and its backward one."""

import torch

aten = torch.ops.aten


def layernorm_forward(x, weight, bias, eps=1e-5):
    y, mean, rstd = aten.native_layer_norm(x, [x.shape[-1]], weight, bias, eps)
    return y, mean.float().view(-1), rstd.float().view(-1)


def layernorm_backward(grad_y, x, weight, mean, rstd):
    statistics = mean[:, None], rstd[:, None]
    return aten.native_layer_norm_backward(grad_y, x, [x.shape[-1]], *statistics, weight, weight, [True, True, True])
