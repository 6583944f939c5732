"""What LayerNorm means, in float64."""

from jaxtyping import Float
from torch import Tensor

from tests import layer_norm


def layernorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], bias: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """y = (x − mean) · rstd · w + b with rstd = 1/√(mean((x − mean)²) + eps)"""
    return layer_norm.forward(x, weight, bias, eps)


def layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float[Tensor, "*batch"],
    rstd: Float[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """dx = rstd · (h − mean(h) − x̂ · mean(h∘x̂)) with h = w∘dy, dw = Σ_rows dy∘x̂ and db = Σ_rows dy"""
    return layer_norm.backward(grad_y, x, weight, mean, rstd)
