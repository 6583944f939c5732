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

# BEGIN SOLUTION
from triton.tools.tensor_descriptor import TensorDescriptor

ALIGNMENT = 16  # bytes: what a tensor descriptor asks of a matrix's base and of its stride
LARGE_SHARED_MEMORY = {(9, 0), (10, 0)}  # H100 and B200: 227 KB a program; elsewhere as little as 99 KB
# By the bytes of an element: rows, columns and terms of a tile, warps, stages.
SIZES = {2: (128, 128, 32, 8, 3), 4: (64, 64, 32, 4, 3)}
LARGE_SIZES = {2: (128, 256, 64, 8, 3), 4: (128, 128, 32, 8, 3)}
GROUP_SIZE = 8  # rows of tiles that are computed together
SQRT_1_2 = tl.constexpr(0.7071067811865476)
TWICE_SQRT_2_PI = tl.constexpr(1.5957691216057308)  # 2 √(2/π)
CUBIC = tl.constexpr(0.044715)
# END SOLUTION


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
    # BEGIN SOLUTION handout/linear_gelu.md
    _check(x, weight, bias, approximate)
    n, k = weight.shape
    rows = x.reshape(-1, k)
    m = rows.shape[0]
    y = x.new_empty(m, n)
    if m > 0:
        _launch(rows, weight, bias, y, approximate == "tanh")
    return y.reshape(*x.shape[:-1], n)
    # END SOLUTION


