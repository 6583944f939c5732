"""What softmax means, in float64."""

import torch
from jaxtyping import Float
from torch import Tensor


def softmax_forward(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """y_j = exp(x_j − m) / Σ_k exp(x_k − m) with m = max_k x_k; 0 in a row of −∞ alone"""
    x = x.double()
    powers = (x - finite_max(x)).exp()
    total = powers.sum(-1, keepdim=True)
    return powers / torch.where(total > 0, total, 1.0)


def finite_max(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch 1"]:
    """Return the largest element of each row, and 0 of a row of −∞ alone."""
    top = x.amax(-1, keepdim=True)
    return torch.where(top.isfinite(), top, 0.0)


def softmax_backward(grad_y: Float[Tensor, "*batch d"], y: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """dx_j = y_j · (dy_j − Σ_k dy_k y_k)"""
    grad_y, y = grad_y.double(), y.double()
    return y * (grad_y - (grad_y * y).sum(-1, keepdim=True))
