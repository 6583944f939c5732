"""Softmax over the last dimension, for practice: y_j = exp(x_j − m) / Σ_k exp(x_k − m) with m = max_k x_k.

    forward    y_ij      = exp(x_ij − m_i) / Σ_k exp(x_ik − m_i)
    backward   grad_x_ij = y_ij (grad_y_ij − Σ_k grad_y_ik y_ik)

Bytes that must move, for n rows of d elements of s bytes each: forward 2·n·d·s, x being read and y written once;
backward 3·n·d·s. Both are memory bound. A row wider than a tile is read twice.
Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", for rows wider than a tile.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def softmax_forward(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """y_j = exp(x_j − m) / Σ_k exp(x_k − m), where m = max_k x_k of the row.

    dtypes: float32, bfloat16 or float16; y has that of x. Computed in float32 and cast once, at the store.
    Values: finite or −∞, which gives 0. A row of nothing but −∞ gives zeros.
    Strides: any, broadcast dimensions (stride 0) included; y has memory of its own. x is not written to.
    Width: d from 1 to 2²⁰. Up to 8,192 columns x is read once, beyond at most twice; y is written once.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, or the dtype is none of the three.
    """
    raise NotImplementedError("cs336_kernels/practice/softmax.py: softmax_forward, handout/softmax.md")


def softmax_backward(grad_y: Float[Tensor, "*batch d"], y: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """grad_x_j = y_j (grad_y_j − Σ_k grad_y_k y_k), from the y of the forward.

    dtypes: as in the forward, the same for grad_y, y and grad_x. Computed in float32, the sum included.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: d from 1 to 2²⁰. Up to 8,192 columns grad_y and y are read once, beyond at most twice.
    Empty batch: an empty grad_x, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of y's shape and dtype.
    """
    raise NotImplementedError("cs336_kernels/practice/softmax.py: softmax_backward, handout/softmax.md")


def softmax(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """y of `softmax_forward`, differentiable in x through `softmax_backward`.

    Backward may run twice (`retain_graph=True`), and on an expanded gradient.

    Raises:
        ValueError: as `softmax_forward`.
    """
    raise NotImplementedError("cs336_kernels/practice/softmax.py: softmax, handout/softmax.md")


class Softmax(torch.autograd.Function):
    """Saves y: the gradient needs no x."""

    @staticmethod
    def forward(ctx, x):
        raise NotImplementedError("cs336_kernels/practice/softmax.py: softmax, handout/softmax.md")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError("cs336_kernels/practice/softmax.py: softmax, handout/softmax.md")
