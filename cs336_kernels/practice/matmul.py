"""The product of matrices, for practice: c = a b.

For a (…, m, k) and b (k, n): c_ij = Σ_l a_il b_lj.
Bytes that must move, for elements of s bytes: (m·k + k·n + m·n)·s, with 2·m·n·k operations. A program that computes a
tile of M × N elements loads (M + N)·k of them from the L2 cache; which programs run together decides what L2 has to
fetch from memory.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor


def matmul(a: Float[Tensor, "*batch m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "*batch m n"]:
    """c = a b, for every matrix of the batch.

    dtypes: float32, bfloat16 or float16, the same for a, b and c. Sums are float32, and cast once, at the store;
        products of float32 may be TF32.
    Shapes: any m, n and k from 1. b is a single matrix.
    Strides: any, so a and b may be transposed views; c has memory of its own. The inputs are not written to.
    Empty batch: an empty c, without a launch.

    Raises:
        ValueError: before any launch, if a has fewer than two dimensions or b not exactly two, if the last dimension
            of a is not the first of b, m, n or k is 0, or the dtypes differ or are none of the three.
    """
    raise NotImplementedError("cs336_kernels/practice/matmul.py: matmul, handout/matmul.md")


@triton.jit
def _descriptor_kernel(
    a_tiles, b_tiles, c_tiles,
    m, n, k,
    A_IS_TRANSPOSED: tl.constexpr, B_IS_TRANSPOSED: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Tiles of c, every so many; what lies past the end of a or b is loaded as 0, and not stored to c.

    a_tiles (m, k), b_tiles (k, n) and c_tiles (m, n) are descriptors; of a transposed matrix that of its transpose.
    Grid: as many programs as are to run at once, or one a tile.
    """
    raise NotImplementedError("cs336_kernels/practice/matmul.py: _descriptor_kernel, handout/matmul.md")


@triton.jit
def _pointer_kernel(
    a_ptr, b_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    m, n, k,
    IS_WHOLE: tl.constexpr,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of c, of any strides.

    a (m, k), b (k, n), c (m, n); stride_am is a's stride along m. IS_WHOLE: k is a multiple of K_TILE_SIZE.
    Grid: (⌈m / M_TILE_SIZE⌉ · ⌈n / N_TILE_SIZE⌉,).
    """
    raise NotImplementedError("cs336_kernels/practice/matmul.py: _pointer_kernel, handout/matmul.md")
