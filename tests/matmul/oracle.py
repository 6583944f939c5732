"""What the product of matrices means, in float64."""

from jaxtyping import Float
from torch import Tensor


def matmul(a: Float[Tensor, "*batch m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "*batch m n"]:
    """c_ij = Σ_l a_il b_lj"""
    return a.double() @ b.double()
