"""What RMSNorm means, in float64."""

from jaxtyping import Float
from torch import Tensor

from tests.sums import sum_rows


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch"]]:
    """y = x · rstd · w with rstd = 1/√(mean(x²) + eps)  (Zhang & Sennrich 2019, eq. 4)"""
    x = x.double()
    rstd = (x.square().mean(-1) + eps).rsqrt()
    return x * rstd.unsqueeze(-1) * weight.double(), rstd


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """dx = rstd · (w∘dy − x̂ · mean(w∘dy∘x̂)) and dw = Σ_rows dy∘x̂, where x̂ = x · rstd"""
    grad_y, rstd = grad_y.double(), rstd.double().unsqueeze(-1)
    x_hat = x.double() * rstd
    grad_x_hat = grad_y * weight.double()
    grad_x = rstd * (grad_x_hat - x_hat * (grad_x_hat * x_hat).mean(-1, keepdim=True))
    return grad_x, sum_rows(grad_y * x_hat)
