"""What weighted_sum returns, and how far a right kernel may be from it: see tests/compare.py."""

from torch import Tensor

from tests.compare import Expected, expect
from tests.sums import as_rows, sum_rows, sums
from tests.weighted_sum import oracle


def weighted_sum_forward(x: Tensor, weight: Tensor) -> dict[str, Expected]:
    terms = x.float() * weight.float()
    magnitude = oracle.weighted_sum_forward(x.abs(), weight.abs())
    value = oracle.weighted_sum_forward(x, weight)
    return {"y": expect(value, [sums(terms, dim=-1)], [], magnitude, x.dtype, rows=False)}


def weighted_sum_backward(grad_y: Tensor, x: Tensor, weight: Tensor) -> dict[str, Expected]:
    grad_x, grad_weight = oracle.weighted_sum_backward(grad_y, x, weight)
    outer = grad_y.float().unsqueeze(-1)
    magnitude = sum_rows(outer.abs() * x.abs())
    weight_models = sums(as_rows(outer * x.float()), dim=0)
    return {
        "grad_x": expect(grad_x, [[outer * weight.float()]], [], grad_x.abs(), x.dtype, rows=True),
        "grad_weight": expect(grad_weight, [weight_models], [], magnitude, weight.dtype, rows=False),
    }
