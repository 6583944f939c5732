"""What dropout_add_layernorm returns, and how far a right kernel may be from it: see tests/layer_norm.py."""

import torch
from torch import Tensor

from tests import layer_norm
from tests.compare import Expected, expect
from tests.dropout_add_layernorm import oracle
from tests.dropout_add_layernorm.philox import kept


def scales(p: float) -> list[Tensor]:
    """Return 1 / (1 − p) in float32: made by host code, and by a kernel that is given p in float32."""
    return [torch.tensor(1 / (1 - p), dtype=torch.float32), 1 / (1 - torch.tensor(p, dtype=torch.float32))]


def dropout_add_layernorm_forward(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, p: float = 0.1, seed: int = 0, eps: float = 1e-5
) -> dict[str, Expected]:
    keep = kept(x.shape, p, seed)
    summed = oracle.dropout_add_layernorm_forward(x, residual, weight, bias, p, seed, eps)[1]
    ways = [residual.float() + keep * x.float() * scale for scale in scales(p)]
    stored = [way.to(x.dtype).float() for way in ways]  # LayerNorm may be that of what is stored
    normalized = layer_norm.expect_forward(summed, [ways, stored], weight, bias, eps, x.dtype)
    size = residual.double().abs() + keep * x.double().abs() / (1 - p)
    own = {"summed": expect(summed, [ways], [], size, x.dtype, rows=True)}
    return {"y": normalized.pop("y")} | own | normalized


def dropout_add_layernorm_backward(
    grad_y: Tensor, summed: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, p: float = 0.1, seed: int = 0
) -> dict[str, Expected]:
    keep = kept(summed.shape, p, seed)
    grad_x = oracle.dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p, seed)[0]
    models, size = layer_norm.ways_to_grad_x(grad_y, summed, weight, mean, rstd)
    ways = [keep * model * scale for model in models for scale in scales(p)]
    normalized = layer_norm.expect_backward(grad_y, summed, weight, mean, rstd, summed.dtype)
    own = expect(grad_x, [ways], [], size / (1 - p), summed.dtype, rows=True)
    return {"grad_x": own, "grad_residual": normalized.pop("grad_x")} | normalized
