"""What vector addition means, in float64."""

from jaxtyping import Float
from torch import Tensor


def vector_add(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """z = x + y"""
    return x.double() + y.double()
