"""What a linear layer and its GELU mean, in float64."""

from jaxtyping import Float
from torch import Tensor

from tests.bias_gelu import oracle


def linear_gelu(
    x: Float[Tensor, "*batch m k"], weight: Float[Tensor, "n k"], bias: Float[Tensor, " n"], approximate: str = "none"
) -> Float[Tensor, "*batch m n"]:
    """y = gelu(x weightᵀ + bias)"""
    return oracle.bias_gelu_forward(x.double() @ weight.double().mT, bias, approximate)
