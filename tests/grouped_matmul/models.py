"""What products in groups return, and how far a right kernel may be from it: see tests/compare.py."""

from collections.abc import Callable
from functools import partial

from torch import Tensor

from tests import products
from tests.compare import Expected, expect
from tests.grouped_matmul import oracle


def grouped_matmul(x: Tensor, weight: Tensor, group_sizes: Tensor) -> dict[str, Expected]:
    return {"y": of_rows(x, weight, group_sizes)}


def grouped_matmul_backward(grad_y: Tensor, x: Tensor, weight: Tensor, group_sizes: Tensor) -> dict[str, Expected]:
    return {
        "grad_x": of_rows(grad_y, weight.mT, group_sizes),
        "grad_weight": of_groups(x, grad_y, group_sizes),
    }


def of_rows(x: Tensor, weight: Tensor, group_sizes: Tensor) -> Expected:
    """Return what is expected of the rows of each group times the matrix of its expert."""
    return _expected(oracle.by_group, x, weight, group_sizes)


def of_groups(x: Tensor, grad_y: Tensor, group_sizes: Tensor) -> Expected:
    """Return what is expected of the sums over the rows of each group."""
    return _expected(oracle.over_groups, x, grad_y, group_sizes)


def _expected(of: Callable[..., Tensor], a: Tensor, b: Tensor, group_sizes: Tensor) -> Expected:
    """Return products of a and b in groups, with the bound of each way to multiply in float32."""
    value = of(a.double(), b.double(), group_sizes)
    ways = [[partial(of, a.float(), b.float(), group_sizes, way) for way in ways] for ways in products.WAYS]
    return expect(value, ways, [], of(a.double().abs(), b.double().abs(), group_sizes), a.dtype, rows=True)
