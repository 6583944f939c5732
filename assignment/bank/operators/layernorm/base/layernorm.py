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

MAX_ONE_TILE_D = 8192  # the forward walks twice along wider rows, the second time through the cache
FORWARD_TILE_ELEMENTS = 2048  # of several short rows, and at most of them for a warp
FORWARD_WIDE_SIZES = (2048, 8)  # columns of a tile, and warps
MIN_ROWS_PER_PROGRAM = 64  # keeps what the partial gradients of weight and bias cost below 5 % of the traffic
BACKWARD_SIZES = {  # by the widest row: elements of a tile, warps, programs a multiprocessor
    1024: (4096, 4, 2),
    8192: (8192, 8, 1),
}
BACKWARD_WIDE_SIZES = (2048, 4, 8)  # rows of x and grad_y that do not fit into a program's registers
BACKWARD_WIDE_D_TILE_SIZE = 1024
MAX_PIPELINED_BYTES = tl.constexpr(16384)  # of a tile: three of x and of grad_y fit in shared memory


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
    _check_inputs(x, weight, bias)
    x_rows = x.reshape(-1, x.shape[-1])
    n_rows, d = x_rows.shape
    y = x_rows.new_empty(n_rows, d)
    mean, rstd = (x_rows.new_empty(n_rows, dtype=torch.float32) for _ in range(2))
    rows_tile_size, d_tile_size, num_warps = _forward_sizes(d)
    if n_rows > 0:
        _layernorm_forward_kernel[(triton.cdiv(n_rows, rows_tile_size),)](
            x_rows, weight, bias, y, mean, rstd,
            *x_rows.stride(), *weight.stride(), *bias.stride(), *y.stride(), *mean.stride(), *rstd.stride(),
            n_rows, d, eps,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
            num_warps=num_warps,
        )  # fmt: skip
    return y.reshape(x.shape), mean.reshape(x.shape[:-1]), rstd.reshape(x.shape[:-1])


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
    _check_inputs(x, weight)
    _check_gradient(grad_y, mean, rstd, x)
    d = x.shape[-1]
    grad_y_rows, x_rows = grad_y.reshape(-1, d), x.reshape(-1, d)
    mean_rows, rstd_rows = mean.reshape(-1), rstd.reshape(-1)
    n_rows = x_rows.shape[0]
    sizes, n_row_programs = _backward_sizes(n_rows, d, x)
    is_one_tile = d <= sizes["D_TILE_SIZE"]

    grad_x = x_rows.new_empty(n_rows, d)
    partials = x_rows.new_empty(2, n_row_programs, d, dtype=torch.float32)
    row_means = x_rows.new_empty(2, 0 if is_one_tile else n_rows, dtype=torch.float32)
    inputs = grad_y_rows, x_rows, weight, mean_rows, rstd_rows
    strides = [stride for tensor in inputs for stride in tensor.stride()]
    if n_rows > 0 and not is_one_tile:
        _layernorm_row_means_kernel[(n_rows,)](
            *inputs, row_means, *strides, *row_means.stride(), d, D_TILE_SIZE=2048, num_warps=4
        )
    if n_rows > 0:
        _layernorm_backward_kernel[(n_row_programs, triton.cdiv(d, sizes["D_TILE_SIZE"]))](
            *inputs, row_means, grad_x, partials,
            *strides, *row_means.stride(), *grad_x.stride(), *partials.stride(),
            n_rows, d,
            IS_ONE_TILE=is_one_tile, **sizes,
        )  # fmt: skip
    grad_weight, grad_bias = partials.sum(dim=1).to(weight.dtype)
    return grad_x.reshape(x.shape), grad_weight, grad_bias


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
    return LayerNorm.apply(x, weight, bias, eps)


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


