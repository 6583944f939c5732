"""PyTorch's fused RMSNorm; its forward pass and its backward one."""

import torch

aten = torch.ops.aten


def rmsnorm_forward(x, weight, eps=1e-5):
    return aten._fused_rms_norm(x, [x.shape[-1]], weight, eps)


def rmsnorm_backward(grad_y, x, weight, rstd):
    return aten._fused_rms_norm_backward(grad_y, x, [x.shape[-1]], rstd[:, None], weight, [True, True])
