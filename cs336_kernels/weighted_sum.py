"""Weighted sum of the last dimension: y_i = Σ_j x_ij w_j.

    forward    y_i      = Σ_j x_ij w_j
    backward   grad_x_ij = grad_y_i w_j
               grad_w_j  = Σ_i grad_y_i x_ij

Bytes that must move, for n rows of d elements of s bytes each: forward (n·d + d + n)·s, x being read once; backward
(2·n·d + 2·d + n)·s, x being read once and grad_x written once. Both are memory bound: two operations an element.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def weighted_sum_forward(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
) -> Float[Tensor, "*batch"]:
    """The sum of each row of x, weighted: y_i = Σ_j x_ij w_j.

    dtypes: float32, bfloat16 or float16, the same for x and weight; y has that of x. Products and sums in float32.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, weight is not of shape (d,), or the dtypes differ
            or are none of the three.
    """
    raise NotImplementedError("cs336_kernels/weighted_sum.py: weighted_sum_forward, handout/weighted_sum.md")


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_weight): grad_x_ij = grad_y_i w_j and grad_w_j = Σ_i grad_y_i x_ij.

    dtypes: as in the forward; grad_y and grad_x have that of x, grad_weight that of weight. Products and sums in
        float32, the sum over all rows included: it is cast once, at the end.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Empty batch: an empty grad_x and a grad_weight of zeros, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of shape (*batch) or not of x's dtype.
    """
    raise NotImplementedError("cs336_kernels/weighted_sum.py: weighted_sum_backward, handout/weighted_sum.md")


def weighted_sum(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
) -> Float[Tensor, "*batch"]:
    """`weighted_sum_forward`, differentiable in x and weight through `weighted_sum_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `weighted_sum_forward`.
    """
    raise NotImplementedError("cs336_kernels/weighted_sum.py: weighted_sum, handout/weighted_sum.md")


class WeightedSum(torch.autograd.Function):
    """Saves x and weight."""

    @staticmethod
    def forward(ctx, x, weight):
        raise NotImplementedError("cs336_kernels/weighted_sum.py: weighted_sum, handout/weighted_sum.md")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError("cs336_kernels/weighted_sum.py: weighted_sum, handout/weighted_sum.md")


@triton.jit
def _weighted_sum_forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns.

    x (n_rows, d), w (d,), y (n_rows,); stride_xr is x's stride along the rows, stride_xd that along d.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/weighted_sum.py: _weighted_sum_forward_kernel, handout/weighted_sum.md")


@triton.jit
def _weighted_sum_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partial_grad_w_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns.

    grad_y (n_rows,), x and grad_x (n_rows, d), w (d,), partial_grad_w (n_programs, d) in float32: the part of
    grad_weight that comes from the rows of one program.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/weighted_sum.py: _weighted_sum_backward_kernel, handout/weighted_sum.md")
