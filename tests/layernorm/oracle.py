"""What LayerNorm means, in float64.

   mean = Σ_j x_j / d,  rstd = 1/√(Σ_j (x_j − mean)² / d + eps),  x̂ = (x − mean) · rstd,  y = x̂ · w + b

(Ba, Kiros & Hinton 2016, "Layer Normalization", eq. 4). The variance has to be that of differences from the mean: a
row of mean 10⁴ and deviation 1 has a mean square of 10⁸ + 1, which float32 does not tell from 10⁸.
"""

from jaxtyping import Float
from torch import Tensor

from tests.sums import sum_rows

Rows = Float[Tensor, "*batch d"]
PerRow = Float[Tensor, "*batch"]
Vector = Float[Tensor, " d"]


def layernorm_forward(x: Rows, weight: Vector, bias: Vector, eps: float = 1e-5) -> tuple[Rows, PerRow, PerRow]:
    """y = x̂ · w + b; and mean and rstd"""
    x = x.double()
    mean = x.mean(-1)
    centred = x - mean.unsqueeze(-1)
    rstd = (centred.square().mean(-1) + eps).rsqrt()
    return centred * rstd.unsqueeze(-1) * weight.double() + bias.double(), mean, rstd


def layernorm_backward(
    grad_y: Rows, x: Rows, weight: Vector, mean: PerRow, rstd: PerRow
) -> tuple[Rows, Vector, Vector]:
    """dx = rstd · (h − mean(h) − x̂ · mean(h∘x̂)) with h = w∘dy, dw = Σ_rows dy∘x̂ and db = Σ_rows dy"""
    grad_y, rstd = grad_y.double(), rstd.double().unsqueeze(-1)
    x_hat = (x.double() - mean.double().unsqueeze(-1)) * rstd
    h = grad_y * weight.double()
    along = (h * x_hat).mean(-1, keepdim=True)
    grad_x = rstd * (h - h.mean(-1, keepdim=True) - x_hat * along)
    return grad_x, sum_rows(grad_y * x_hat), sum_rows(grad_y)
