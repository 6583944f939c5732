"""PyTorch's own kernels for a softmax: its forward pass and its backward one."""

import torch


def softmax_forward(x):
    return torch.softmax(x, -1)


def softmax_backward(grad_y, y):
    return torch.ops.aten._softmax_backward_data(grad_y, y, -1, y.dtype)
