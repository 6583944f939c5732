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

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

# END SOLUTION
BLOCK: tl.constexpr = tl.constexpr(128)  # terms that share a scale; rows of b that do
LARGEST: tl.constexpr = tl.constexpr(448.0)  # of float8 e4m3
FLOAT8 = torch.float8_e4m3fn
# BEGIN SOLUTION
QUANTIZED_ROWS = 32  # of a program, where each row has scales of its own
ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its stride
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# Rows and columns of a tile, warps, stages.
SIZES = (64, 64, 4, 3)
LARGE_SIZES = (128, 128, 8, 3)  # by pointers
DESCRIPTOR_SIZES = (128, 128, 8, 3)
GROUP_SIZE = 8  # rows of tiles that are computed together
IS_PERSISTENT = True  # whether a program computes one tile after another, with a program a multiprocessor
# END SOLUTION


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
    # BEGIN SOLUTION handout/matmul_block_scaled.md
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"expected (rows, d) with d from 1, got {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected float32, bfloat16 or float16, got {x.dtype}")
    (n_rows, d), (block_rows, block_columns) = x.shape, block
    values = torch.empty((n_rows, d), dtype=FLOAT8, device=x.device)
    n_blocks = triton.cdiv(n_rows, block_rows), triton.cdiv(d, block_columns)
    scales = torch.empty(n_blocks, dtype=torch.float32, device=x.device)
    if n_rows > 0:
        rows = max(block_rows, QUANTIZED_ROWS)
        _quantize_kernel[(triton.cdiv(n_rows, rows), n_blocks[1])](
            x, values, scales, *x.stride(), *values.stride(), *scales.stride(), n_rows, d,
            ROWS_TILE_SIZE=rows, BLOCK_ROWS=block_rows, BLOCK_COLUMNS=block_columns,
        )  # fmt: skip
    return values, scales
    # END SOLUTION


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
    # BEGIN SOLUTION handout/matmul_block_scaled.md
    _check(a, a_scales, b, b_scales)
    c = torch.empty((len(a), len(b)), dtype=torch.bfloat16, device=a.device)
    if len(a) > 0:
        _launch(a, a_scales, b, b_scales, c)
    return c
    # END SOLUTION


# BEGIN SOLUTION
def _check(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor) -> None:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or min(*a.shape[1:], *b.shape) < 1:
        raise ValueError(f"expected (m, k) and (n, k), got {tuple(a.shape)} and {tuple(b.shape)}")
    k_blocks = triton.cdiv(a.shape[1], BLOCK.value)
    expected = (len(a), k_blocks), (triton.cdiv(len(b), BLOCK.value), k_blocks)
    if (a_scales.shape, b_scales.shape) != expected:
        raise ValueError(f"expected scales {expected}, got {tuple(a_scales.shape)} and {tuple(b_scales.shape)}")
    if not a.dtype == b.dtype == FLOAT8 or not a_scales.dtype == b_scales.dtype == torch.float32:
        dtypes = [str(x.dtype) for x in (a, a_scales, b, b_scales)]
        raise ValueError(f"expected float8_e4m3fn with scales in float32, got {', '.join(dtypes)}")


def _launch(a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor, c: Tensor) -> None:
    """Write the product to c: by descriptors where all three matrices can have them, by pointers elsewhere."""
    (m, k), n = a.shape, len(b)
    is_large = torch.cuda.get_device_capability(a.device) in LARGE_SHARED_MEMORY
    is_described = is_large and all(_is_describable(x) for x in (a, b, c))
    m_tile, n_tile, num_warps, num_stages = DESCRIPTOR_SIZES if is_described else LARGE_SIZES if is_large else SIZES
    n_tiles = triton.cdiv(m, m_tile) * triton.cdiv(n, n_tile)
    sizes = {"M_TILE_SIZE": m_tile, "N_TILE_SIZE": n_tile, "GROUP_SIZE": GROUP_SIZE}
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if is_described:
        multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
        n_programs = min(n_tiles, multiprocessors) if IS_PERSISTENT else n_tiles
        _descriptor_kernel[(n_programs,)](
            _described(a, m_tile, BLOCK.value), _described(b, n_tile, BLOCK.value), _described(c, m_tile, n_tile),
            a_scales, b_scales, *a_scales.stride(), *b_scales.stride(), m, n, k, **sizes, **options,
        )  # fmt: skip
    else:
        _pointer_kernel[(n_tiles,)](
            a, a_scales, b, b_scales, c, *a.stride(), *a_scales.stride(), *b.stride(), *b_scales.stride(), *c.stride(),
            m, n, k, **sizes, **options,
        )  # fmt: skip


def _is_describable(x: Tensor) -> bool:
    """Whether the elements of a row follow one another, and rows begin at aligned places."""
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and x.stride(0) * x.itemsize % ALIGNMENT == 0
    return x.stride(1) == 1 and x.stride(0) > 0 and is_aligned


