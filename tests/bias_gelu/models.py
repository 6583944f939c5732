"""What bias_gelu returns, and how far a right kernel may be from it: see tests/compare.py."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tests.bias_gelu import oracle
from tests.bias_gelu.oracle import CUBIC
from tests.compare import Expected, expect
from tests.sums import as_rows, sums

SLOPE = math.sqrt(2 / math.pi)


def bias_gelu_forward(x: Tensor, bias: Tensor, approximate: str = "none") -> dict[str, Expected]:
    y, z = oracle.bias_gelu_forward(x, bias, approximate), x.float() + bias.float()
    models = [z * share for share in shares(z, approximate)]
    magnitude = x.double().abs() + bias.double().abs()
    return {"y": expect(y, [models], [], magnitude, x.dtype, rows=False)}


def bias_gelu_backward(grad_y: Tensor, x: Tensor, bias: Tensor, approximate: str = "none") -> dict[str, Expected]:
    grad_x, grad_bias = oracle.bias_gelu_backward(grad_y, x, bias, approximate)
    z, g = x.float() + bias.float(), grad_y.float()
    models = [g * slope for slope in slopes(z, approximate)]
    in_order = [total for model in models for total in sums(as_rows(model), dim=0)]
    # Φ(z) is at most 1, and where it is small a kernel may have found it as 1 − (1 − Φ).
    magnitude = grad_y.double().abs()
    return {
        "grad_x": expect(grad_x, [models], [], magnitude, x.dtype, rows=False),
        "grad_bias": expect(grad_bias, [in_order], [], as_rows(magnitude).sum(0), bias.dtype, rows=False),
    }


def shares(z: Tensor, approximate: str) -> Iterator[Tensor]:
    """Yield Φ(z), or what takes its place, in the ways of float32."""
    if approximate == "tanh":
        for u in (SLOPE * (z + CUBIC * z * z * z), SLOPE * z * (1 + CUBIC * z * z)):
            yield 0.5 * (1 + u.tanh())
            sigmoid = (2 * u).sigmoid()
            # a GPU's exponential and quotient are not rounded correctly, and 1 − Φ is small where Φ is near 1
            yield from (sigmoid, sigmoid.nextafter(torch.zeros(())), sigmoid.nextafter(torch.ones(())))
            yield 0.5 * (2 - 2 / (1 + (2 * u).exp()))
    else:
        yield 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))
        yield 0.5 * torch.erfc(-z * math.sqrt(0.5))


def slopes(z: Tensor, approximate: str) -> Iterator[Tensor]:
    """Yield the derivative of z · Φ(z)."""
    for share in shares(z, approximate):
        if approximate == "tanh":
            slope = SLOPE * (1 + 3 * CUBIC * z * z)
            yield share + z * (2 * share * (1 - share) * slope)
            t = 2 * share - 1
            yield share + 0.5 * z * (1 - t * t) * slope
        else:
            yield share + z * (-0.5 * z * z).exp() / math.sqrt(2 * math.pi)
