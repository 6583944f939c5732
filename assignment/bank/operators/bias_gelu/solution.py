"""Bias and GELU in one kernel, for practice: y = gelu(x + bias).

With z_ij = x_ij + bias_j and Φ the distribution function of a standard normal number:

    forward    y_ij        = z_ij Φ(z_ij)
    backward   grad_x_ij   = grad_y_ij (Φ(z_ij) + z_ij Φ′(z_ij))
               grad_bias_j = Σ_i grad_x_ij

"none": Φ(z) = ½ (1 + erf(z / √2)). "tanh": ½ (1 + tanh(√(2/π) (z + 0.044715 z³))) in its place.
Bytes that must move, for n rows of d elements of s bytes each: forward 2·n·d·s, backward 3·n·d·s.
Source: Hendrycks and Gimpel 2016, "Gaussian Error Linear Units (GELUs)".
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
TILE_ELEMENTS, MAX_D_TILE_SIZE = 2048, 1024
MIN_ROWS_PER_PROGRAM = 64  # keeps what the partial gradients of the bias cost below 3 % of the traffic
PROGRAMS = 4  # a multiprocessor, in the backward
NUM_WARPS = 4
SQRT_1_2 = tl.constexpr(0.7071067811865476)
MINUS_LOG2_E_2 = tl.constexpr(-0.7213475204444817)  # −log₂(e) / 2
INV_SQRT_2_PI = tl.constexpr(0.3989422804014327)  # 1/√(2π)
TWICE_SQRT_2_PI = tl.constexpr(1.5957691216057308)  # 2 √(2/π)
CUBIC = tl.constexpr(0.044715)
# END SOLUTION


def bias_gelu_forward(
    x: Float[Tensor, "*batch d"], bias: Float[Tensor, " d"], approximate: str = "none"
) -> Float[Tensor, "*batch d"]:
    """y = gelu(x + bias), as torch.nn.functional.gelu(x + bias, approximate=approximate) has it.

    approximate: "none" for erf, "tanh" for the form with tanh.
    dtypes: float32, bfloat16 or float16, the same for x, bias and y. Computed in float32 and cast once, at the store.
    Strides: any, broadcast dimensions (stride 0) included; y has memory of its own. The inputs are not written to.
    Width: any d from 1. x is read once, y is written once.
    Empty batch: an empty y, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, bias is not of shape (d,), the dtypes differ or
            are none of the three, or approximate is neither "none" nor "tanh".
    """
    # BEGIN SOLUTION handout/bias_gelu.md
    _check(x, bias, approximate)
    x_rows = x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y = x_rows.new_empty(n_rows, d)
    rows_tile_size, d_tile_size = _tile_sizes(d)
    if n_rows > 0:
        _bias_gelu_kernel[(triton.cdiv(n_rows, rows_tile_size), triton.cdiv(d, d_tile_size))](
            x_rows, bias, y,
            *x_rows.stride(), *bias.stride(), *y.stride(),
            n_rows, d,
            IS_TANH=approximate == "tanh", ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size,
            num_warps=NUM_WARPS,
        )  # fmt: skip
    return y.reshape(x.shape)
    # END SOLUTION


def bias_gelu_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    bias: Float[Tensor, " d"],
    approximate: str = "none",
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_bias); the module's docstring has the formulas. x + bias is computed anew.

    dtypes: as in the forward, the same for all. Computed in float32, the sum over all rows included: it is cast once.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1. grad_y and x are read once, grad_x is written once.
    Empty batch: an empty grad_x and a grad_bias of zeros, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype.
    """
    # BEGIN SOLUTION handout/bias_gelu.md
    _check(x, bias, approximate)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError(
            f"expected grad_y like x, {tuple(x.shape)} of {x.dtype}; got {tuple(grad_y.shape)} of {grad_y.dtype}"
        )
    grad_y_rows, x_rows = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    rows_tile_size, d_tile_size = _tile_sizes(d)
    n_row_programs = _row_programs(n_rows, triton.cdiv(d, d_tile_size), x)
    grad_x = x_rows.new_empty(n_rows, d)
    partial_grad_bias = x_rows.new_empty(n_row_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _bias_gelu_backward_kernel[(n_row_programs, triton.cdiv(d, d_tile_size))](
            grad_y_rows, x_rows, bias, grad_x, partial_grad_bias,
            *grad_y_rows.stride(), *x_rows.stride(), *bias.stride(), *grad_x.stride(), *partial_grad_bias.stride(),
            n_rows, d,
            IS_TANH=approximate == "tanh", ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size,
            num_warps=NUM_WARPS,
        )  # fmt: skip
    return grad_x.reshape(x.shape), partial_grad_bias.sum(dim=0).to(bias.dtype)
    # END SOLUTION


def bias_gelu(
    x: Float[Tensor, "*batch d"], bias: Float[Tensor, " d"], approximate: str = "none"
) -> Float[Tensor, "*batch d"]:
    """y of `bias_gelu_forward`, differentiable in x and bias through `bias_gelu_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `bias_gelu_forward`.
    """
    # BEGIN SOLUTION handout/bias_gelu.md
    return BiasGelu.apply(x, bias, approximate)
    # END SOLUTION


# BEGIN SOLUTION
def _check(x: Tensor, bias: Tensor, approximate: str) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x of shape (..., d) with d >= 1, got {tuple(x.shape)}")
    if bias.shape != x.shape[-1:]:
        raise ValueError(f"expected bias of shape {tuple(x.shape[-1:])}, x's last, got {tuple(bias.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16) or bias.dtype != x.dtype:
        raise ValueError(f"expected one of float32, bfloat16, float16 for both, got {x.dtype} and {bias.dtype}")
    if approximate not in ("none", "tanh"):
        raise ValueError(f'expected approximate to be "none" or "tanh", got {approximate!r}')


def _tile_sizes(d: int) -> tuple[int, int]:
    """Return the rows and columns of a tile."""
    d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)
    return TILE_ELEMENTS // d_tile_size, d_tile_size


def _row_programs(n_rows: int, n_d_tiles: int, x: Tensor) -> int:
    """Return how many programs share the rows of a column tile."""
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    most = max(1, PROGRAMS * multiprocessors // n_d_tiles)
    return min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)


# END SOLUTION
class BiasGelu(torch.autograd.Function):
    """Saves x and bias, and the form."""

    @staticmethod
    def forward(ctx, x, bias, approximate):
        # BEGIN SOLUTION handout/bias_gelu.md bias_gelu
        ctx.save_for_backward(x, bias)
        ctx.approximate = approximate
        return bias_gelu_forward(x, bias, approximate=approximate)
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        # BEGIN SOLUTION handout/bias_gelu.md bias_gelu
        x, bias = ctx.saved_tensors
        return *bias_gelu_backward(grad_y, x, bias, approximate=ctx.approximate), None
        # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _share(z, IS_TANH: tl.constexpr, IS_16_BIT: tl.constexpr):
    """Φ(z) and exp(−z²/2); or ½ (1 + tanh u) = 1 / (1 + exp(−2u)), in which nothing overflows to NaN, and 0.

    For 16 bits Φ(−|z|) = exp(−z²/2) P(t), t = 1 / (1 + 0.2316… |z|), off by at most 8·10⁻⁸: Abramowitz and Stegun 1964,
    7.1.26, in half the instructions of tl.erf, which take longer than the memory.
    """
    if IS_TANH:
        return 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z))), tl.zeros_like(z)
    bell = tl.exp2(MINUS_LOG2_E_2 * z * z)
    if IS_16_BIT:
        root = tl.rsqrt(1.0 + 0.231641888 * tl.abs(z))
        t = root * root  # a division takes six instructions
        polynomial = (((0.5307027145 * t - 0.7265760135) * t + 0.7107068705) * t - 0.142248368) * t + 0.127414796
        tail = polynomial * t * bell
    else:
        tail = 0.5 - 0.5 * tl.erf(tl.abs(z) * SQRT_1_2)
    return tl.where(z > 0, 1.0 - tail, tail), bell