# BEGIN SOLUTION
def _check(x: Tensor, weight: Tensor, bias: Tensor, approximate: str) -> None:
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or min(*x.shape[-2:], *weight.shape) < 1:
        raise ValueError(f"expected (..., m, k) and (n, k), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"expected bias of shape {tuple(weight.shape[:1])}, got {tuple(bias.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16) or not x.dtype == weight.dtype == bias.dtype:
        raise ValueError(f"expected one dtype, float32 or of 16 bits; got {x.dtype}, {weight.dtype} and {bias.dtype}")
    if approximate not in ("none", "tanh"):
        raise ValueError(f'expected approximate to be "none" or "tanh", got {approximate!r}')


def _launch(x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, is_tanh: bool) -> None:
    """Write gelu(x weightᵀ + bias) to y: by descriptors where all matrices can have them, by pointers elsewhere."""
    (m, k), n = x.shape, weight.shape[0]
    is_large = torch.cuda.get_device_capability(x.device) in LARGE_SHARED_MEMORY
    m_tile, n_tile, k_tile, num_warps, num_stages = (LARGE_SIZES if is_large else SIZES)[x.itemsize]
    grid = (triton.cdiv(m, m_tile) * triton.cdiv(n, n_tile),)
    sizes = {"M_TILE_SIZE": m_tile, "N_TILE_SIZE": n_tile, "K_TILE_SIZE": k_tile, "GROUP_SIZE": GROUP_SIZE}
    options = {"IS_TANH": is_tanh, "num_warps": num_warps, "num_stages": num_stages}
    if is_large and all(_is_describable(matrix) for matrix in (x, weight, y)):
        _descriptor_kernel[grid](
            _described(x, m_tile, k_tile), _described(weight, n_tile, k_tile), bias, _described(y, m_tile, n_tile // 4),
            bias.stride(0),
            m, n, k,
            X_IS_TRANSPOSED=x.stride(1) != 1, W_IS_TRANSPOSED=weight.stride(1) != 1, **sizes, **options,
        )  # fmt: skip
    else:
        _pointer_kernel[grid](
            x, weight, bias, y,
            *x.stride(), *weight.stride(), *bias.stride(), *y.stride(),
            m, n, k,
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
    # BEGIN SOLUTION handout/linear_gelu.md
    row_tile, col_tile = _grouped(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
    row, col = row_tile * M_TILE_SIZE, col_tile * N_TILE_SIZE
    cols = col.to(tl.int64) + tl.arange(0, N_TILE_SIZE)
    bias = tl.load(bias_ptr + cols * stride_bn, mask=cols < n, other=0.0).to(tl.float32)  # (N,)
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32) + bias[None, :]
    for start in range(0, k, K_TILE_SIZE):
        x = x_tiles.load([start, row]).T if X_IS_TRANSPOSED else x_tiles.load([row, start])  # (M, K)
        w = weight_tiles.load([start, col]) if W_IS_TRANSPOSED else weight_tiles.load([col, start]).T  # (K, N)
        total = tl.dot(x, w, total)
    halves = _halves(total)
    for i in tl.static_range(4):
        quarter = _halves(halves[i // 2])[i % 2]
        y_tiles.store(
            [row, col + i * (N_TILE_SIZE // 4)], _gelu(quarter, IS_TANH, y_tiles.dtype != tl.float32).to(y_tiles.dtype)
        )
    # END SOLUTION


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
    # BEGIN SOLUTION handout/linear_gelu.md
    row_tile, col_tile = _grouped(tl.program_id(0), tl.cdiv(m, M_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE), GROUP_SIZE)
    rows = row_tile.to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    row_mask, col_mask = rows[:, None] < m, cols[None, :] < n
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        x_ptrs = x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk
        w_ptrs = weight_ptr + terms[:, None] * stride_wk + cols[None, :] * stride_wn
        if IS_WHOLE:
            x = tl.load(x_ptrs, mask=row_mask, other=0.0)  # (M, K)
            w = tl.load(w_ptrs, mask=col_mask, other=0.0)  # (K, N)
        else:
            x = tl.load(x_ptrs, mask=row_mask & (terms[None, :] < k), other=0.0)
            w = tl.load(w_ptrs, mask=(terms[:, None] < k) & col_mask, other=0.0)
        total = tl.dot(x, w, total)
    bias = tl.load(bias_ptr + cols * stride_bn, mask=cols < n, other=0.0).to(tl.float32)  # (N,)
    y = _gelu(total + bias[None, :], IS_TANH, y_ptr.dtype.element_ty != tl.float32)
    y_ptrs = y_ptr + rows[:, None] * stride_ym + cols[None, :] * stride_yn
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_mask & col_mask)
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _gelu(z, IS_TANH: tl.constexpr, IS_16_BIT: tl.constexpr):
    """z Φ(z), or z ½ (1 + tanh u) = z / (1 + exp(−2u)), in which nothing overflows to NaN.

    For 16 bits Φ(−|z|) is a power of two, whose exponent is a polynomial fitted on [0, 5.5], off by 3·10⁻⁵ of itself:
    1.03 × as fast at 4,096³ as with bias_gelu's quotient (H200), since it comes after the products, not beside them.
    """
    if IS_TANH:
        return z / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z)))
    if IS_16_BIT:
        u = tl.minimum(tl.abs(z), 5.5)  # beyond, Φ is below 2·10⁻⁸
        exponent = ((2.61537497e-05 * u - 0.000660981216) * u + 0.00748830997) * u - 0.051970406
        exponent = ((exponent * u - 0.460329477) * u - 1.150584) * u - 1.00003606
        return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL) - u * tl.exp2(exponent)
    tail = 0.5 - 0.5 * tl.erf(tl.abs(z) * SQRT_1_2)
    return z * tl.where(z > 0, 1.0 - tail, tail)


@triton.jit
def _halves(tile):
    """The left and the right columns."""
    M: tl.constexpr = tile.shape[0]
    N: tl.constexpr = tile.shape[1]
    return tl.split(tl.permute(tl.reshape(tile, (M, 2, N // 2)), (0, 2, 1)))


@triton.jit
def _grouped(tile, n_row_tiles, n_col_tiles, GROUP_SIZE: tl.constexpr):
    """The row and column of a tile: GROUP_SIZE rows of tiles together, column after column."""
    in_group = GROUP_SIZE * n_col_tiles
    first_row = tile // in_group * GROUP_SIZE
    n_rows = tl.minimum(n_row_tiles - first_row, GROUP_SIZE)
    return first_row + tile % in_group % n_rows, tile % in_group // n_rows


# END SOLUTION
