"""RMSNorm: y = x / √(mean(x²) + eps) · w over the last dimension.

With rstd_i = 1 / √(Σ_j x_ij² / d + eps) and x̂_ij = x_ij rstd_i:

    forward    y_ij      = x̂_ij w_j
    backward   grad_x_ij = rstd_i (w_j grad_y_ij − x̂_ij · mean_j(w_j grad_y_ij x̂_ij))
               grad_w_j  = Σ_i grad_y_ij x̂_ij

Bytes that must move, for n rows of d elements of s bytes each: forward (2·n·d + d)·s + 4·n, x being read and y written
once; backward (3·n·d + 2·d)·s + 4·n. Both are memory bound. A row wider than a tile is read twice.
Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    """(y, rstd): y_ij = x_ij rstd_i w_j and rstd_i = 1 / √(Σ_j x_ij² / d + eps).

    dtypes: float32, bfloat16 or float16, the same for x and weight; y has that of x, rstd is always float32.
        Everything is computed in float32 and cast once, at the store.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty y and rstd, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, weight is not of shape (d,), or the dtypes differ
            or are none of the three.
    """
    raise NotImplementedError("cs336_kernels/rmsnorm.py: rmsnorm_forward, handout/rmsnorm.md")


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_weight), from the rstd of the forward; the module's docstring has the formulas.

    dtypes: as in the forward; grad_y and grad_x have that of x, grad_weight that of weight, rstd is float32. Computed
        in float32, the sum over all rows included: it is cast once, at the end.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty grad_x and a grad_weight of zeros, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype, or rstd not of
            shape (*batch) and float32.
    """
    raise NotImplementedError("cs336_kernels/rmsnorm.py: rmsnorm_backward, handout/rmsnorm.md")


def rmsnorm(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of `rmsnorm_forward`, differentiable in x and weight through `rmsnorm_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `rmsnorm_forward`.
    """
    raise NotImplementedError("cs336_kernels/rmsnorm.py: rmsnorm, handout/rmsnorm.md")


class RMSNorm(torch.autograd.Function):
    """Saves x, weight and rstd."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        raise NotImplementedError("cs336_kernels/rmsnorm.py: rmsnorm, handout/rmsnorm.md")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError("cs336_kernels/rmsnorm.py: rmsnorm, handout/rmsnorm.md")


@triton.jit
def _rmsnorm_forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr, stride_yd, stride_rstdr,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for the sum of squares, then for y.

    x and y (n_rows, d), w (d,), rstd (n_rows,) in float32; stride_xr is x's stride along the rows.
    IS_ONE_TILE: d <= D_TILE_SIZE; the second walk then needs no second read of x.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/rmsnorm.py: _rmsnorm_forward_kernel, handout/rmsnorm.md")


@triton.jit
def _rmsnorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, partial_grad_w_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, x and grad_x (n_rows, d), w (d,), rstd (n_rows,), partial_grad_w (n_programs, d) in float32: the part of
    grad_weight that comes from the rows of one program, zeros at first.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    raise NotImplementedError("cs336_kernels/rmsnorm.py: _rmsnorm_backward_kernel, handout/rmsnorm.md")
