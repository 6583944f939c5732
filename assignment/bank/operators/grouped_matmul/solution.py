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

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its strides
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# By the bytes of an element: rows, columns and terms of a tile, warps, stages.
SIZES = {2: (64, 128, 32, 4, 3), 4: (64, 64, 32, 4, 3)}
LARGE_SIZES = {2: (128, 256, 64, 8, 4), 4: (64, 128, 32, 8, 3)}
WEIGHT_SIZES = {2: (128, 128, 64, 8, 3), 4: (64, 64, 32, 4, 3)}  # of grad_weight: its rows and columns; rows of x
IS_PERSISTENT = False  # whether a program computes one tile after another, with a program a multiprocessor
FEWEST = 16  # sizes that are scanned together, at least
# END SOLUTION


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
    # BEGIN SOLUTION handout/grouped_matmul.md
    _check(x, weight, group_sizes)
    y = x.new_empty(len(x), weight.shape[2])
    if len(x) > 0:
        _launch(x, weight, group_sizes, y)
    return y
    # END SOLUTION


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
    # BEGIN SOLUTION handout/grouped_matmul.md
    _check(x, weight, group_sizes)
    if grad_y.shape != (len(x), weight.shape[2]) or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like y, got {tuple(grad_y.shape)} of {grad_y.dtype}")
    grad_x, grad_weight = x.new_empty(x.shape), weight.new_empty(weight.shape)
    if len(x) == 0:
        return grad_x, grad_weight.zero_()
    _launch(grad_y, weight.mT, group_sizes, grad_x)
    experts, k, n = weight.shape
    k_tile, n_tile, rows_tile, num_warps, num_stages = WEIGHT_SIZES[x.itemsize]
    _weight_kernel[(triton.cdiv(k, k_tile) * triton.cdiv(n, n_tile), experts)](
        x, grad_y, group_sizes, grad_weight, *x.stride(), *grad_y.stride(), group_sizes.stride(0), k, n,
        EXPERTS=_scanned(experts), K_TILE_SIZE=k_tile, N_TILE_SIZE=n_tile, ROWS_TILE_SIZE=rows_tile,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return grad_x, grad_weight
    # END SOLUTION


# BEGIN SOLUTION
def _check(x: Tensor, weight: Tensor, group_sizes: Tensor) -> None:
    if (x.ndim, weight.ndim, group_sizes.ndim) != (2, 3, 1) or min(weight.shape) < 1:
        expected = "(tokens, k), (experts, k, n) and (experts,)"
        raise ValueError(f"expected {expected}, got {x.shape}, {weight.shape} and {group_sizes.shape}")
    if x.shape[1] != weight.shape[1] or len(weight) != len(group_sizes):
        raise ValueError(f"expected k and experts alike, got {x.shape}, {weight.shape} and {group_sizes.shape}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16) or x.dtype != weight.dtype:
        raise ValueError(f"expected one of float32, bfloat16, float16 for both, got {x.dtype} and {weight.dtype}")
    if group_sizes.dtype != torch.int32:
        raise ValueError(f"expected group_sizes in int32, got {group_sizes.dtype}")


def _scanned(experts: int) -> int:
    """The sizes that are scanned together: those of all groups, and of the rows behind the last."""
    return max(FEWEST, triton.next_power_of_2(experts + 1))


def _launch(x: Tensor, weight: Tensor, group_sizes: Tensor, y: Tensor) -> None:
    """Write the products to y: by descriptors where x and weight can have them, by pointers elsewhere."""
    (tokens, k), (experts, _, n) = x.shape, weight.shape
    is_large = torch.cuda.get_device_capability(x.device) in LARGE_SHARED_MEMORY
    m_tile, n_tile, k_tile, num_warps, num_stages = (LARGE_SIZES if is_large else SIZES)[x.itemsize]
    # at most: each group, and the rows behind the last, may have a tile that is not full
    n_tiles = (tokens // m_tile + min(experts + 1, tokens)) * triton.cdiv(n, n_tile)
    if IS_PERSISTENT:
        n_tiles = min(n_tiles, torch.cuda.get_device_properties(x.device).multi_processor_count)
    sizes = {"M_TILE_SIZE": m_tile, "N_TILE_SIZE": n_tile, "K_TILE_SIZE": k_tile, "EXPERTS": _scanned(experts)}
    options = {"num_warps": num_warps, "num_stages": num_stages}
    if is_large and _is_describable(x) and _is_describable(weight):
        is_transposed = weight.stride(2) != 1
        matrices, block = (weight.mT, [1, n_tile, k_tile]) if is_transposed else (weight, [1, k_tile, n_tile])
        _descriptor_kernel[(n_tiles,)](
            TensorDescriptor(x, list(x.shape), list(x.stride()), [m_tile, k_tile]),
            TensorDescriptor(matrices, list(matrices.shape), list(matrices.stride()), block),
            group_sizes, y, group_sizes.stride(0), tokens, experts, k, n,
            IS_TRANSPOSED=is_transposed, **sizes, **options,
        )  # fmt: skip
    else:
        _pointer_kernel[(n_tiles,)](
            x, weight, group_sizes, y, *x.stride(), *weight.stride(), group_sizes.stride(0), tokens, experts, k, n,
            IS_WHOLE=k % k_tile == 0, **sizes, **options,
        )  # fmt: skip


def _is_describable(x: Tensor) -> bool:
    """Whether rows follow one another, of weight also columns, from aligned places."""
    *outer, inner = x.stride() if x.stride(-1) == 1 or x.ndim == 2 else x.mT.stride()
    is_aligned = x.data_ptr() % ALIGNMENT == 0 and all(s * x.itemsize % ALIGNMENT == 0 for s in outer)
    return inner == 1 and min(outer) > 1 and is_aligned


# END SOLUTION
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
    # BEGIN SOLUTION handout/grouped_matmul.md
    sizes, n_tiles = _tiles(sizes_ptr, stride_g, tokens, experts, n, M_TILE_SIZE, N_TILE_SIZE, EXPERTS)
    for tile in range(tl.program_id(0), tl.sum(n_tiles), tl.num_programs(0)):
        expert, first, end, col = _located(tile, sizes, n_tiles, M_TILE_SIZE, N_TILE_SIZE, EXPERTS)
        total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        for start in range(0, tl.where(expert < experts, k, 0), K_TILE_SIZE):
            x = x_tiles.load([first, start])  # (M, K), with rows of other groups, which are not stored
            if IS_TRANSPOSED:
                weight = weight_tiles.load([expert, col, start]).reshape(N_TILE_SIZE, K_TILE_SIZE).T
            else:
                weight = weight_tiles.load([expert, start, col]).reshape(K_TILE_SIZE, N_TILE_SIZE)
            total = tl.dot(x, weight, total)
        _store(total, y_ptr, first, end, col, n, M_TILE_SIZE, N_TILE_SIZE)
    # END SOLUTION


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
    # BEGIN SOLUTION handout/grouped_matmul.md
    sizes, n_tiles = _tiles(sizes_ptr, stride_g, tokens, experts, n, M_TILE_SIZE, N_TILE_SIZE, EXPERTS)
    for tile in range(tl.program_id(0), tl.sum(n_tiles), tl.num_programs(0)):
        expert, first, end, col = _located(tile, sizes, n_tiles, M_TILE_SIZE, N_TILE_SIZE, EXPERTS)
        rows = first.to(tl.int64) + tl.arange(0, M_TILE_SIZE)
        cols = col.to(tl.int64) + tl.arange(0, N_TILE_SIZE)
        row_mask, col_mask = rows[:, None] < end, cols[None, :] < n
        x_ptrs = x_ptr + rows[:, None] * stride_xm
        weight_ptrs = weight_ptr + expert.to(tl.int64) * stride_we + cols[None, :] * stride_wn
        total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        for start in range(0, tl.where(expert < experts, k, 0), K_TILE_SIZE):
            terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
            term_mask = (terms >= 0) if IS_WHOLE else (terms < k)
            x = tl.load(x_ptrs + terms[None, :] * stride_xk, mask=row_mask & term_mask[None, :], other=0.0)  # (M, K)
            weight = tl.load(
                weight_ptrs + terms[:, None] * stride_wk, mask=term_mask[:, None] & col_mask, other=0.0
            )  # (K, N)
            total = tl.dot(x, weight, total)
        _store(total, y_ptr, first, end, col, n, M_TILE_SIZE, N_TILE_SIZE)
    # END SOLUTION


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
    # BEGIN SOLUTION handout/grouped_matmul.md
    expert, n_col_tiles = tl.program_id(1), tl.cdiv(n, N_TILE_SIZE)
    each = tl.arange(0, EXPERTS)
    first = tl.sum(tl.load(sizes_ptr + each * stride_g, mask=each < expert, other=0))
    end = first + tl.load(sizes_ptr + expert * stride_g)
    terms = (tl.program_id(0) // n_col_tiles).to(tl.int64) * K_TILE_SIZE + tl.arange(0, K_TILE_SIZE)
    cols = (tl.program_id(0) % n_col_tiles).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    term_mask, col_mask = terms[None, :] < k, cols[None, :] < n
    total = tl.zeros((K_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(first, end, ROWS_TILE_SIZE):
        rows = (start + tl.arange(0, ROWS_TILE_SIZE)).to(tl.int64)[:, None]
        x_ptrs = x_ptr + rows * stride_xm + terms[None, :] * stride_xk
        grad_y_ptrs = grad_y_ptr + rows * stride_gm + cols[None, :] * stride_gn
        x = tl.load(x_ptrs, mask=(rows < end) & term_mask, other=0.0)  # (R, K)
        grad_y = tl.load(grad_y_ptrs, mask=(rows < end) & col_mask, other=0.0)  # (R, N)
        total = tl.dot(x.T, grad_y, total)
    at = grad_weight_ptr + (expert.to(tl.int64) * k + terms[:, None]) * n + cols[None, :]
    tl.store(at, total.to(grad_weight_ptr.dtype.element_ty), mask=(terms[:, None] < k) & col_mask)
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _tiles(
    sizes_ptr, stride_g, tokens, experts, n,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    """The sizes of all groups, and their tiles of y; the rows behind the last group are one more."""
    each = tl.arange(0, EXPERTS)
    sizes = tl.load(sizes_ptr + each * stride_g, mask=each < experts, other=0)
    sizes = tl.where(each == experts, tokens - tl.sum(sizes), sizes)
    return sizes, tl.cdiv(sizes, M_TILE_SIZE) * tl.cdiv(n, N_TILE_SIZE)


@triton.jit
def _located(tile, sizes, n_tiles, M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, EXPERTS: tl.constexpr):
    """The expert of a tile, its first row, the end of its group, and its first column: row after row of tiles."""
    each = tl.arange(0, EXPERTS)
    expert = tl.sum((tl.cumsum(n_tiles) <= tile).to(tl.int32))
    first = tl.sum(tl.where(each < expert, sizes, 0))
    size = tl.sum(tl.where(each == expert, sizes, 0))
    in_group = tile - tl.sum(tl.where(each < expert, n_tiles, 0))
    n_row_tiles = tl.cdiv(size, M_TILE_SIZE)
    return expert, first + in_group % n_row_tiles * M_TILE_SIZE, first + size, in_group // n_row_tiles * N_TILE_SIZE


@triton.jit
def _store(total, y_ptr, first, end, col, n, M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr):
    """Write a tile of y (tokens, n), which is contiguous: the rows of its group."""
    rows = first.to(tl.int64) + tl.arange(0, M_TILE_SIZE)
    cols = col + tl.arange(0, N_TILE_SIZE)
    mask = (rows[:, None] < end) & (cols[None, :] < n)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], total.to(y_ptr.dtype.element_ty), mask=mask)


# END SOLUTION
