"""LayerNorm: y = (x − mean) / √(variance + eps) · w + b over the last dimension.

With mean_i = Σ_j x_ij / d, rstd_i = 1 / √(Σ_j (x_ij − mean_i)² / d + eps) and x̂_ij = (x_ij − mean_i) rstd_i:

    forward    y_ij      = x̂_ij w_j + b_j
    backward   h_ij      = w_j grad_y_ij
               grad_x_ij = rstd_i (h_ij − mean_j(h_ij) − x̂_ij · mean_j(h_ij x̂_ij))
               grad_w_j  = Σ_i grad_y_ij x̂_ij
               grad_b_j  = Σ_i grad_y_ij

Bytes that must move, for n rows of d elements of s bytes each: forward (2·n·d + 2·d)·s + 8·n, x being read and y
written once; backward (3·n·d + 3·d)·s + 8·n. Both are memory bound. A row wider than a tile is read twice.
Source: Ba, Kiros and Hinton 2016, "Layer Normalization", equation 4; Welford 1962 and Chan et al. 1983 for variances.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable


def layernorm_forward(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"], Float32[Tensor, "*batch"]]:
    """(y, mean, rstd): y_ij = (x_ij − mean_i) rstd_i w_j + b_j; the module's docstring defines mean and rstd.

    dtypes: float32, bfloat16 or float16, the same for x, weight and bias; y has that of x, mean and rstd are always
        float32. Everything is computed in float32 and cast once, at the store.
    Values: a row's mean may be 10⁴ times its deviation.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty y, mean and rstd, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, weight or bias is not of shape (d,), or the
            dtypes differ or are none of the three.
    """
    raise NotImplementedError("cs336_kernels/practice/layernorm.py: layernorm_forward, handout/layernorm.md")


def layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float32[Tensor, "*batch"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_weight, grad_bias), from the mean and rstd of the forward.

    dtypes: as in the forward; grad_y and grad_x have that of x, grad_weight and grad_bias that of weight, mean and
        rstd are float32. Computed in float32, the sums over all rows included: they are cast once, at the end.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty grad_x, and zeros for grad_weight and grad_bias, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype, or mean or rstd
            not of shape (*batch) and float32.
    """
    raise NotImplementedError("cs336_kernels/practice/layernorm.py: layernorm_backward, handout/layernorm.md")


def layernorm(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of `layernorm_forward`, differentiable in x, weight and bias through `layernorm_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `layernorm_forward`.
    """
    raise NotImplementedError("cs336_kernels/practice/layernorm.py: layernorm, handout/layernorm.md")


class LayerNorm(torch.autograd.Function):
    """Saves x, weight, mean and rstd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        raise NotImplementedError("cs336_kernels/practice/layernorm.py: layernorm, handout/layernorm.md")

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError("cs336_kernels/practice/layernorm.py: layernorm, handout/layernorm.md")


@triton.jit
def _layernorm_forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_bd, stride_yr, stride_yd, stride_mr, stride_sr,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr, UNROLL: tl.constexpr = 1,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for mean and variance, then for y.

    x and y (n_rows, d), w and b (d,), mean and rstd (n_rows,) in float32; stride_xr is x's stride along the rows.
    IS_ONE_TILE: d <= D_TILE_SIZE; a program then holds its rows, and needs no second read of x.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/practice/layernorm.py: _layernorm_forward_kernel, handout/layernorm.md")


@triton.jit
def _layernorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_mr, stride_sr,
    stride_gxr, stride_gxd, stride_pk, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, x and grad_x (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_programs, d) in float32: the
    parts of grad_weight and grad_bias that come from the rows of one program, zeros at first.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    raise NotImplementedError("cs336_kernels/practice/layernorm.py: _layernorm_backward_kernel, handout/layernorm.md")
