"""A product of float8 matrices whose blocks have scales, and the quantization before it, for practice.

For a (m, k) and b (n, k) in float8 e4m3, with a scale for every 1 × 128 of a and every 128 × 128 of b:
c_ij = Σ_g s_ig t_hg Σ_l a_il b_jl, where l runs over the 128 terms of block g of k, and h is the block of j.
Bytes that must move: m·k + n·k of the factors, 4·m·k/128 of the scales of a, and 2·m·n of c, with 2·m·n·k operations.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

BLOCK: tl.constexpr = tl.constexpr(128)  # terms that share a scale; rows of b that do
LARGEST: tl.constexpr = tl.constexpr(448.0)  # of float8 e4m3
FLOAT8 = torch.float8_e4m3fn


def quantize_block_scaled(
    x: Float[Tensor, "rows d"], block: tuple[int, int] = (1, 128)
) -> tuple[Float[Tensor, "rows d"], Float[Tensor, "row_blocks d_blocks"]]:
    """x in float8, and a scale for each block of it: (values, scales), x ≈ values · scales.

    scales: float32, the largest |x| of each block over 448; 1 for a block of zeros. The last blocks may be short.
    values: float8 e4m3, x over its scale, rounded to nearest even, at most ±448.

    dtypes: x is float32, bfloat16 or float16, and finite; what is computed is float32.
    Shapes: any rows and d from 1. block is (1, 128) or (128, 128). The largest |x| of a block is 0 or at least 2⁻¹⁰⁰.
    Strides: any; both results have memory of their own. x is not written to.
    No rows: no values and no scales, without a launch.

    Raises:
        ValueError: before any launch, if x does not have two dimensions, d is 0, or the dtype is none of the three.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/matmul_block_scaled.py: quantize_block_scaled, handout/matmul_block_scaled.md"
    )


def matmul_block_scaled(
    a: Float[Tensor, "m k"],
    a_scales: Float[Tensor, "m k_blocks"],
    b: Float[Tensor, "n k"],
    b_scales: Float[Tensor, "n_blocks k_blocks"],
) -> Float[Tensor, "m n"]:
    """c = A Bᵀ, where A and B are a and b, each block of 128 terms times its scale.

    a_scales has a scale for every row of a and 128 terms, b_scales for every 128 rows of b and 128 terms.

    dtypes: a and b are float8 e4m3, the scales float32, c is bfloat16. The sum over 128 terms is multiplied by its two
        scales before it is added to others. Sums are float32, and cast once, at the store.
    Shapes: any m, n and k from 1; the last blocks may be short.
    Strides: any, of all four; c has memory of its own. The inputs are not written to.
    No rows of a: a c without rows, without a launch.

    Raises:
        ValueError: before any launch, if a or b does not have two dimensions, their k differ, n or k is 0, the shapes
            of the scales are not those of the blocks, or a dtype is another.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/matmul_block_scaled.py: matmul_block_scaled, handout/matmul_block_scaled.md"
    )


@triton.jit
def _quantize_kernel(
    x_ptr, values_ptr, scales_ptr,
    stride_xr, stride_xd, stride_vr, stride_vd, stride_sr, stride_sd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """ROWS_TILE_SIZE rows and BLOCK_COLUMNS columns of x a program, which is one block or several below each other.

    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉, ⌈d / BLOCK_COLUMNS⌉).
    """
    raise NotImplementedError(
        "cs336_kernels/practice/matmul_block_scaled.py: _quantize_kernel, handout/matmul_block_scaled.md"
    )


@triton.jit
def _descriptor_kernel(
    a_tiles, b_tiles, c_tiles, a_scales_ptr, b_scales_ptr,
    stride_am, stride_ak, stride_bn, stride_bk,
    m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """Tiles of c, every so many; what lies past the end of a or b is loaded as 0, and not stored to c.

    a_tiles (m, k), b_tiles (n, k) and c_tiles (m, n) are descriptors; stride_am is the stride of a_scales along m.
    N_TILE_SIZE is at most BLOCK, so that the columns of a tile share a scale.
    Grid: as many programs as are to run at once, or one a tile.
    """
    raise NotImplementedError(
        "cs336_kernels/practice/matmul_block_scaled.py: _descriptor_kernel, handout/matmul_block_scaled.md"
    )


@triton.jit
def _pointer_kernel(
    a_ptr, a_scales_ptr, b_ptr, b_scales_ptr, c_ptr,
    stride_am, stride_ak, stride_asm, stride_ask, stride_bn, stride_bk, stride_bsn, stride_bsk, stride_cm, stride_cn,
    m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of c, of any strides.

    a (m, k), b (n, k), c (m, n); stride_am is a's stride along m, stride_asm that of its scales. N_TILE_SIZE is at most
    BLOCK, so that the columns of a tile share a scale.
    Grid: (⌈m / M_TILE_SIZE⌉ · ⌈n / N_TILE_SIZE⌉,).
    """
    raise NotImplementedError(
        "cs336_kernels/practice/matmul_block_scaled.py: _pointer_kernel, handout/matmul_block_scaled.md"
    )
