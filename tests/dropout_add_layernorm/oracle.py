"""What dropout, residual and LayerNorm mean, in float64; which elements are dropped, bit for bit."""

from jaxtyping import Float
from torch import Tensor

from tests.layernorm.oracle import layernorm_backward, layernorm_forward
from tests.philox import kept


def dropout_add_layernorm_forward(
    x: Float[Tensor, "*batch d"],
    residual: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    p: float = 0.1,
    seed: int = 0,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """summed = residual + keep · x / (1 − p) and y = LayerNorm(summed)"""
    summed = residual.double() + kept(x.shape, p, seed) * x.double() / (1 - p)
    y, mean, rstd = layernorm_forward(summed, weight, bias, eps)
    return y, summed, mean, rstd


def dropout_add_layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    summed: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float[Tensor, "*batch"],
    rstd: Float[Tensor, "*batch"],
    p: float = 0.1,
    seed: int = 0,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """grad_residual = that of LayerNorm, grad_x = keep · grad_residual / (1 − p)"""
    grad_summed, grad_weight, grad_bias = layernorm_backward(grad_y, summed, weight, mean, rstd)
    grad_x = kept(summed.shape, p, seed) * grad_summed / (1 - p)
    return grad_x, grad_summed, grad_weight, grad_bias
