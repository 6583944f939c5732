"""What bias and GELU mean, in float64."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from tests.sums import sum_rows

CUBIC = 0.044715


def bias_gelu_forward(
    x: Float[Tensor, "*batch d"], bias: Float[Tensor, " d"], approximate: str = "none"
) -> Float[Tensor, "*batch d"]:
    """y = z · Φ(z) with z = x + bias; "tanh": z · ½ (1 + tanh √(2/π) (z + 0.044715 z³))"""
    z = x.double() + bias.double()
    return z * (of_tanh(z) if approximate == "tanh" else of_erf(z))


def bias_gelu_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    bias: Float[Tensor, " d"],
    approximate: str = "none",
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """dx = dy · (Φ(z) + z · Φ′(z)) and dbias = Σ_rows dx"""
    z = x.double() + bias.double()
    if approximate == "tanh":
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * CUBIC * z * z)
        share = of_tanh(z)
        gelu_slope = share + z * share * (1 - share) * slope
    else:
        gelu_slope = of_erf(z) + z * (-0.5 * z * z).exp() / math.sqrt(2 * math.pi)
    grad_x = grad_y.double() * gelu_slope
    return grad_x, sum_rows(grad_x)


def of_erf(z: Tensor) -> Tensor:
    """Φ(z), without a difference of nearly equal numbers"""
    return 0.5 * torch.erfc(-z * math.sqrt(0.5))


def of_tanh(z: Tensor) -> Tensor:
    """½ (1 + tanh u) = σ(2u)"""
    return (2 * math.sqrt(2 / math.pi) * (z + CUBIC * z**3)).sigmoid()
