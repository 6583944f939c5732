"""Persistent, with a binary search for the group of each tile in the kernel; an atomic counter hands out the tiles."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32


def _check(x, weight, group_sizes, grad_y=None):
    if (x.ndim, weight.ndim, group_sizes.ndim) != (2, 3, 1) or min(weight.shape) < 1:
        raise ValueError("expected x of two dimensions, weight of three, group_sizes of one")
    if x.shape[1] != weight.shape[1] or weight.shape[0] != group_sizes.shape[0]:
        raise ValueError(f"expected k and experts alike, got {x.shape}, {weight.shape}, {group_sizes.shape}")
    if x.dtype != weight.dtype or group_sizes.dtype != torch.int32:
        raise ValueError(f"expected one dtype, and sizes in int32, got {x.dtype}, {weight.dtype}, {group_sizes.dtype}")
    if grad_y is not None and (grad_y.shape != (x.shape[0], weight.shape[2]) or grad_y.dtype != x.dtype):
        raise ValueError(f"expected grad_y like y, got {grad_y.shape}")


def grouped_matmul(x, weight, group_sizes):
    _check(x, weight, group_sizes)
    return _multiply(x, weight, group_sizes)


def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    _check(x, weight, group_sizes, grad_y)
    experts, k, n = weight.shape
    grad_weight = torch.empty((experts, k, n), dtype=x.dtype, device=x.device)
    grid = (min(experts * triton.cdiv(k, N_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE), _programs(x)),)
    ends = _ends(group_sizes)
    _weight_kernel[grid](
        x, grad_y, ends, grad_weight, *x.stride(), *grad_y.stride(), experts, k, n,
        N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
    )  # fmt: skip
    return _multiply(grad_y, weight.mT, group_sizes), grad_weight


def _programs(x):
    return torch.cuda.get_device_properties(x.device).multi_processor_count


def _ends(group_sizes):
    """Where each group ends, behind a zero."""
    return torch.cat([group_sizes.new_zeros(1), group_sizes.cumsum(0, dtype=torch.int32)])


def _multiply(x, weight, group_sizes):
    y = x.new_zeros(x.shape[0], weight.shape[2])
    experts, k, n = weight.shape
    tiles = torch.div(group_sizes + M_TILE_SIZE - 1, M_TILE_SIZE, rounding_mode="floor").to(torch.int32)
    queue = torch.zeros(1, dtype=torch.int32, device=x.device)
    _grouped_kernel[(_programs(x),)](
        x, weight, _ends(group_sizes), _ends(tiles), queue, y, *x.stride(), *weight.stride(), experts, k, n,
        M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
    )  # fmt: skip
    return y


@triton.jit
def _grouped_kernel(
    x_ptr, weight_ptr, ends_ptr, tiles_ptr, queue_ptr, y_ptr,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn, experts, k, n,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    n_cols = tl.cdiv(n, N_TILE_SIZE)
    n_tiles = tl.load(tiles_ptr + experts) * n_cols
    tile = tl.atomic_add(queue_ptr, 1)
    while tile < n_tiles:
        row_tile = tile // n_cols
        low, high = 0 * tile, 0 * tile + experts
        while high - low > 1:
            middle = (low + high) // 2
            is_behind = tl.load(tiles_ptr + middle) <= row_tile
            low = tl.where(is_behind, middle, low)
            high = tl.where(is_behind, high, middle)
        first = tl.load(ends_ptr + low) + (row_tile - tl.load(tiles_ptr + low)) * M_TILE_SIZE
        _tile(
            x_ptr, weight_ptr, y_ptr, stride_xm, stride_xk, stride_we, stride_wk, stride_wn, k, n,
            low, first, tl.load(ends_ptr + low + 1), tile % n_cols, M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE,
        )  # fmt: skip
        tile = tl.atomic_add(queue_ptr, 1)


@triton.jit
def _tile(
    x_ptr, weight_ptr, y_ptr, stride_xm, stride_xk, stride_we, stride_wk, stride_wn, k, n, expert, first, end, col_tile,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows = first.to(tl.int64) + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        x_at = x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk
        weight_at = (
            weight_ptr + expert.to(tl.int64) * stride_we + terms[:, None] * stride_wk + cols[None, :] * stride_wn
        )
        x = tl.load(x_at, mask=(rows[:, None] < end) & (terms[None, :] < k), other=0.0)
        weight = tl.load(weight_at, mask=(terms[:, None] < k) & (cols[None, :] < n), other=0.0)
        total += tl.dot(x, weight)
    y_at = y_ptr + rows[:, None] * n + cols[None, :]
    tl.store(y_at, total.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < n))


@triton.jit
def _weight_kernel(
    x_ptr, grad_y_ptr, ends_ptr, grad_weight_ptr, stride_xm, stride_xk, stride_gm, stride_gn, experts, k, n,
    N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    n_k, n_n = tl.cdiv(k, N_TILE_SIZE), tl.cdiv(n, N_TILE_SIZE)
    for tile in range(tl.program_id(0), experts * n_k * n_n, tl.num_programs(0)):
        expert = (tile // (n_k * n_n)).to(tl.int64)
        first, end = tl.load(ends_ptr + expert), tl.load(ends_ptr + expert + 1)
        terms = (tile // n_n % n_k).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
        cols = (tile % n_n).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
        total = tl.zeros((N_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
        for start in range(first, end, K_TILE_SIZE):
            rows = (start + tl.arange(0, K_TILE_SIZE)).to(tl.int64)
            x_at = x_ptr + rows[None, :] * stride_xm + terms[:, None] * stride_xk
            grad_y_at = grad_y_ptr + rows[:, None] * stride_gm + cols[None, :] * stride_gn
            x = tl.load(x_at, mask=(rows[None, :] < end) & (terms[:, None] < k), other=0.0)
            grad_y = tl.load(grad_y_at, mask=(rows[:, None] < end) & (cols[None, :] < n), other=0.0)
            total += tl.dot(x, grad_y)
        at = grad_weight_ptr + (expert * k + terms[:, None]) * n + cols[None, :]
        tl.store(at, total.to(grad_weight_ptr.dtype.element_ty), mask=(terms[:, None] < k) & (cols[None, :] < n))
