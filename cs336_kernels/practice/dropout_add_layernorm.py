"""Dropout, residual and LayerNorm in one pass: y = LayerNorm(residual + dropout(x)) over the last dimension.

Element i of x, counted row by row, is kept where tl.rand(seed, i) ≥ p. With keep_i = 1 there and 0 elsewhere:

    forward    summed_i  = residual_i + keep_i x_i / (1 − p)
               y         = (summed − mean) rstd w + b, with mean and rstd of each row of summed
    backward   h         = w grad_y,  x̂ = (summed − mean) rstd
               grad_residual = rstd (h − mean_j(h) − x̂ · mean_j(h x̂))
               grad_x_i  = keep_i grad_residual_i / (1 − p)
               grad_w_j  = Σ_rows grad_y x̂,  grad_b_j = Σ_rows grad_y

Bytes that must move, for n rows of d elements of s bytes each: forward (4·n·d + 2·d)·s + 8·n, x and residual being
read, y and summed written; backward (4·n·d + 3·d)·s + 8·n, grad_y and summed being read, grad_x and grad_residual
written. The mask is in none of them: the seed tells it again. Ten rounds of Philox an element cost more than the bytes.
Source: Ba, Kiros and Hinton 2016; Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable


def dropout_add_layernorm_forward(
    x: Float[Tensor, "*batch d"],
    residual: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    p: float = 0.1,
    seed: int = 0,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float32[Tensor, "*batch"], Float32[Tensor, "*batch"]]:
    """(y, summed, mean, rstd), as the module's docstring has them.

    dtypes: float32, bfloat16 or float16, the same for x, residual, weight and bias; y and summed have it too, mean and
        rstd are always float32. Everything is computed in float32 and cast at the store.
    p: the share that is dropped, from 0 to below 1. seed: an integer from 0 to below 2⁶³.
    Strides: any, broadcast dimensions (stride 0) included; i is the index in x, not in memory. The inputs are not
        written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: empty results, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, residual is not of x's shape, weight or bias not
            of shape (d,), the dtypes differ or are none of the three, or not 0 <= p < 1.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/dropout_add_layernorm.py: dropout_add_layernorm_forward, handout/dropout_add_layernorm.md"
    )


def dropout_add_layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    summed: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float32[Tensor, "*batch"],
    rstd: Float32[Tensor, "*batch"],
    p: float = 0.1,
    seed: int = 0,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_residual, grad_weight, grad_bias), from what the forward has returned.

    dtypes: as in the forward; all four gradients have that of summed. Computed in float32, the sums over all rows
        included: they are cast once, at the end.
    p and seed: those of the forward, which tell the same mask again.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Empty batch: empty grad_x and grad_residual, and zeros for grad_weight and grad_bias, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of summed's shape and dtype, or mean or
            rstd not of shape (*batch) and float32.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/dropout_add_layernorm.py: dropout_add_layernorm_backward, handout/dropout_add_layernorm.md"
    )


def dropout_add_layernorm(
    x: Float[Tensor, "*batch d"],
    residual: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    p: float = 0.1,
    seed: int = 0,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of the forward pass, differentiable in x, residual, weight and bias through the backward one.

    Keeps summed, mean and rstd for it, and nothing of the mask. Backward may run twice (`retain_graph=True`), for some
    of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `dropout_add_layernorm_forward`.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/dropout_add_layernorm.py: dropout_add_layernorm, handout/dropout_add_layernorm.md"
    )


class DropoutAddLayerNorm(torch.autograd.Function):
    """Saves summed, weight, mean and rstd, and of the mask p and the seed."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, p, seed, eps):
        raise NotImplementedError(
            "cs336_kernels/practice/dropout_add_layernorm.py: dropout_add_layernorm, handout/dropout_add_layernorm.md"
        )

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        raise NotImplementedError(
            "cs336_kernels/practice/dropout_add_layernorm.py: dropout_add_layernorm, handout/dropout_add_layernorm.md"
        )


@triton.jit
def _forward_kernel(
    x_ptr, residual_ptr, w_ptr, b_ptr, y_ptr, summed_ptr, mean_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_rr, stride_rd, stride_wd, stride_bd,
    n_rows, d, p, scale, seed, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for summed, mean and variance, then for y.

    x, residual, y and summed (n_rows, d), w and b (d,), mean and rstd (n_rows,) in float32; results are contiguous.
    scale is 1 / (1 − p). IS_ONE_TILE: d <= D_TILE_SIZE; a program then holds its rows of summed.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/practice/dropout_add_layernorm.py: _forward_kernel, handout/dropout_add_layernorm.md"
    )


@triton.jit
def _backward_kernel(
    grad_y_ptr, summed_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, grad_residual_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_sr, stride_sd, stride_wd, stride_mr, stride_rstdr,
    n_rows, d, p, scale, seed,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, summed, grad_x and grad_residual (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_programs, d)
    in float32: the parts of grad_weight and grad_bias that come from the rows of one program, zeros at first.
    scale is 1 / (1 − p); grad_x, grad_residual and partials are contiguous.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    raise NotImplementedError(
        "cs336_kernels/practice/dropout_add_layernorm.py: _backward_kernel, handout/dropout_add_layernorm.md"
    )
