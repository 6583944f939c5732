"""LayerNorm: y = (x − mean) / √(variance + eps) · w + b over the last dimension.

With mean_i = Σ_j x_ij / d, rstd_i = 1 / √(Σ_j (x_ij − mean_i)² / d + eps) and x̂_ij = (x_ij − mean_i) rstd_i:

    forward    y_ij      = x̂_ij w_j + b_j
    backward   h_ij      = w_j grad_y_ij
               grad_x_ij = rstd_i (h_ij − mean_j(h_ij) − x̂_ij · mean_j(h_ij x̂_ij))
               grad_w_j  = Σ_i grad_y_ij x̂_ij
               grad_b_j  = Σ_i grad_y_ij

Bytes that must move, for n rows of d elements of s bytes each: forward (2·n·d + 2·d)·s + 8·n, x being read and y
written once; backward (3·n·d + 3·d)·s + 8·n. Both are memory bound. A row wider than a tile is read twice.
Source: Ba, Kiros and Hinton 2016, "Layer Normalization", equation 4; Welford 1962 and Chan et al. 1983 for variances.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
MAX_ONE_TILE_D = 2048  # the forward walks twice along wider rows, the second time through the cache
FORWARD_TILE_ELEMENTS = 2048  # of one row, or of several short ones
FORWARD_TILE_BYTES = {8192: 4096, 32768: 8192}  # by the bytes of a wider row
MAX_TILE_BYTES = 16384  # of the widest
BYTES_PER_LOAD = 16  # of a thread; wider than this there is none
MIN_ROWS_PER_PROGRAM = 64  # keeps what the partial gradients of weight and bias cost below 5 % of the traffic
BACKWARD_SIZES = {  # by the widest row: elements of a tile, warps, programs a multiprocessor
    1024: (4096, 4, 2),
    8192: (8192, 8, 1),
}
BACKWARD_WIDE_SIZES = {  # by the bytes of an element: of rows whose x and grad_y do not fit beside the gradients
    2: (16384, 16, 1),
    4: (8192, 8, 1),
}
WIDE_STEP_BYTES = tl.constexpr(16384)  # of the walk that finds the means of such a row
MAX_PIPELINED_BYTES = tl.constexpr(16384)  # of a tile: three of x and of grad_y fit in shared memory
# END SOLUTION


def layernorm_forward(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"], Float32[Tensor, "*batch"]]:
    """(y, mean, rstd): y_ij = (x_ij − mean_i) rstd_i w_j + b_j; the module's docstring defines mean and rstd.

    dtypes: float32, bfloat16 or float16, the same for x, weight and bias; y has that of x, mean and rstd are always
        float32. Everything is computed in float32 and cast once, at the store.
    Values: a row's mean may be 10⁴ times its deviation.
    Strides: any, broadcast dimensions (stride 0) included. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty y, mean and rstd, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, weight or bias is not of shape (d,), or the
            dtypes differ or are none of the three.
    """
    # BEGIN SOLUTION handout/layernorm.md
    _check_inputs(x, weight, bias)
    x_rows = x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y = x_rows.new_empty(n_rows, d)
    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))
    rows_tile_size, d_tile_size, num_warps = _forward_sizes(d, x.dtype)
    if n_rows > 0:
        _layernorm_forward_kernel[(triton.cdiv(n_rows, rows_tile_size),)](
            x_rows, weight, bias, y, mean, rstd,
            *x_rows.stride(), *weight.stride(), *bias.stride(), *y.stride(), *mean.stride(), *rstd.stride(),
            n_rows, d, eps,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
            num_warps=num_warps,
        )  # fmt: skip
    return y.reshape(x.shape), mean.reshape(x.shape[:-1]), rstd.reshape(x.shape[:-1])
    # END SOLUTION


def layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float32[Tensor, "*batch"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_weight, grad_bias), from the mean and rstd of the forward.

    dtypes: as in the forward; grad_y and grad_x have that of x, grad_weight and grad_bias that of weight, mean and
        rstd are float32. Computed in float32, the sums over all rows included: they are cast once, at the end.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: an empty grad_x, and zeros for grad_weight and grad_bias, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of x's shape and dtype, or mean or rstd
            not of shape (*batch) and float32.
    """
    # BEGIN SOLUTION handout/layernorm.md
    _check_inputs(x, weight)
    _check_gradient(grad_y, mean, rstd, x)
    d = x.shape[-1]
    grad_y_rows, x_rows = grad_y.reshape(-1, d), x.reshape(-1, d)
    mean_rows, rstd_rows = mean.reshape(-1), rstd.reshape(-1)
    n_rows = x_rows.shape[0]
    sizes, n_row_programs = _backward_sizes(n_rows, d, x)

    grad_x = x_rows.new_empty(n_rows, d)
    partials = x_rows.new_empty(2, n_row_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _layernorm_backward_kernel[(n_row_programs, triton.cdiv(d, sizes["D_TILE_SIZE"]))](
            grad_y_rows, x_rows, weight, mean_rows, rstd_rows, grad_x, partials,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *mean_rows.stride(), *rstd_rows.stride(),
            *grad_x.stride(), *partials.stride(),
            n_rows, d,
            **sizes,
        )  # fmt: skip
    grad_weight, grad_bias = partials.sum(dim=1).to(weight.dtype)
    return grad_x.reshape(x.shape), grad_weight, grad_bias
    # END SOLUTION


def layernorm(
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of `layernorm_forward`, differentiable in x, weight and bias through `layernorm_backward`.

    Backward may run twice (`retain_graph=True`), for one of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `layernorm_forward`.
    """
    # BEGIN SOLUTION handout/layernorm.md
    return LayerNorm.apply(x, weight, bias, eps)
    # END SOLUTION


# BEGIN SOLUTION
def _check_inputs(x: Tensor, *vectors: Tensor) -> None:
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected x of shape (..., d) with d >= 1, got {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected x in float32, bfloat16 or float16, got {x.dtype}")
    for vector in vectors:
        if vector.shape != x.shape[-1:]:
            raise ValueError(f"expected weight and bias of shape {tuple(x.shape[-1:])}, got {tuple(vector.shape)}")
        if vector.dtype != x.dtype or vector.device != x.device:
            raise ValueError(f"expected {x.dtype} on {x.device}, as x, got {vector.dtype} on {vector.device}")


def _check_gradient(grad_y: Tensor, mean: Tensor, rstd: Tensor, x: Tensor) -> None:
    if grad_y.shape != x.shape:
        raise ValueError(f"expected grad_y of x's shape {tuple(x.shape)}, got {tuple(grad_y.shape)}")
    if grad_y.dtype != x.dtype or grad_y.device != x.device:
        raise ValueError(f"expected grad_y like x, {x.dtype} on {x.device}, got {grad_y.dtype} on {grad_y.device}")
    for per_row in (mean, rstd):
        if per_row.shape != x.shape[:-1]:
            raise ValueError(f"expected mean and rstd of shape {tuple(x.shape[:-1])}, got {tuple(per_row.shape)}")
        if per_row.dtype != torch.float32 or per_row.device != x.device:
            raise ValueError(f"expected float32 on {x.device}, got {per_row.dtype} on {per_row.device}")


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
class LayerNorm(torch.autograd.Function):
    """Saves x, weight, mean and rstd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        # BEGIN SOLUTION handout/layernorm.md layernorm
        y, mean, rstd = layernorm_forward(x, weight, bias, eps=eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        # BEGIN SOLUTION handout/layernorm.md layernorm
        return *layernorm_backward(grad_y, *ctx.saved_tensors), None
        # END SOLUTION


@triton.jit
def _layernorm_forward_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_wd, stride_bd, stride_yr, stride_yd, stride_mr, stride_sr,
    n_rows, d, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for mean and variance, then for y.

    x and y (n_rows, d), w and b (d,), mean and rstd (n_rows,) in float32; stride_xr is x's stride along the rows.
    IS_ONE_TILE: d <= D_TILE_SIZE; a program then holds its rows, and needs no second read of x.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    # BEGIN SOLUTION handout/layernorm.md
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    x = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    if IS_ONE_TILE:
        cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
        tile_mask = row_mask[:, None] & (cols < d)[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=1) / d
        differences = tl.where(tile_mask, x - mean[:, None], 0.0)
        variance = tl.sum(differences * differences, axis=1) / d
    else:
        # Sums of x − shift and of its square. The shift is the mean of a part of the row: its square distance from
        # that of all is at most d / D_TILE_SIZE variances, whatever the values; so no difference of large numbers.
        cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, mask=row_mask[:, None], other=0.0, eviction_policy="evict_last").to(tl.float32)
        shift = tl.sum(x, axis=1) / D_TILE_SIZE
        sums = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
        squares = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
        for start in range(0, d, D_TILE_SIZE):
            cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            tile_mask = row_mask[:, None] & (cols < d)[None, :]
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            x = tl.load(x_ptrs, mask=tile_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            difference = tl.where(tile_mask, x - shift[:, None], 0.0)
            sums += difference
            squares += difference * difference
        offset = tl.sum(sums, axis=1) / d
        mean = shift + offset
        variance = tl.maximum(tl.sum(squares, axis=1) / d - offset * offset, 0.0)
    rstd = 1.0 / tl.sqrt_rn(variance + eps)  # (ROWS_TILE_SIZE,)
    tl.store(mean_ptr + rows * stride_mr, mean, mask=row_mask)
    tl.store(rstd_ptr + rows * stride_sr, rstd, mask=row_mask)

    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        tile_mask = row_mask[:, None] & col_mask[None, :]
        if not IS_ONE_TILE:
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            x = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
        b = tl.load(b_ptr + cols * stride_bd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
        y = (x - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]
        y_ptrs = y_ptr + rows[:, None] * stride_yr + cols[None, :] * stride_yd
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=tile_mask)
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _layernorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_mr, stride_sr,
    stride_gxr, stride_gxd, stride_pk, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_IN_REGISTERS: tl.constexpr,
):  # fmt: skip
    """One program a column tile and a share of the row tiles: every n_row_programs-th of them.

    grad_y, x and grad_x (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_row_programs, d) in float32: the
    parts of grad_weight and grad_bias that come from the rows of one program.
    IS_IN_REGISTERS: a tile is whole rows, held until their mean_j(h_ij) and mean_j(h_ij x̂_ij) are known. Otherwise a
    program walks along a row for the means, then reads its own columns of it again, through the cache.
    Grid: (n_row_programs, ⌈d / D_TILE_SIZE⌉).
    """
    row_program = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    col_mask = cols < d
    if IS_IN_REGISTERS:
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)

    grad_w = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    grad_b = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    tile_bytes: tl.constexpr = ROWS_TILE_SIZE * D_TILE_SIZE * x_ptr.dtype.element_ty.primitive_bitwidth // 8
    num_stages: tl.constexpr = 3 if tile_bytes <= MAX_PIPELINED_BYTES else 1
    step = tl.num_programs(0) * ROWS_TILE_SIZE
    for start in tl.range(row_program * ROWS_TILE_SIZE, n_rows, step, num_stages=num_stages):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        tile_mask = row_mask[:, None] & col_mask[None, :]
        # Zeros of grad_y past the last row and column add nothing to any sum.
        mean = tl.load(mean_ptr + rows * stride_mr, mask=row_mask, other=0.0)  # (ROWS_TILE_SIZE,)
        rstd = tl.load(rstd_ptr + rows * stride_sr, mask=row_mask, other=0.0)  # (ROWS_TILE_SIZE,)
        if not IS_IN_REGISTERS:
            h_mean, along = _means_along(
                grad_y_ptr + rows[:, None] * stride_gyr, x_ptr + rows[:, None] * stride_xr, w_ptr, mean, rstd,
                stride_gyd, stride_xd, stride_wd, row_mask, d,
            )  # fmt: skip
            w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad_y = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        x = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        x_hat = (x - mean[:, None]) * rstd[:, None]
        h = w[None, :] * grad_y
        grad_w += grad_y * x_hat
        grad_b += grad_y
        if IS_IN_REGISTERS:
            h_mean = tl.sum(h, axis=1) / d  # (ROWS_TILE_SIZE,)
            along = tl.sum(h * x_hat, axis=1) / d  # (ROWS_TILE_SIZE,)
        grad_x = rstd[:, None] * (h - h_mean[:, None] - x_hat * along[:, None])
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        stream: tl.constexpr = "" if IS_IN_REGISTERS else ".cs"  # what is read twice is to stay in the cache instead
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=tile_mask, cache_modifier=stream)
    partial_ptrs = partials_ptr + row_program * stride_pr + cols * stride_pd
    tl.store(partial_ptrs, tl.sum(grad_w, axis=0), mask=col_mask)
    tl.store(partial_ptrs + stride_pk, tl.sum(grad_b, axis=0), mask=col_mask)


