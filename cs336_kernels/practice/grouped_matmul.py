"""Products in groups, for practice: y_i = x_i weight_e, where row i belongs to the group of expert e.

Rows are sorted by expert: the first group_sizes[0] rows of x are those of expert 0, and so on.
Bytes that must move, for elements of s bytes: (tokens·(k + n) + experts·k·n)·s, with 2·tokens·n·k operations. With few
rows a group, the weights are nearly all of it: then the kernel is as fast as it reads them.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor


def grouped_matmul(
    x: Float[Tensor, "tokens k"], weight: Float[Tensor, "experts k n"], group_sizes: Int32[Tensor, " experts"]
) -> Float[Tensor, "tokens n"]:
    """y_i = x_i weight_e for each row i of the group of expert e; 0 for rows behind the last group.

    dtypes: float32, bfloat16 or float16, the same for x, weight and y. Sums are float32, and cast once, at the store;
        products of float32 may be TF32.
    Shapes: any number of experts, k and n from 1. Groups may be empty; their sizes are at least 0, and add up to no
        more than tokens.
    Strides: any, so weight may be a transposed view; y has memory of its own. The inputs are not written to.
    No rows: an empty y, without a launch.

    group_sizes is structure: host code may read it.

    Raises:
        ValueError: before any launch, if x has not exactly two dimensions, weight not three or group_sizes not one, if
            k or the number of experts differ, experts, k or n is 0, x and weight differ in dtype or have none of the
            three, or group_sizes is not int32.
    """
    raise NotImplementedError("cs336_kernels/practice/grouped_matmul.py: grouped_matmul, handout/grouped_matmul.md")


def grouped_matmul_backward(
    grad_y: Float[Tensor, "tokens n"],
    x: Float[Tensor, "tokens k"],
    weight: Float[Tensor, "experts k n"],
    group_sizes: Int32[Tensor, " experts"],
) -> tuple[Float[Tensor, "tokens k"], Float[Tensor, "experts k n"]]:
    """(grad_x, grad_weight); in rows behind the last group grad_x is 0, of an empty group grad_weight is.

    grad_x_i = grad_y_i weight_eᵀ, and grad_weight_e is the sum of x_iᵀ grad_y_i over the rows of its group.
    dtypes, strides, errors: as grouped_matmul; grad_y is like y.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/grouped_matmul.py: grouped_matmul_backward, handout/grouped_matmul.md"
    )


@triton.jit
def _descriptor_kernel(
    x_tiles, weight_tiles, sizes_ptr, y_ptr, stride_g, tokens, experts, k, n,
    IS_TRANSPOSED: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    """Tiles of y (tokens, n), every so many; terms past the last are loaded as 0.

    x_tiles (tokens, k) and weight_tiles (experts, k, n) are descriptors; of a transposed weight that of its transpose.
    Grid: as many programs as are to run at once, or one a tile.
    """
    raise NotImplementedError("cs336_kernels/practice/grouped_matmul.py: _descriptor_kernel, handout/grouped_matmul.md")


@triton.jit
def _pointer_kernel(
    x_ptr, weight_ptr, sizes_ptr, y_ptr,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn, stride_g,
    tokens, experts, k, n,
    IS_WHOLE: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    """Tiles of y (tokens, n), every so many, of x (tokens, k) and weight (experts, k, n) of any strides.

    stride_we is weight's stride along experts, stride_g that of group_sizes. IS_WHOLE: k is a multiple of K_TILE_SIZE.
    Grid: as many programs as are to run at once, or one a tile.
    """
    raise NotImplementedError("cs336_kernels/practice/grouped_matmul.py: _pointer_kernel, handout/grouped_matmul.md")


@triton.jit
def _weight_kernel(
    x_ptr, grad_y_ptr, sizes_ptr, grad_weight_ptr,
    stride_xm, stride_xk, stride_gm, stride_gn, stride_g,
    k, n,
    EXPERTS: tl.constexpr, K_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """A tile of one expert's grad_weight, (experts, k, n) and contiguous, of x (tokens, k) and grad_y (tokens, n).

    stride_gm is grad_y's stride along tokens, stride_g that of group_sizes.
    Grid: (⌈k / K_TILE_SIZE⌉ · ⌈n / N_TILE_SIZE⌉, experts).
    """
    raise NotImplementedError("cs336_kernels/practice/grouped_matmul.py: _weight_kernel, handout/grouped_matmul.md")