def _forward_sizes(d: int) -> tuple[int, int, int]:
    """Rows and columns of a tile, and warps."""
    if d > MAX_ONE_TILE_D:
        return 1, *FORWARD_WIDE_SIZES
    d_tile_size = triton.next_power_of_2(d)
    return max(1, FORWARD_TILE_ELEMENTS // d_tile_size), d_tile_size, max(4, d_tile_size // 1024)


def _backward_sizes(n_rows: int, d: int, x: Tensor) -> tuple[dict[str, int], int]:
    """What the backward kernel is launched with, and how many programs share the rows."""
    fitting = [sizes for widest, sizes in BACKWARD_SIZES.items() if d <= widest]
    elements, num_warps, programs = fitting[0] if fitting else BACKWARD_WIDE_SIZES
    d_tile_size = triton.next_power_of_2(d) if fitting else BACKWARD_WIDE_D_TILE_SIZE
    sizes = {"ROWS_TILE_SIZE": elements // d_tile_size, "D_TILE_SIZE": d_tile_size, "num_warps": num_warps}
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    most = max(1, programs * multiprocessors // triton.cdiv(d, d_tile_size))
    return sizes, min(triton.cdiv(n_rows, MIN_ROWS_PER_PROGRAM), most)


class LayerNorm(torch.autograd.Function):
    """Saves x, weight, mean and rstd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y, mean, rstd = layernorm_forward(x, weight, bias, eps=eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y):
        return *layernorm_backward(grad_y, *ctx.saved_tensors), None


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
        # Every lane has the mean and the squared differences of its own columns (Welford); they are merged at the end.
        lane_mean = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
        lane_squares = tl.zeros((ROWS_TILE_SIZE, D_TILE_SIZE), dtype=tl.float32)
        lane_count = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
        for start in range(0, d, D_TILE_SIZE):
            cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
            col_mask = cols < d
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            tile_mask = row_mask[:, None] & col_mask[None, :]
            x = tl.load(x_ptrs, mask=tile_mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            lane_count += tl.where(col_mask, 1.0, 0.0)
            step = tl.where(tile_mask, x - lane_mean, 0.0)
            lane_mean += step * (1.0 / (start // D_TILE_SIZE + 1).to(tl.float32))  # one division for all lanes
            lane_squares += step * (x - lane_mean)
        mean = tl.sum(lane_mean * lane_count[None, :], axis=1) / d
        between = lane_mean - mean[:, None]
        variance = tl.sum(lane_squares + between * between * lane_count[None, :], axis=1) / d
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


@triton.jit
def _layernorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, row_means_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_mr, stride_sr, stride_rk, stride_rr,
    stride_gxr, stride_gxd, stride_pk, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a column tile and a share of the row tiles: every n_row_programs-th of them.

    grad_y, x and grad_x (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_row_programs, d) in float32: the
    parts of grad_weight and grad_bias that come from the rows of one program.
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
        if IS_ONE_TILE:
            h_mean = tl.sum(h, axis=1) / d  # (ROWS_TILE_SIZE,)
            along = tl.sum(h * x_hat, axis=1) / d  # (ROWS_TILE_SIZE,)
        else:
            h_mean = tl.load(row_means_ptr + rows * stride_rr, mask=row_mask, other=0.0)
            along = tl.load(row_means_ptr + stride_rk + rows * stride_rr, mask=row_mask, other=0.0)
        grad_x = rstd[:, None] * (h - h_mean[:, None] - x_hat * along[:, None])
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=tile_mask)
    partial_ptrs = partials_ptr + row_program * stride_pr + cols * stride_pd
    tl.store(partial_ptrs, tl.sum(grad_w, axis=0), mask=col_mask)
    tl.store(partial_ptrs + stride_pk, tl.sum(grad_b, axis=0), mask=col_mask)


@triton.jit
def _layernorm_row_means_kernel(
    grad_y_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, row_means_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_mr, stride_sr, stride_rk, stride_rr,
    d,
    D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """row_means_0i = mean_j(h_ij) and row_means_1i = mean_j(h_ij x̂_ij), for rows wider than a tile.

    Arguments as in the backward kernel. Grid: (n_rows,).
    """
    row = tl.program_id(0).to(tl.int64)
    mean = tl.load(mean_ptr + row * stride_mr)
    rstd = tl.load(rstd_ptr + row * stride_sr)
    h_sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    along_sums = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
        grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=col_mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=col_mask, other=0.0).to(tl.float32)
        h_sums += w * grad_y
        along_sums += w * grad_y * (x - mean) * rstd
    tl.store(row_means_ptr + row * stride_rr, tl.sum(h_sums, axis=0) / d)
    tl.store(row_means_ptr + stride_rk + row * stride_rr, tl.sum(along_sums, axis=0) / d)
