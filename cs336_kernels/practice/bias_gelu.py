"""Bias and GELU in one kernel, for practice: y = gelu(x + bias).

With z_ij = x_ij + bias_j and Φ the distribution function of a standard normal number:

    forward    y_ij        = z_ij Φ(z_ij)
    backward   grad_x_ij   = grad_y_ij (Φ(z_ij) + z_ij Φ′(z_ij))
               grad_bias_j = Σ_i grad_x_ij

"none": Φ(z) = ½ (1 + erf(z / √2)). "tanh": ½ (1 + tanh(√(2/π) (z + 0.044715 z³))) in its place.
Bytes that must move, for n rows of d elements of s bytes each: forward 2·n·d·s, backward 3·n·d·s.
Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)".
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def bias_gelu_forward(
    x: Float[Tensor, "*batch d"], bias: Float[Tensor, " d"], approximate: str = "none"
) -> Float[Tensor, "*batch d"]:
    """y = gelu(x + bias), as torch.nn.functional.gelu(x + bias, approximate=approximate) has it.

    approximate: "none" for erf, "tanh" for the form with tanh.
    dtypes: float32, bfloat16 or float16, the same for x, bias and y. Computed in float32 and cast once, at the store.
    Strides: any, broadcast dimensions (stride 0) included; y has memory of its own. The inputs are not written to.
    Width: any d from 1. x is read once, y is written once.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, bias is not of shape (d,), the dtypes differ or
            are none of the three, or approximate is neither "none" nor "tanh".
    """
    raise NotImplementedError("cs336_kernels/practice/bias_gelu.py: bias_gelu_forward, handout/bias_gelu.md")


def bias_gelu_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    bias: Float[Tensor, " d"],
    approximate: str = "none",
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_bias); the module's docstring has the formulas. x + bias is computed anew.

    dtypes: as in the forward, the same for all. Computed in float32, the sum over all rows included: it is cast once.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1. grad_y and x are read once, grad_x is written once.
    Empty batch: an empty grad_x and a grad_bias of zeros, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype.
    """
    raise NotImplementedError("cs336_kernels/practice/bias_gelu.py: bias_gelu_backward, handout/bias_gelu.md")


def bias_gelu(
    x: Float[Tensor, "*batch d"], bias: Float[Tensor, " d"], approximate: str = "none"
) -> Float[Tensor, "*batch d"]:
    """y of `bias_gelu_forward`, differentiable in x and bias through `bias_gelu_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `bias_gelu_forward`.
    """
    raise NotImplementedError("cs336_kernels/practice/bias_gelu.py: bias_gelu, handout/bias_gelu.md")


class BiasGelu(torch.autograd.Function):
    """Saves x and bias, and the form."""

    @staticmethod
    def forward(ctx, x, bias, approximate):
        raise NotImplementedError("cs336_kernels/practice/bias_gelu.py: bias_gelu, handout/bias_gelu.md")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError("cs336_kernels/practice/bias_gelu.py: bias_gelu, handout/bias_gelu.md")