@triton.jit
def _means_along(grad_y_ptrs, x_ptrs, w_ptr, mean, rstd, stride_gyd, stride_xd, stride_wd, row_mask, d):
    """mean_j(h_ij) and mean_j(h_ij x̂_ij) of rows whose first elements grad_y_ptrs and x_ptrs (ROWS, 1) point at."""
    STEP: tl.constexpr = WIDE_STEP_BYTES * 8 // w_ptr.dtype.element_ty.primitive_bitwidth
    h_sums = tl.zeros((row_mask.shape[0], STEP), dtype=tl.float32)
    along_sums = tl.zeros((row_mask.shape[0], STEP), dtype=tl.float32)
    for start in range(0, d, STEP):
        cols = start + tl.arange(0, STEP).to(tl.int64)
        tile_mask = row_mask[:, None] & (cols < d)[None, :]
        # What is read twice is to stay in the cache.
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0, eviction_policy="evict_last").to(tl.float32)
        grad_y = tl.load(
            grad_y_ptrs + cols[None, :] * stride_gyd, mask=tile_mask, other=0.0, eviction_policy="evict_last"
        )
        x = tl.load(x_ptrs + cols[None, :] * stride_xd, mask=tile_mask, other=0.0, eviction_policy="evict_last")
        h = w[None, :] * grad_y.to(tl.float32)
        h_sums += h
        along_sums += h * (x.to(tl.float32) - mean[:, None])
    return tl.sum(h_sums, axis=1) / d, rstd * tl.sum(along_sums, axis=1) / d


# END SOLUTION