@triton.jit
def _bias_gelu_kernel(
    x_ptr, bias_ptr, y_ptr,
    stride_xr, stride_xd, stride_bd, stride_yr, stride_yd,
    n_rows, d,
    IS_TANH: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile. x and y (n_rows, d), bias (d,). Grid: (⌈n_rows / ROWS_TILE_SIZE⌉, ⌈d / D_TILE_SIZE⌉)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    col_mask = cols < d
    tile_mask = (rows < n_rows)[:, None] & col_mask[None, :]
    bias = tl.load(bias_ptr + cols * stride_bd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
    x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
    z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]  # (ROWS_TILE_SIZE, D_TILE_SIZE)
    share, _ = _share(z, IS_TANH, x_ptr.dtype.element_ty != tl.float32)
    y = z * share
    y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)


@triton.jit
def _bias_gelu_backward_kernel(
    grad_y_ptr, x_ptr, bias_ptr, grad_x_ptr, partial_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_bd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    IS_TANH: tl.constexpr, ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a column tile and every n_row_programs-th of the row tiles.

    grad_y, x and grad_x (n_rows, d), bias (d,), partial (n_row_programs, d) in float32: the part of grad_bias that
    comes from the rows of one program. Grid: (n_row_programs, ⌈d / D_TILE_SIZE⌉).
    """
    row_program = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    col_mask = cols < d
    bias = tl.load(bias_ptr + cols * stride_bd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
    grad_bias = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    step = tl.num_programs(0) * ROWS_TILE_SIZE
    for start in tl.range(row_program * ROWS_TILE_SIZE, n_rows, step, num_stages=3):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        tile_mask = (rows < n_rows)[:, None] & col_mask[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        z = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32) + bias[None, :]
        # Zeros past the last row add nothing to grad_bias.
        grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
        grad_y = tl.load(grad_y_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        share, bell = _share(z, IS_TANH, x_ptr.dtype.element_ty != tl.float32)
        if IS_TANH:
            density = share * (1.0 - share) * TWICE_SQRT_2_PI * (1.0 + 3.0 * CUBIC * z * z)
        else:
            density = INV_SQRT_2_PI * bell
        grad_x = grad_y * (share + z * density)
        grad_bias += grad_x
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=tile_mask)
    partial_ptrs = partial_ptr + row_program * stride_pr + cols * stride_pd
    tl.store(partial_ptrs, tl.sum(grad_bias, axis=0), mask=col_mask)


# END SOLUTION
