"""Dropout, residual and LayerNorm in one pass: y = LayerNorm(residual + dropout(x)) over the last dimension.

Element i of x, counted row by row, is kept where tl.rand(seed, i) ≥ p. With keep_i = 1 there and 0 elsewhere:

    forward    summed_i  = residual_i + keep_i x_i / (1 − p)
               y         = (summed − mean) rstd w + b, with mean and rstd of each row of summed
    backward   h         = w grad_y,  x̂ = (summed − mean) rstd
               grad_residual = rstd (h − mean_j(h) − x̂ · mean_j(h x̂))
               grad_x_i  = keep_i grad_residual_i / (1 − p)
               grad_w_j  = Σ_rows grad_y x̂,  grad_b_j = Σ_rows grad_y

Bytes that must move, for n rows of d elements of s bytes each: forward (4·n·d + 2·d)·s + 8·n, x and residual being
read, y and summed written; backward (4·n·d + 3·d)·s + 8·n, grad_y and summed being read, grad_x and grad_residual
written. The mask is in none of them: the seed tells it again. Ten rounds of Philox an element cost more than the bytes.
Source: Ba, Kiros and Hinton 2016; Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

# BEGIN SOLUTION
MAX_ONE_TILE_D = 8192  # the forward walks twice along wider rows
FORWARD_TILE_ELEMENTS = 2048  # of several short rows
FORWARD_WIDE_D_TILE_SIZE = 4096
MIN_ROWS_PER_PROGRAM = 64  # keeps what the partial gradients of weight and bias cost below 5 % of the traffic
BACKWARD_SIZES = {  # by the widest row: elements of a tile, warps, programs a multiprocessor
    1024: (4096, 4, 2),
    8192: (8192, 16, 1),
}
BACKWARD_WIDE_SIZES = (2048, 4, 8)  # rows that do not fit into a program's registers
BACKWARD_WIDE_D_TILE_SIZE = 1024
# END SOLUTION


def dropout_add_layernorm_forward(
    x: Float[Tensor, "*batch d"],
    residual: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    p: float = 0.1,
    seed: int = 0,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float32[Tensor, "*batch"], Float32[Tensor, "*batch"]]:
    """(y, summed, mean, rstd), as the module's docstring has them.

    dtypes: float32, bfloat16 or float16, the same for x, residual, weight and bias; y and summed have it too, mean and
        rstd are always float32. Everything is computed in float32 and cast at the store.
    p: the share that is dropped, from 0 to below 1. seed: an integer from 0 to below 2⁶³.
    Strides: any, broadcast dimensions (stride 0) included; i is the index in x, not in memory. The inputs are not
        written to.
    Width: any d from 1; a row need not fit in one block.
    Empty batch: empty results, without a launch.

    Raises:
        ValueError: before any launch, if x has no dimensions, d < 1, residual is not of x's shape, weight or bias not
            of shape (d,), the dtypes differ or are none of the three, or not 0 <= p < 1.
    """
    # BEGIN SOLUTION handout/dropout_add_layernorm.md
    _check_inputs(p, x, weight, bias)
    _check_like(x, residual)
    x_rows, residual_rows = x.reshape(-1, x.shape[-1]), residual.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y, summed = (x_rows.new_empty(n_rows, d) for _ in range(2))
    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))
    rows_tile_size, d_tile_size, num_warps = _forward_sizes(d)
    if n_rows > 0:
        _forward_kernel[(triton.cdiv(n_rows, rows_tile_size),)](
            x_rows, residual_rows, weight, bias, y, summed, mean, rstd,
            *x_rows.stride(), *residual_rows.stride(), *weight.stride(), *bias.stride(),
            n_rows, d, float(p), 1 / (1 - p), seed, eps,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
            num_warps=num_warps,
        )  # fmt: skip
    return y.reshape(x.shape), summed.reshape(x.shape), mean.reshape(x.shape[:-1]), rstd.reshape(x.shape[:-1])
    # END SOLUTION


def dropout_add_layernorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    summed: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    mean: Float32[Tensor, "*batch"],
    rstd: Float32[Tensor, "*batch"],
    p: float = 0.1,
    seed: int = 0,
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, "*batch d"], Float[Tensor, " d"], Float[Tensor, " d"]]:
    """The gradients (grad_x, grad_residual, grad_weight, grad_bias), from what the forward has returned.

    dtypes: as in the forward; all four gradients have that of summed. Computed in float32, the sums over all rows
        included: they are cast once, at the end.
    p and seed: those of the forward, which tell the same mask again.
    Strides: any; `y.sum().backward()` passes a grad_y whose strides are all 0. The inputs are not written to.
    Empty batch: empty grad_x and grad_residual, and zeros for grad_weight and grad_bias, without a launch.

    Raises:
        ValueError: before any launch, as in the forward, or if grad_y is not of summed's shape and dtype, or mean or
            rstd not of shape (*batch) and float32.
    """
    # BEGIN SOLUTION handout/dropout_add_layernorm.md
    _check_inputs(p, summed, weight)
    _check_like(summed, grad_y)
    _check_statistics(summed, mean, rstd)
    d = summed.shape[-1]
    grad_y_rows, summed_rows = grad_y.reshape(-1, d), summed.reshape(-1, d)
    mean_rows, rstd_rows = mean.reshape(-1), rstd.reshape(-1)
    n_rows = summed_rows.shape[0]
    sizes, n_row_programs = _backward_sizes(n_rows, d, summed)
    is_one_tile = d <= sizes["D_TILE_SIZE"]

    grad_x, grad_residual = (summed_rows.new_empty(n_rows, d) for _ in range(2))
    partials = summed_rows.new_empty(2, n_row_programs, d, dtype=torch.float32)
    row_means = summed_rows.new_empty(2, 0 if is_one_tile else n_rows, dtype=torch.float32)
    inputs = grad_y_rows, summed_rows, weight, mean_rows, rstd_rows
    strides = [stride for tensor in inputs for stride in tensor.stride()]
    if n_rows > 0 and not is_one_tile:
        _row_means_kernel[(n_rows,)](*inputs, row_means, *strides, n_rows, d, D_TILE_SIZE=2048, num_warps=4)
    if n_rows > 0:
        _backward_kernel[(n_row_programs, triton.cdiv(d, sizes["D_TILE_SIZE"]))](
            *inputs, row_means, grad_x, grad_residual, partials, *strides,
            n_rows, d, float(p), 1 / (1 - p), seed,
            IS_ONE_TILE=is_one_tile, **sizes,
        )  # fmt: skip
    grad_weight, grad_bias = partials.sum(dim=1).to(weight.dtype)
    return grad_x.reshape(summed.shape), grad_residual.reshape(summed.shape), grad_weight, grad_bias
    # END SOLUTION


def dropout_add_layernorm(
    x: Float[Tensor, "*batch d"],
    residual: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    bias: Float[Tensor, " d"],
    p: float = 0.1,
    seed: int = 0,
    eps: float = 1e-5,
) -> Float[Tensor, "*batch d"]:
    """y of the forward pass, differentiable in x, residual, weight and bias through the backward one.

    Keeps summed, mean and rstd for it, and nothing of the mask. Backward may run twice (`retain_graph=True`), for some
    of the inputs only, and on an expanded gradient.

    Raises:
        ValueError: as `dropout_add_layernorm_forward`.
    """
    # BEGIN SOLUTION handout/dropout_add_layernorm.md
    return DropoutAddLayerNorm.apply(x, residual, weight, bias, p, seed, eps)
    # END SOLUTION


# BEGIN SOLUTION
def _check_inputs(p: float, x: Tensor, *vectors: Tensor) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"expected 0 <= p < 1, got {p}")
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"expected rows of shape (..., d) with d >= 1, got {tuple(x.shape)}")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected float32, bfloat16 or float16, got {x.dtype}")
    for vector in vectors:
        if vector.shape != x.shape[-1:]:
            raise ValueError(f"expected weight and bias of shape {tuple(x.shape[-1:])}, got {tuple(vector.shape)}")
        if vector.dtype != x.dtype or vector.device != x.device:
            raise ValueError(f"expected {x.dtype} on {x.device}, got {vector.dtype} on {vector.device}")


def _check_like(x: Tensor, other: Tensor) -> None:
    if other.shape != x.shape or other.dtype != x.dtype or other.device != x.device:
        raise ValueError(
            f"expected {tuple(x.shape)} of {x.dtype} on {x.device}, "
            f"got {tuple(other.shape)} of {other.dtype} on {other.device}"
        )


def _check_statistics(x: Tensor, *statistics: Tensor) -> None:
    for per_row in statistics:
        if per_row.shape != x.shape[:-1]:
            raise ValueError(f"expected mean and rstd of shape {tuple(x.shape[:-1])}, got {tuple(per_row.shape)}")
        if per_row.dtype != torch.float32 or per_row.device != x.device:
            raise ValueError(f"expected float32 on {x.device}, got {per_row.dtype} on {per_row.device}")


def _forward_sizes(d: int) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps."""
    d_tile_size = triton.next_power_of_2(d) if d <= MAX_ONE_TILE_D else FORWARD_WIDE_D_TILE_SIZE
    return max(1, FORWARD_TILE_ELEMENTS // d_tile_size), d_tile_size, max(4, d_tile_size // 512)


def _backward_sizes(n_rows: int, d: int, x: Tensor) -> tuple[dict[str, int], int]:
    """What the backward kernel is launched with, and how many programs share the rows."""
    fitting = [sizes for widest, sizes in BACKWARD_SIZES.items() if d <= widest]
    elements, num_warps, programs = fitting[0] if fitting else BACKWARD_WIDE_SIZES
    d_tile_size = triton.next_power_of_2(d) if fitting else BACKWARD_WIDE_D_TILE_SIZE
    sizes = {"ROWS_TILE_SIZE": elements // d_tile_size, "D_TILE_SIZE": d_tile_size, "num_warps": num_warps}
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    most = max(1, programs * multiprocessors // triton.cdiv(d, d_tile_size))
    return sizes, min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)


# END SOLUTION
class DropoutAddLayerNorm(torch.autograd.Function):
    """Saves summed, weight, mean and rstd, and of the mask p and the seed."""

    @staticmethod
    def forward(ctx, x, residual, weight, bias, p, seed, eps):
        # BEGIN SOLUTION handout/dropout_add_layernorm.md dropout_add_layernorm
        y, summed, mean, rstd = dropout_add_layernorm_forward(x, residual, weight, bias, p=p, seed=seed, eps=eps)
        ctx.save_for_backward(summed, weight, mean, rstd)
        ctx.p, ctx.seed = p, seed
        return y
        # END SOLUTION

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        # BEGIN SOLUTION handout/dropout_add_layernorm.md dropout_add_layernorm
        summed, weight, mean, rstd = ctx.saved_tensors
        grads = dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=ctx.p, seed=ctx.seed)
        return *grads, None, None, None
        # END SOLUTION


@triton.jit
def _forward_kernel(
    x_ptr, residual_ptr, w_ptr, b_ptr, y_ptr, summed_ptr, mean_ptr, rstd_ptr,
    stride_xr, stride_xd, stride_rr, stride_rd, stride_wd, stride_bd,
    n_rows, d, p, scale, seed, eps,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns twice: for summed, mean and variance, then for y.

    x, residual, y and summed (n_rows, d), w and b (d,), mean and rstd (n_rows,) in float32; results are contiguous.
    scale is 1 / (1 − p). IS_ONE_TILE: d <= D_TILE_SIZE; a program then holds its rows of summed.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    # BEGIN SOLUTION handout/dropout_add_layernorm.md
    rows = tl.program_id(0).to(tl.int64) * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    summed = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    # Every lane has the mean and the squared differences of its own columns (Welford); they are merged at the end.
    lane_mean = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    lane_squares = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    lane_count = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        tile_mask = row_mask[:, None] & col_mask[None, :]
        indices = rows[:, None] * d + cols[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        residual_ptrs = residual_ptr + rows[:, None] * stride_rr + cols[None, :] * stride_rd
        x = tl.load(x_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptrs, mask=tile_mask, other=0.0).to(tl.float32)
        keep = tl.rand(seed, indices) >= p
        summed = residual + tl.where(keep, x * scale, 0.0)
        tl.store(summed_ptr + indices, summed.to(summed_ptr.dtype.element_ty), mask=tile_mask)
        if not IS_ONE_TILE:
            lane_count += tl.where(col_mask, 1.0, 0.0)
            step = tl.where(tile_mask, summed - lane_mean, 0.0)
            lane_mean += step * (1.0 / (start // D_TILE_SIZE + 1).to(tl.float32))  # one division for all lanes
            lane_squares += step * (summed - lane_mean)
    if IS_ONE_TILE:
        mean = tl.sum(summed, axis=1) / d
        differences = tl.where((tl.arange(0, D_TILE_SIZE) < d)[None, :], summed - mean[:, None], 0.0)
        variance = tl.sum(differences * differences, axis=1) / d
    else:
        mean = tl.sum(lane_mean * lane_count[None, :], axis=1) / d
        between = lane_mean - mean[:, None]
        variance = tl.sum(lane_squares + between * between * lane_count[None, :], axis=1) / d
    rstd = 1.0 / tl.sqrt_rn(variance + eps)  # (ROWS_TILE_SIZE,)
    tl.store(mean_ptr + rows, mean, mask=row_mask)
    tl.store(rstd_ptr + rows, rstd, mask=row_mask)

    if not IS_ONE_TILE:
        tl.debug_barrier()  # all threads have stored summed
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        tile_mask = row_mask[:, None] & col_mask[None, :]
        indices = rows[:, None] * d + cols[None, :]
        if not IS_ONE_TILE:
            summed = tl.load(summed_ptr + indices, mask=tile_mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
        b = tl.load(b_ptr + cols * stride_bd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)
        y = (summed - mean[:, None]) * rstd[:, None] * w[None, :] + b[None, :]
        tl.store(y_ptr + indices, y.to(y_ptr.dtype.element_ty), mask=tile_mask)
    # END SOLUTION


# BEGIN SOLUTION
@triton.jit
def _backward_kernel(
    grad_y_ptr, summed_ptr, w_ptr, mean_ptr, rstd_ptr, row_means_ptr, grad_x_ptr, grad_residual_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_sr, stride_sd, stride_wd, stride_mr, stride_rstdr,
    n_rows, d, p, scale, seed,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a column tile and a share of the row tiles: every n_row_programs-th of them.

    grad_y, summed, grad_x and grad_residual (n_rows, d), w (d,), mean and rstd (n_rows,), partials
    (2, n_row_programs, d) in float32: the parts of grad_weight and grad_bias that come from the rows of one program.
    IS_ONE_TILE: d <= D_TILE_SIZE; a program then finds mean_j(h_ij) and mean_j(h_ij x̂_ij) by itself. Where a row spans
    several tiles, and so several programs, they take them from row_means (2, n_rows), which another kernel has filled.
    Grid: (n_row_programs, ⌈d / D_TILE_SIZE⌉).
    """
    row_program = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1).to(tl.int64) * D_TILE_SIZE + tl.arange(0, D_TILE_SIZE)
    col_mask = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)  # (D_TILE_SIZE,)

    grad_w = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    grad_b = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
    step = tl.num_programs(0) * ROWS_TILE_SIZE
    for start in range(row_program * ROWS_TILE_SIZE, n_rows, step):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        tile_mask = row_mask[:, None] & col_mask[None, :]
        indices = rows[:, None] * d + cols[None, :]
        # Zeros of grad_y past the last row and column add nothing to any sum.
        mean = tl.load(mean_ptr + rows * stride_mr, mask=row_mask, other=0.0)  # (ROWS_TILE_SIZE,)
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=row_mask, other=0.0)  # (ROWS_TILE_SIZE,)
        grad_y = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        summed = tl.load(  # (ROWS_TILE_SIZE, D_TILE_SIZE)
            summed_ptr + rows[:, None] * stride_sr + cols[None, :] * stride_sd, mask=tile_mask, other=0.0
        ).to(tl.float32)
        x_hat = (summed - mean[:, None]) * rstd[:, None]
        h = w[None, :] * grad_y
        grad_w += grad_y * x_hat
        grad_b += grad_y
        if IS_ONE_TILE:
            h_mean = tl.sum(h, axis=1) / d  # (ROWS_TILE_SIZE,)
            along = tl.sum(h * x_hat, axis=1) / d  # (ROWS_TILE_SIZE,)
        else:
            h_mean = tl.load(row_means_ptr + rows, mask=row_mask, other=0.0)
            along = tl.load(row_means_ptr + n_rows + rows, mask=row_mask, other=0.0)
        grad_residual = rstd[:, None] * (h - h_mean[:, None] - x_hat * along[:, None])
        keep = tl.rand(seed, indices) >= p
        grad_x = tl.where(keep, grad_residual * scale, 0.0)
        dtype = grad_x_ptr.dtype.element_ty
        tl.store(grad_residual_ptr + indices, grad_residual.to(dtype), mask=tile_mask)
        tl.store(grad_x_ptr + indices, grad_x.to(dtype), mask=tile_mask)
    partial_ptrs = partials_ptr + row_program * d + cols
    tl.store(partial_ptrs, tl.sum(grad_w, axis=0), mask=col_mask)
    tl.store(partial_ptrs + tl.num_programs(0) * d, tl.sum(grad_b, axis=0), mask=col_mask)


@triton.jit
def _row_means_kernel(
    grad_y_ptr, summed_ptr, w_ptr, mean_ptr, rstd_ptr, row_means_ptr,
    stride_gyr, stride_gyd, stride_sr, stride_sd, stride_wd, stride_mr, stride_rstdr,
    n_rows, d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """row_means_0i = mean_j(h_ij) and row_means_1i = mean_j(h_ij x̂_ij), for rows wider than a tile.

    Arguments as in the backward kernel. Grid: (n_rows,).
    """
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row * stride_mr)
    rstd = tl.load(rstd_ptr + row * stride_rstdr)
    h_sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    along_sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
        grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=col_mask, other=0.0).to(tl.float32)
        summed = tl.load(summed_ptr + row * stride_sr + cols * stride_sd, mask=col_mask, other=0.0).to(tl.float32)
        h_sums += w * grad_y
        along_sums += w * grad_y * (summed - mean) * rstd
    tl.store(row_means_ptr + row, tl.sum(h_sums, axis=0) / d)
    tl.store(row_means_ptr + n_rows + row, tl.sum(along_sums, axis=0) / d)


# END SOLUTION
