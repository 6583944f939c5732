"""What dropout_add_layernorm returns, and how far a right kernel may be from it: see tests/compare.py."""

import torch
from torch import Tensor

from tests.compare import Expected, expect
from tests.layernorm import models as layernorm
from tests.philox import kept


def scales(p: float) -> list[Tensor]:
    """Return 1 / (1 − p) in float32: made by host code, and by a kernel, whose quotient may be off by its last bit.

    That bit decides all ties of sums that are stored in 16 bits.
    """
    made, divided = torch.tensor(1 / (1 - p), dtype=torch.float32), 1 / (1 - torch.tensor(p, dtype=torch.float32))
    return [made, divided, divided.nextafter(torch.tensor(0.0)), divided.nextafter(torch.tensor(torch.inf))]


def dropout_add_layernorm_forward(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, p: float = 0.1, seed: int = 0, eps: float = 1e-5
) -> dict[str, Expected]:
    return forward_with(kept(x.shape, p, seed), x, residual, weight, bias, p, eps)


def dropout_add_layernorm_backward(
    grad_y: Tensor, summed: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, p: float = 0.1, seed: int = 0
) -> dict[str, Expected]:
    return backward_with(kept(summed.shape, p, seed), grad_y, summed, weight, mean, rstd, p)


def forward_with(
    keep: Tensor, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, p: float, eps: float = 1e-5
) -> dict[str, Expected]:
    summed = residual.double() + keep * x.double() / (1 - p)
    ways = [residual.float() + keep * x.float() * scale for scale in scales(p)]
    stored = [way.to(x.dtype).float() for way in ways]  # LayerNorm may be that of what is stored
    normalized = layernorm.expect_forward(summed, [ways, stored], weight, bias, eps, x.dtype)
    size = residual.double().abs() + keep * x.double().abs() / (1 - p)
    own = {"summed": expect(summed, [ways], [], size, x.dtype, rows=True)}
    return {"y": normalized.pop("y")} | own | normalized


def backward_with(
    keep: Tensor, grad_y: Tensor, summed: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, p: float
) -> dict[str, Expected]:
    normalized = layernorm.expect_backward(grad_y, summed, weight, mean, rstd, summed.dtype)
    grad_residual = normalized.pop("grad_x")
    models, size = layernorm.ways_to_grad_x(grad_y, summed, weight, mean, rstd)
    ways = [keep * model * scale for model in models for scale in scales(p)]
    grad_x = expect(keep * grad_residual.value / (1 - p), [ways], [], size / (1 - p), summed.dtype, rows=True)
    return {"grad_x": grad_x, "grad_residual": grad_residual} | normalized
