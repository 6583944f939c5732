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

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its stride
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# By the bytes of an element: rows, columns and terms of a tile, warps, stages.
SIZES = {2: (128, 128, 32, 8, 3), 4: (64, 64, 32, 4, 3)}
LARGE_SIZES = {2: (128, 256, 64, 8, 3), 4: (128, 128, 32, 8, 3)}
GROUP_SIZE = 8  # rows of tiles that are computed together
IS_PERSISTENT = False  # whether a program computes one tile after another, with a program a multiprocessor
# END SOLUTION


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
    # BEGIN SOLUTION handout/matmul.md
    _check(a, b)
    k, n = b.shape
    rows = a.reshape(-1, k)
    m = rows.shape[0]
    c = a.new_empty(m, n)
    if m > 0:
        _launch(rows, b, c)
    return c.reshape(*a.shape[:-1], n)
    # END SOLUTION


# BEGIN SOLUTION
def _check(a: Tensor, b: Tensor) -> None:
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[0] or min(*a.shape[-2:], *b.shape) < 1:
        raise ValueError(f"expected (..., m, k) and (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype not in (torch.float32, torch.bfloat16, torch.float16) or a.dtype != b.dtype:
        raise ValueError(f"expected one of float32, bfloat16, float16 for both, got {a.dtype} and {b.dtype}")


def _launch(a: Tensor, b: Tensor, c: Tensor) -> None:
    """Write a b to c: by descriptors where all three matrices can have them, by pointers elsewhere."""
    (m, k), n = a.shape, b.shape[1]
    is_large = torch.cuda.get_device_capability(a.device) in LARGE_SHARED_MEMORY
    m_tile, n_tile, k_tile, num_warps, num_stages = (LARGE_SIZES if is_large else SIZES)[a.itemsize]
    n_tiles = triton.cdiv(m, m_tile) * triton.cdiv(n, n_tile)
    sizes = {"M_TILE_SIZE": m_tile, "N_TILE_SIZE": n_tile, "K_TILE_SIZE": k_tile, "GROUP_SIZE": GROUP_SIZE}
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if is_large and all(_is_describable(x) for x in (a, b, c)):
        multiprocessors = torch.cuda.get_device_properties(a.device).multi_processor_count
        n_programs = min(n_tiles, multiprocessors) if IS_PERSISTENT else n_tiles
        _descriptor_kernel[(n_programs,)](
            _described(a, m_tile, k_tile), _described(b, k_tile, n_tile), _described(c, m_tile, n_tile),
            m, n, k,
            A_IS_TRANSPOSED=a.stride(1) != 1, B_IS_TRANSPOSED=b.stride(1) != 1, **sizes, **options,
        )  # fmt: skip
    else:
        _pointer_kernel[(n_tiles,)](
            a, b, c, *a.stride(), *b.stride(), *c.stride(), m, n, k,
            IS_WHOLE=k % k_tile == 0, **sizes, **options,
        )  # fmt: skip


def _is_describable(x: Tensor) -> bool:
    """Whether rows or columns follow one another, from aligned places."""
    inner, outer = sorted(x.stride())
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and outer * x.itemsize % ALIGNMENT == 0
    return inner == 1 and outer > 1 and is_aligned


def _described(x: Tensor, rows: int, cols: int) -> TensorDescriptor:
    """The matrix, or its transpose, whose rows follow one another, in tiles."""
    x, block = (x, [rows, cols]) if x.stride(1) == 1 else (x.mT, [cols, rows])
    return TensorDescriptor(x, list(x.shape), list(x.stride()), block)


# END SOLUTION
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
    # BEGIN SOLUTION handout/matmul.md
    for tile in range(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE) * tl.cdiv(n, N_TILE_SIZE), tl.num_programs(0)):
        row_tile, col_tile = _grouped(tile, tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
        row, col = row_tile * M_TILE_SIZE, col_tile * N_TILE_SIZE
        total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        for start in range(0, k, K_TILE_SIZE):
            a = a_tiles.load([start, row]).T if A_IS_TRANSPOSED else a_tiles.load([row, start])  # (M, K)
            b = b_tiles.load([col, start]).T if B_IS_TRANSPOSED else b_tiles.load([start, col])  # (K, N)
            total = tl.dot(a, b, total)
        c_tiles.store([row, col], total.to(c_tiles.dtype))
    # END SOLUTION


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
    # BEGIN SOLUTION handout/matmul.md
    row_tile, col_tile = _grouped(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
    rows = row_tile.to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    row_mask, col_mask = rows[:, None] < m, cols[None, :] < n
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + terms[None, :] * stride_ak
        b_ptrs = b_ptr + terms[:, None] * stride_bk + cols[None, :] * stride_bn
        if IS_WHOLE:
            a = tl.load(a_ptrs, mask=row_mask, other=0.0)  # (M, K)
            b = tl.load(b_ptrs, mask=col_mask, other=0.0)  # (K, N)
        else:
            a = tl.load(a_ptrs, mask=row_mask & (terms[None, :] < k), other=0.0)
            b = tl.load(b_ptrs, mask=(terms[:, None] < k) & col_mask, other=0.0)
        total = tl.dot(a, b, total)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)
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
