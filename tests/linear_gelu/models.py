"""What linear_gelu returns, and how far a right kernel may be from it: see tests/compare.py."""

from torch import Tensor

from tests import products
from tests.bias_gelu.models import shares
from tests.compare import Expected, expect
from tests.linear_gelu import oracle


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, approximate: str = "none") -> dict[str, Expected]:
    y = oracle.linear_gelu(x, weight, bias, approximate)
    roundings = [
        [z * share for z in (product + bias.float() for product in ways) for share in shares(z, approximate)]
        for ways in products.roundings(x, weight.mT)
    ]
    magnitude = x.double().abs() @ weight.double().abs().mT + bias.double().abs()
    return {"y": expect(y, roundings, [], magnitude, x.dtype, rows=True)}
