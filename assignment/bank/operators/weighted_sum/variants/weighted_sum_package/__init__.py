"""Weighted sum as a package: functions here, launches in a package below, kernels and their helpers in modules."""

import torch
from jaxtyping import Float
from torch import Tensor

from . import launch as launches
from .checks import check, check_gradient


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    check(x, weight)
    return launches.forward(x.reshape(-1, x.shape[-1]), weight).view(x.shape[:-1])


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    check(x, weight)
    check_gradient(grad_y, x)
    grad_x, grad_w = launches.backward(grad_y.reshape(-1), x.reshape(-1, x.shape[-1]), weight)
    return grad_x.view(x.shape), grad_w


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return _WeightedSum.apply(x, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)