def _described(x: Tensor, rows: int, columns: int) -> TensorDescriptor:
    return TensorDescriptor(x, list(x.shape), list(x.stride()), [rows, columns])


# END SOLUTION
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
    # BEGIN SOLUTION handout/matmul_block_scaled.md
    row_blocks: tl.constexpr = ROWS_TILE_SIZE // BLOCK_ROWS
    first_row = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE
    column_block = tl.program_id(1).to(tl.int64)
    rows = first_row + tl.arange(0, ROWS_TILE_SIZE)
    columns = column_block * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    mask = (rows[:, None] < n_rows) & (columns[None, :] < d)
    x_ptrs = x_ptr + rows[:, None] * stride_xr + columns[None, :] * stride_xd
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    largest_of_rows = tl.reshape(tl.max(tl.abs(x), axis=1), (row_blocks, BLOCK_ROWS))
    largest = tl.max(largest_of_rows, axis=1)  # (row_blocks,)
    scales = tl.where(largest > 0, largest / LARGEST, 1.0)
    of_rows = tl.reshape(tl.broadcast_to(scales[:, None], (row_blocks, BLOCK_ROWS)), (ROWS_TILE_SIZE,))
    values = (x / of_rows[:, None]).to(values_ptr.dtype.element_ty)
    tl.store(values_ptr + rows[:, None] * stride_vr + columns[None, :] * stride_vd, values, mask=mask)
    blocks = first_row // BLOCK_ROWS + tl.arange(0, row_blocks)
    scales_ptrs = scales_ptr + blocks * stride_sr + column_block * stride_sd
    tl.store(scales_ptrs, scales, mask=blocks * BLOCK_ROWS < n_rows)
    # END SOLUTION


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
    # BEGIN SOLUTION handout/matmul_block_scaled.md
    for tile in range(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE) * tl.cdiv(n, N_TILE_SIZE), tl.num_programs(0)):
        row_tile, col_tile = _grouped(tile, tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
        row, col = row_tile * M_TILE_SIZE, col_tile * N_TILE_SIZE
        rows = row + tl.arange(0, M_TILE_SIZE).to(tl.int64)
        a_scales_ptrs = a_scales_ptr + rows * stride_am
        b_scale_ptr = b_scales_ptr + (col // BLOCK).to(tl.int64) * stride_bn
        total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        # Two blocks of k a round: one product is scaled and added while the tensor cores compute the other.
        for start in range(0, k, 2 * BLOCK):
            block = (start // BLOCK).to(tl.int64)
            has_second = start + BLOCK < k
            a_scales = tl.load(a_scales_ptrs + block * stride_ak, mask=rows < m, other=0.0)
            b_scale = tl.load(b_scale_ptr + block * stride_bk)
            second_a_scales_ptrs = a_scales_ptrs + (block + 1) * stride_ak
            second_a_scales = tl.load(second_a_scales_ptrs, mask=(rows < m) & has_second, other=0.0)
            second_b_scale = tl.load(b_scale_ptr + (block + 1) * stride_bk, mask=has_second, other=0.0)
            first = tl.dot(a_tiles.load([row, start]), b_tiles.load([col, start]).T)
            second = tl.dot(a_tiles.load([row, start + BLOCK]), b_tiles.load([col, start + BLOCK]).T)
            total += first * (a_scales * b_scale)[:, None]
            total += second * (second_a_scales * second_b_scale)[:, None]
        c_tiles.store([row, col], total.to(c_tiles.dtype))
    # END SOLUTION


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
    # BEGIN SOLUTION handout/matmul_block_scaled.md
    row_tile, col_tile = _grouped(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
    rows = row_tile.to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    a_scales_ptrs = a_scales_ptr + rows * stride_asm
    b_scales_ptr += (col_tile * N_TILE_SIZE // BLOCK).to(tl.int64) * stride_bsn
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        block = (start // BLOCK).to(tl.int64)
        terms = start + tl.arange(0, BLOCK).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + terms[None, :] * stride_ak
        b_ptrs = b_ptr + terms[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (terms[None, :] < k), other=0.0)  # (M, BLOCK)
        b = tl.load(b_ptrs, mask=(terms[:, None] < k) & (cols[None, :] < n), other=0.0)  # (BLOCK, N)
        a_scales = tl.load(a_scales_ptrs + block * stride_ask, mask=rows < m, other=0.0)
        b_scale = tl.load(b_scales_ptr + block * stride_bsk)
        total += tl.dot(a, b) * (a_scales * b_scale)[:, None]
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (cols[None, :] < n))
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _grouped(tile, n_row_tiles, n_col_tiles, GROUP_SIZE: tl.constexpr):
    """The row and column of a tile: GROUP_SIZE rows of tiles together, column after column."""
    in_group = GROUP_SIZE * n_col_tiles
    first_row = tile // in_group * GROUP_SIZE
    n_rows = tl.minimum(n_row_tiles - first_row, GROUP_SIZE)
    return first_row + tile % in_group % n_rows, tile % in_group // n_rows


# END SOLUTION
