"""A linear layer and its GELU in one kernel, for practice: y = gelu(x weightᵀ + bias).

For x (…, m, k), weight (n, k) and bias (n,), with z_ij = Σ_l x_il weight_jl + bias_j and Φ the distribution function of
a standard normal number: y_ij = z_ij Φ(z_ij).

"none": Φ(z) = ½ (1 + erf(z / √2)). "tanh": ½ (1 + tanh(√(2/π) (z + 0.044715 z³))) in its place.
Bytes that must move, for elements of s bytes: (m·k + n·k + n + m·n)·s, with 2·m·n·k operations. z stays in registers:
to write and read it would move 2·m·n·s more.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def linear_gelu(
    x: Float[Tensor, "*batch m k"], weight: Float[Tensor, "n k"], bias: Float[Tensor, " n"], approximate: str = "none"
) -> Float[Tensor, "*batch m n"]:
    """y = gelu(x weightᵀ + bias), as torch.nn.functional.linear and gelu have it.

    approximate: "none" for erf, "tanh" for the form with tanh.
    dtypes: float32, bfloat16 or float16, the same for all. Sum, bias and GELU are float32, and cast once, at the store;
        products of float32 may be TF32.
    Shapes: any m, n and k from 1.
    Strides: any, so x and weight may be transposed views; y has memory of its own. The inputs are not written to.
    Memory: y is written once, and no other tensor of its size.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has fewer than two dimensions, weight not exactly two or bias not exactly
            one, if x and weight differ in k or weight and bias in n, m, n or k is 0, the dtypes differ or are none of
            the three, or approximate is neither "none" nor "tanh".
    """
    raise NotImplementedError("cs336_kernels/practice/linear_gelu.py: linear_gelu, handout/linear_gelu.md")


@triton.jit
def _descriptor_kernel(
    x_tiles, weight_tiles, bias_ptr, y_tiles,
    stride_bn,
    m, n, k,
    X_IS_TRANSPOSED: tl.constexpr, W_IS_TRANSPOSED: tl.constexpr, IS_TANH: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of y; what lies past the end of x or weight is loaded as 0, and not stored to y.

    x_tiles (m, k), weight_tiles (n, k) and y_tiles (m, n) are descriptors; of a transposed matrix that of its
    transpose; y_tiles of quarters of a tile: 1.2 × as fast as with whole ones, few values at a time (H200).
    Grid: (⌈m / M_TILE_SIZE⌉ · ⌈n / N_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/practice/linear_gelu.py: _descriptor_kernel, handout/linear_gelu.md")


@triton.jit
def _pointer_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    stride_xm, stride_xk, stride_wn, stride_wk, stride_bn, stride_ym, stride_yn,
    m, n, k,
    IS_WHOLE: tl.constexpr, IS_TANH: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of y, of any strides.

    x (m, k), weight (n, k), bias (n,), y (m, n); stride_xm is x's stride along m. IS_WHOLE: k is a multiple of
    K_TILE_SIZE. Grid: (⌈m / M_TILE_SIZE⌉ · ⌈n / N_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/practice/linear_gelu.py: _pointer_kernel, handout/linear_gelu.md")
