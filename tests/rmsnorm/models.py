"""What rmsnorm returns, and how far a right kernel may be from it: see tests/compare.py."""

import torch
from torch import Tensor

from tests.compare import Expected, expect
from tests.rmsnorm import oracle
from tests.sums import as_rows, sums


def rmsnorm_forward(x: Tensor, weight: Tensor, eps: float = 1e-5) -> dict[str, Expected]:
    y, rstd = oracle.rmsnorm_forward(x, weight, eps)
    d = x.shape[-1]
    rstd_models = [(total / d + eps).rsqrt() for total in sums(x.float().square(), dim=-1)]
    y_models = [x.float() * model.unsqueeze(-1) * weight.float() for model in rstd_models]
    return {
        "y": expect(y, [y_models], [], y.abs(), x.dtype, rows=True),
        "rstd": expect(rstd, [rstd_models], [], rstd, torch.float32, rows=False),
    }


def rmsnorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, rstd: Tensor) -> dict[str, Expected]:
    grad_x, grad_weight = oracle.rmsnorm_backward(grad_y, x, weight, rstd)
    x32, d, rstd_column = x.float(), x.shape[-1], rstd.unsqueeze(-1)
    x_hat, g = x32 * rstd_column, grad_y.float() * weight.float()
    x_models = [rstd_column * (g - x_hat * (total / d).unsqueeze(-1)) for total in sums(g * x_hat, dim=-1)]
    # The same without x̂, where g − x · (…) cancels differently.
    factors = [(total / d * rstd * rstd).unsqueeze(-1) for total in sums(g * x32, dim=-1)]
    x_models += [rstd_column * (g - x32 * factor) for factor in factors]
    x_hat_, g_ = x_hat.double().abs(), g.double().abs()
    x_magnitude = rstd.double().unsqueeze(-1) * (g_ + x_hat_ * (g_ * x_hat_).mean(-1, keepdim=True))
    terms = as_rows(grad_y.float() * x_hat)
    return {
        "grad_x": expect(grad_x, [x_models], [], x_magnitude, x.dtype, rows=True),
        "grad_weight": expect(
            grad_weight, [sums(terms, dim=0)], [], terms.double().abs().sum(0), weight.dtype, rows=False
        ),
    }
