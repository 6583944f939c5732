"""What softmax returns, and how far a right kernel may be from it: see tests/compare.py."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tests.compare import Expected, expect
from tests.softmax import oracle
from tests.sums import sums

LOG2_E = 1 / math.log(2)


def softmax_forward(x: Tensor) -> dict[str, Expected]:
    y = oracle.softmax_forward(x)
    return {"y": expect(y, roundings(x, y), [], y, x.dtype, rows=True)}


def roundings(x: Tensor, y: Tensor) -> list[list[Tensor]]:
    """Return the results of float32; of x · log₂e rounded before the maximum is subtracted; of a rounded logarithm."""
    x, top = x.float(), oracle.finite_max(x.float())
    of_base_2 = LOG2_E * x - LOG2_E * top  # each product rounded by itself
    return [[*divided((x - top).exp())], [*divided(of_base_2.exp2())], [*by_logarithm(x, top, y)]]


def divided(powers: Tensor) -> Iterator[Tensor]:
    for total in sums(powers, dim=-1):
        yield powers / torch.where(total > 0, total, 1.0).unsqueeze(-1)


def by_logarithm(x: Tensor, top: Tensor, y: Tensor) -> Iterator[Tensor]:
    """Yield exp(x − lse), whose lse may be off by half a unit in the last place in either direction."""
    total = (x - top).exp().sum(-1, keepdim=True)
    lse = top + torch.where(total > 0, total, 1.0).log()
    half = 0.5 * (lse.abs().nextafter(torch.tensor(math.inf)) - lse.abs()).double()
    yield from ((x - lse).exp(), y * (-half).exp(), y * half.exp())


def softmax_backward(grad_y: Tensor, y: Tensor) -> dict[str, Expected]:
    return {"grad_x": of_gradient(grad_y, y.double(), [y.float()], grad_y.dtype)}


def softmax_gradients(grad_y: Tensor, x: Tensor) -> dict[str, Expected]:
    """The gradient of x by a forward and a backward pass, which gets the y that the forward pass has rounded."""
    y = oracle.softmax_forward(x)
    honest = [rounded.float() for way in roundings(x, y) for rounded in way]
    return {"grad_x": of_gradient(grad_y, y, honest, x.dtype)}


def of_gradient(grad_y: Tensor, exact_y: Tensor, honest: list[Tensor], dtype: torch.dtype) -> Expected:
    """Bound the gradient for one of the y that a forward pass may have left."""
    g = grad_y.float()
    models = [y * (g - total.unsqueeze(-1)) for y in honest for total in sums(g * y, dim=-1)]
    models += [y * g - y * total.unsqueeze(-1) for y in honest for total in sums(g * y, dim=-1)]
    g_ = grad_y.double().abs()
    magnitude = exact_y * (g_ + (g_ * exact_y).sum(-1, keepdim=True))
    return expect(oracle.softmax_backward(grad_y, exact_y), [models], [], magnitude, dtype, rows=True)
