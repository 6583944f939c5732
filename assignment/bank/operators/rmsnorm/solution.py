"""RMSNorm: y = x / √(mean(x²) + eps) · w over the last dimension.

With rstd_i = 1 / √(Σ_j x_ij² / d + eps) and x̂_ij = x_ij rstd_i:

    forward    y_ij      = x̂_ij w_j
    backward   grad_x_ij = rstd_i (w_j grad_y_ij − x̂_ij · mean_j(w_j grad_y_ij x̂_ij))
               grad_w_j  = Σ_i grad_y_ij x̂_ij

Bytes that must move, for n rows of d elements of s bytes each: forward (2·n·d + d)·s + 4·n, x being read and y written
once; backward (3·n·d + 2·d)·s + 4·n. Both are memory bound. A row wider than a tile is read twice.
Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
MAX_ONE_TILE_D = 2048  # the forward walks twice along wider rows, the second time through the cache: 1.02 to 1.25 ×
FORWARD_TILE_ELEMENTS = 2048  # of one row, or of several short ones
FORWARD_TILE_BYTES = {8192: 4096, 32768: 8192}  # by the bytes of a wider row
MAX_TILE_BYTES = 16384  # of the widest
BYTES_PER_LOAD = 16  # of a thread; wider than this there is none
MIN_ROWS_PER_PROGRAM = 64  # keeps what the partial weight gradients cost below 3 % of the traffic
BACKWARD_SIZES = {  # by the widest row: elements of a tile, warps, programs a multiprocessor
    1024: (4096, 4, 2),
    8192: (8192, 8, 1),
    16384: (16384, 8, 1),
}
BACKWARD_WIDE_SIZES = {  # by the bytes of an element: of rows whose x and grad_y do not fit beside grad_w
    2: (32768, 16, 1),
    4: (16384, 8, 1),
}
WIDE_STEP_BYTES = tl.constexpr(16384)  # of the walk that finds the mean of such a row
MAX_PIPELINED_BYTES = tl.constexpr(16384)  # of a tile: three of x and of grad_y fit in shared memory
# END SOLUTION


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    """(y, rstd): y_ij = x_ij rstd_i w_j and rstd_i = 1 / √(Σ_j x_ij² / d + eps).

    dtypes: float32, bfloat16 or float16, the same for x and weight; y has that of x, rstd is always float32.
        Everything is computed in float32 and cast once, at the store.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty y and rstd, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, weight is not of shape (d,), or the dtypes differ
            or are none of the three.
    """
    # BEGIN SOLUTION handout/rmsnorm.md
    _check_x_and_weight(x, weight)
    x_rows = x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y = x_rows.new_empty(n_rows, d)
    rstd = x_rows.new_empty(n_rows, dtype=torch.float32)
    rows_tile_size, d_tile_size, num_warps = _forward_sizes(d, x.dtype)
    if n_rows > 0:
        _rmsnorm_forward_kernel[(triton.cdiv(n_rows, rows_tile_size),)](
            x_rows, weight, y, rstd,
            *x_rows.stride(), *weight.stride(), *y.stride(), *rstd.stride(),
            n_rows, d, eps,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
            num_warps=num_warps,
        )  # fmt: skip
    return y.reshape(x.shape), rstd.reshape(x.shape[:-1])
    # END SOLUTION


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_weight), from the rstd of the forward; the module's docstring has the formulas.

    dtypes: as in the forward; grad_y and grad_x have that of x, grad_weight that of weight, rstd is float32. Computed
        in float32, the sum over all rows included: it is cast once, at the end.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty grad_x and a grad_weight of zeros, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype, or rstd not of
            shape (*batch) and float32.
    """
    # BEGIN SOLUTION handout/rmsnorm.md
    _check_x_and_weight(x, weight)
    _check_grad_y_and_rstd(grad_y, rstd, x)
    d = x.shape[-1]
    grad_y_rows, x_rows, rstd_rows = grad_y.reshape(-1, d), x.reshape(-1, d), rstd.reshape(-1)
    n_rows = x_rows.shape[0]
    sizes, n_row_programs = _backward_sizes(n_rows, d, x)

    grad_x = x_rows.new_empty(n_rows, d)
    partial_grad_w = x_rows.new_empty(n_row_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _rmsnorm_backward_kernel[(n_row_programs, triton.cdiv(d, sizes["D_TILE_SIZE"]))](
            grad_y_rows, x_rows, weight, rstd_rows, grad_x, partial_grad_w,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *rstd_rows.stride(),
            *grad_x.stride(), *partial_grad_w.stride(),
            n_rows, d,
            **sizes,
        )  # fmt: skip
    return grad_x.reshape(x.shape), partial_grad_w.sum(dim=0).to(weight.dtype)
    # END SOLUTION


def rmsnorm(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of `rmsnorm_forward`, differentiable in x and weight through `rmsnorm_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `rmsnorm_forward`.
    """
    # BEGIN SOLUTION handout/rmsnorm.md
    return RMSNorm.apply(x, weight, eps)
    # END SOLUTION


# BEGIN SOLUTION
def _check_x_and_weight(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x of shape (..., d) with d >= 1, got {tuple(x.shape)}")
    if weight.shape != x.shape[-1:]:
        raise ValueError(f"expected weight of shape {tuple(x.shape[-1:])}, x's last, got {tuple(weight.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected x in float32, bfloat16 or float16, got {x.dtype}")
    if weight.dtype != x.dtype:
        raise ValueError(f"expected weight in x's dtype {x.dtype}, got {weight.dtype}")
    if weight.device != x.device:
        raise ValueError(f"expected weight on x's device {x.device}, got {weight.device}")


def _check_grad_y_and_rstd(grad_y: Tensor, rstd: Tensor, x: Tensor) -> None:
    if grad_y.shape != x.shape:
        raise ValueError(f"expected grad_y of x's shape {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    if grad_y.dtype != x.dtype or grad_y.device != x.device:
        raise ValueError(f"expected grad_y like x, {x.dtype} on {x.device}, got {grad_y.dtype} on {grad_y.device}")
    if rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected rstd of shape {tuple(x.shape[:-1])}, got {tuple(rstd.shape)}")
    if rstd.dtype != torch.float32 or rstd.device != x.device:
        raise ValueError(f"expected rstd in float32 on {x.device}, got {rstd.dtype} on {rstd.device}")


def _forward_sizes(d: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps."""
    if d <= MAX_ONE_TILE_D:
        d_tile_size = triton.next_power_of_2(d)
        return FORWARD_TILE_ELEMENTS // d_tile_size, d_tile_size, 4
    row_bytes = d * dtype.itemsize
    tile_bytes = next((tile for widest, tile in FORWARD_TILE_BYTES.items() if row_bytes <= widest), MAX_TILE_BYTES)
    return 1, tile_bytes // dtype.itemsize, tile_bytes // (32 * BYTES_PER_LOAD)


def _backward_sizes(n_rows: int, d: int, x: Tensor) -> tuple[dict[str, int], int]:
    """What the backward kernel is launched with, and how many programs share the rows."""
    fitting = [sizes for widest, sizes in BACKWARD_SIZES.items() if d <= widest]
    elements, num_warps, programs = fitting[0] if fitting else BACKWARD_WIDE_SIZES[x.itemsize]
    d_tile_size = min(triton.next_power_of_2(d), elements)
    sizes = {
        "ROWS_TILE_SIZE": elements // d_tile_size,
        "D_TILE_SIZE": d_tile_size,
        "IS_IN_REGISTERS": bool(fitting),
        "num_warps": num_warps,
    }
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    most = max(1, programs * multiprocessors // triton.cdiv(d, d_tile_size))
    return sizes, min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)


# END SOLUTION
class RMSNorm(torch.autograd.Function):
    """Saves x, weight and rstd."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        # BEGIN SOLUTION handout/rmsnorm.md rmsnorm
        y, rstd = rmsnorm_forward(x, weight, eps=eps)
        ctx.save_for_backward(x, weight, rstd)
        return y
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        # BEGIN SOLUTION handout/rmsnorm.md rmsnorm
        return *rmsnorm_backward(grad_y, *ctx.saved_tensors), None
        # END SOLUTION


@triton.jit
def _rmsnorm_forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_yr, stride_yd, stride_rstdr,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for the sum of squares, then for y.

    x and y (n_rows, d), w (d,), rstd (n_rows,) in float32; stride_xr is x's stride along the rows.
    IS_ONE_TILE: d <= D_TILE_SIZE; the second walk then needs no second read of x.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    # BEGIN SOLUTION handout/rmsnorm.md
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows

    # Zeros past the last column add nothing to the sum of squares. What is read twice is to stay in the cache.
    x = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    squares = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    keep: tl.constexpr = "" if IS_ONE_TILE else "evict_last"
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        tile_mask = row_mask[:, None] & (cols < d)[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, mask=tile_mask, other=0.0, eviction_policy=keep).to(tl.float32)
        squares += x * x

    rstd = 1.0 / tl.sqrt_rn(tl.sum(squares, axis=1) / d + eps)  # (ROWS_TILE_SIZE,)
    tl.store(rstd_ptr + rows * stride_rstdr, rstd, mask=row_mask)

    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        tile_mask = row_mask[:, None] & col_mask[None, :]
        if not IS_ONE_TILE:
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            x = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
        y = x * rstd[:, None] * w[None, :]
        y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _rmsnorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, partial_grad_w_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_IN_REGISTERS: tl.constexpr,
):  # fmt: skip
    """One program a column tile and a share of the row tiles: every n_row_programs-th of them.

    grad_y, x and grad_x (n_rows, d), w (d,), rstd (n_rows,), partial_grad_w (n_row_programs, d) in float32: the part
    of grad_weight that comes from the rows of one program.
    IS_IN_REGISTERS: a tile is whole rows, held until their mean_j(w_j grad_y_ij x̂_ij) is known. Otherwise a program
    walks along a row for the mean, then reads its own columns of it again, through the cache.
    Grid: (n_row_programs, ⌈d / D_TILE_SIZE⌉).
    """
    row_program = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    col_mask = cols < d
    if IS_IN_REGISTERS:
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)

    grad_w = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    tile_bytes: tl.constexpr = ROWS_TILE_SIZE * D_TILE_SIZE * x_ptr.dtype.element_ty.primitive_bitwidth // 8
    num_stages: tl.constexpr = 3 if tile_bytes <= MAX_PIPELINED_BYTES else 1
    step = tl.num_programs(0) * ROWS_TILE_SIZE
    for start in tl.range(row_program * ROWS_TILE_SIZE, n_rows, step, num_stages=num_stages):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        tile_mask = row_mask[:, None] & col_mask[None, :]
        # Zeros past the last row and column add nothing to grad_w and to the mean.
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=row_mask, other=0.0)  # (ROWS_TILE_SIZE,)
        if not IS_IN_REGISTERS:
            row_means = rstd / d * _sums_along(
                grad_y_ptr + rows[:, None] * stride_gyr, x_ptr + rows[:, None] * stride_xr, w_ptr,
                stride_gyd, stride_xd, stride_wd, row_mask, d,
            )  # fmt: skip
            w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad_y = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        x = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        x_hat = x * rstd[:, None]
        w_grad_y = w[None, :] * grad_y
        grad_w += grad_y * x_hat
        if IS_IN_REGISTERS:
            row_means = tl.sum(w_grad_y * x_hat, axis=1) / d  # (ROWS_TILE_SIZE,)
        grad_x = rstd[:, None] * (w_grad_y - x_hat * row_means[:, None])
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        stream: tl.constexpr = "" if IS_IN_REGISTERS else ".cs"  # what is read twice is to stay in the cache instead
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=tile_mask, cache_modifier=stream)
    tl.store(partial_grad_w_ptr + row_program * stride_pr + cols * stride_pd, tl.sum(grad_w, axis=0), mask=col_mask)


@triton.jit
def _sums_along(grad_y_ptrs, x_ptrs, w_ptr, stride_gyd, stride_xd, stride_wd, row_mask, d):
    """Σ_j w_j grad_y_ij x_ij of rows whose first elements grad_y_ptrs and x_ptrs (ROWS_TILE_SIZE, 1) point at."""
    STEP: tl.constexpr = WIDE_STEP_BYTES * 8 // w_ptr.dtype.element_ty.primitive_bitwidth
    products = tl.zeros((row_mask.shape[0], STEP), dtype=tl.float32)
    for start in range(0, d, STEP):
        cols = start + tl.arange(0, STEP).to(tl.int64)
        tile_mask = row_mask[:, None] & (cols < d)[None, :]
        # What is read twice is to stay in the cache.
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad_y = tl.load(
            grad_y_ptrs + cols[None, :] * stride_gyd, mask=tile_mask, other=0.0, eviction_policy="evict_last"
        )
        x = tl.load(x_ptrs + cols[None, :] * stride_xd, mask=tile_mask, other=0.0, eviction_policy="evict_last")
        products += w[None, :] * grad_y.to(tl.float32) * x.to(tl.float32)
    return tl.sum(products, axis=1)  # (ROWS_TILE_SIZE,)


# END SOLUTION
