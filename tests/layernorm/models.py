"""What layernorm returns, and how far a right kernel may be from it: see tests/layer_norm.py."""

from torch import Tensor

from tests import layer_norm
from tests.compare import Expected


def layernorm_forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> dict[str, Expected]:
    return layer_norm.expect_forward(x.double(), [[x.float()]], weight, bias, eps, x.dtype)


def layernorm_backward(grad_y: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> dict[str, Expected]:
    return layer_norm.expect_backward(grad_y, x, weight, mean, rstd, x.dtype)
