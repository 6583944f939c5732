"""A table of tiles by the host, a line a tile; the weight gradient added up by atomics in float32."""

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
    return _multiply(x, weight, *_table(group_sizes))


def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    _check(x, weight, group_sizes, grad_y)
    table, n_tiles = _table(group_sizes)
    summed = torch.zeros(weight.shape, dtype=torch.float32, device=x.device)
    k, n = weight.shape[1:]
    if n_tiles:
        _weight_kernel[(n_tiles, triton.cdiv(k, N_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE))](
            x, grad_y, table, summed, *x.stride(), *grad_y.stride(), k, n,
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
        )  # fmt: skip
    return _multiply(grad_y, weight.transpose(1, 2), table, n_tiles), summed.to(x.dtype)


def _table(group_sizes):
    """The expert, the first row and the end of the group of each tile of rows."""
    sizes = group_sizes.to(torch.int64)
    tiles = (sizes + M_TILE_SIZE - 1) // M_TILE_SIZE
    n_tiles = int(tiles.sum())
    expert = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), tiles)
    in_group = torch.arange(n_tiles, device=sizes.device) - (tiles.cumsum(0) - tiles)[expert]
    ends = sizes.cumsum(0)
    first = (ends - sizes)[expert] + in_group * M_TILE_SIZE
    return torch.stack([expert, first, ends[expert]], dim=1), n_tiles


def _multiply(x, weight, table, n_tiles):
    y = torch.zeros((x.shape[0], weight.shape[2]), dtype=x.dtype, device=x.device)
    k, n = weight.shape[1:]
    if n_tiles:
        _grouped_kernel[(n_tiles, triton.cdiv(n, N_TILE_SIZE))](
            x, weight, table, y, *x.stride(), *weight.stride(), k, n,
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
        )  # fmt: skip
    return y


@triton.jit
def _line(table_ptr):
    line = table_ptr + tl.program_id(0) * 3
    return tl.load(line), tl.load(line + 1), tl.load(line + 2)


@triton.jit
def _grouped_kernel(
    x_ptr, weight_ptr, table_ptr, y_ptr, stride_xm, stride_xk, stride_we, stride_wk, stride_wn, k, n,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    expert, first, end = _line(table_ptr)
    rows = first + tl.arange(0, M_TILE_SIZE)
    cols = tl.program_id(1).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        x_at = x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk
        weight_at = weight_ptr + expert * stride_we + terms[:, None] * stride_wk + cols[None, :] * stride_wn
        x = tl.load(x_at, mask=(rows[:, None] < end) & (terms[None, :] < k), other=0.0)
        weight = tl.load(weight_at, mask=(terms[:, None] < k) & (cols[None, :] < n), other=0.0)
        total = tl.dot(x, weight, total)
    y_at = y_ptr + rows[:, None] * n + cols[None, :]
    tl.store(y_at, total.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (cols[None, :] < n))


@triton.jit
def _weight_kernel(
    x_ptr, grad_y_ptr, table_ptr, summed_ptr, stride_xm, stride_xk, stride_gm, stride_gn, k, n,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    expert, first, end = _line(table_ptr)
    terms = tl.program_id(1).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    cols = tl.program_id(2).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    total = tl.zeros((N_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in tl.static_range(0, M_TILE_SIZE, K_TILE_SIZE):
        rows = first + start + tl.arange(0, K_TILE_SIZE)
        x_at = x_ptr + rows[None, :] * stride_xm + terms[:, None] * stride_xk
        grad_y_at = grad_y_ptr + rows[:, None] * stride_gm + cols[None, :] * stride_gn
        x = tl.load(x_at, mask=(rows[None, :] < end) & (terms[:, None] < k), other=0.0)
        grad_y = tl.load(grad_y_at, mask=(rows[:, None] < end) & (cols[None, :] < n), other=0.0)
        total = tl.dot(x, grad_y, total)
    summed_at = summed_ptr + (expert * k + terms[:, None]) * n + cols[None, :]
    tl.atomic_add(summed_at, total, mask=(terms[:, None] < k) & (cols[None, :] < n))
