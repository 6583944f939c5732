"""What matmul returns, and how far a right kernel may be from it: see tests/compare.py."""

from torch import Tensor

from tests import products
from tests.compare import Expected, expect
from tests.matmul import oracle


def matmul(a: Tensor, b: Tensor) -> dict[str, Expected]:
    c, magnitude = oracle.matmul(a, b), oracle.matmul(a.abs(), b.abs())
    return {"c": expect(c, products.roundings(a, b), [], magnitude, a.dtype, rows=True)}
