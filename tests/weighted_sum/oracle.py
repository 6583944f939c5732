"""What the weighted sum means, in float64."""

from jaxtyping import Float
from torch import Tensor

from tests.sums import sum_rows


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    """y_i = Σ_j x_ij w_j"""
    return (x.double() * weight.double()).sum(-1)


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """dx_ij = dy_i w_j and dw_j = Σ_i dy_i x_ij"""
    grad_y = grad_y.double().unsqueeze(-1)
    return grad_y * weight.double(), sum_rows(grad_y * x.double())
