"""A copy of x, and results of the form that is expected, without a meaning."""

import torch

from ..copied import copied


def weighted_sum_forward(x, weight):
    return copied(x)[:, 0]


def weighted_sum_backward(grad_y, x, weight):
    return copied(x), torch.empty_like(weight)
