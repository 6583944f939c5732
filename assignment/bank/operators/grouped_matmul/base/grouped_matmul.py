"""Products in groups, plainly: a program for each tile of a group, in a grid for the largest group."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32


def grouped_matmul(x, weight, group_sizes):
    _check(x, weight, group_sizes)
    y = torch.zeros((x.shape[0], weight.shape[2]), dtype=x.dtype, device=x.device)
    _multiply(x, weight, group_sizes, y)
    return y


def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    _check(x, weight, group_sizes)
    if grad_y.shape != (x.shape[0], weight.shape[2]) or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like y, got {tuple(grad_y.shape)} of {grad_y.dtype}")
    experts, k, n = weight.shape
    grad_x = torch.zeros((x.shape[0], k), dtype=x.dtype, device=x.device)
    grad_weight = torch.empty((experts, k, n), dtype=x.dtype, device=x.device)
    _multiply(grad_y, weight.mT, group_sizes, grad_x)
    sizes, offsets = _places(group_sizes)
    grid = (triton.cdiv(k, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE), experts)
    _weight_kernel[grid](
        x, grad_y, sizes, offsets, grad_weight,
        x.stride(0), x.stride(1), grad_y.stride(0), grad_y.stride(1),
        k, n,
        M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
    )  # fmt: skip
    return grad_x, grad_weight


def _check(x, weight, group_sizes):
    if (x.ndim, weight.ndim, group_sizes.ndim) != (2, 3, 1) or min(weight.shape) < 1:
        raise ValueError(f"expected two, three and one dimension, got {x.shape}, {weight.shape}, {group_sizes.shape}")
    if x.shape[1] != weight.shape[1] or len(weight) != len(group_sizes):
        raise ValueError(f"expected k and experts alike, got {x.shape}, {weight.shape}, {group_sizes.shape}")
    if x.dtype != weight.dtype or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for both, got {x.dtype} and {weight.dtype}")
    if group_sizes.dtype != torch.int32:
        raise ValueError(f"expected group_sizes in int32, got {group_sizes.dtype}")


def _places(group_sizes):
    """The sizes of all groups, and the rows at which they begin."""
    sizes = group_sizes.contiguous()
    return sizes, torch.cumsum(sizes, 0) - sizes


def _multiply(x, weight, group_sizes, y):
    experts, k, n = weight.shape
    sizes, offsets = _places(group_sizes)
    most = max(sizes.tolist())
    if most > 0:
        grid = (triton.cdiv(most, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE), experts)
        _grouped_kernel[grid](
            x, weight, sizes, offsets, y,
            x.stride(0), x.stride(1), weight.stride(0), weight.stride(1), weight.stride(2),
            k, n, x.shape[0],
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE,
        )  # fmt: skip


@triton.jit
def _grouped_kernel(
    x_ptr, weight_ptr, sizes_ptr, offsets_ptr, y_ptr,
    stride_xm, stride_xk, stride_we, stride_wk, stride_wn,
    k, n, tokens,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(2).to(tl.int64)
    size = tl.load(sizes_ptr + expert)
    first = tl.program_id(0) * M_TILE_SIZE
    if first >= size:
        return
    begin = tl.load(offsets_ptr + expert).to(tl.int64)
    rows = begin + first + tl.arange(0, M_TILE_SIZE)
    cols = tl.program_id(1).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    row_mask = rows[:, None] < begin + size
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        weight_mask = (terms[:, None] < k) & (cols[None, :] < n)
        x = tl.load(
            x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk,
            mask=row_mask & (terms[None, :] < k), other=0.0,
        )  # fmt: skip
        weight = tl.load(
            weight_ptr + expert * stride_we + terms[:, None] * stride_wk + cols[None, :] * stride_wn,
            mask=weight_mask, other=0.0,
        )  # fmt: skip
        total = tl.dot(x, weight, total)
    y_ptrs = y_ptr + rows[:, None] * n + cols[None, :]
    tl.store(y_ptrs, total.to(y_ptr.dtype.element_ty), mask=row_mask & (cols[None, :] < n))


@triton.jit
def _weight_kernel(
    x_ptr, grad_y_ptr, sizes_ptr, offsets_ptr, grad_weight_ptr,
    stride_xm, stride_xk, stride_gm, stride_gn,
    k, n,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(2)
    begin = tl.load(offsets_ptr + expert).to(tl.int64)
    end = begin + tl.load(sizes_ptr + expert)
    terms = tl.program_id(0).to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = tl.program_id(1).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    summed = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(begin, end, K_TILE_SIZE):
        rows = start + tl.arange(0, K_TILE_SIZE)
        x = tl.load(
            x_ptr + rows[None, :] * stride_xm + terms[:, None] * stride_xk,
            mask=(rows[None, :] < end) & (terms[:, None] < k), other=0.0,
        )  # fmt: skip
        grad_y = tl.load(
            grad_y_ptr + rows[:, None] * stride_gm + cols[None, :] * stride_gn,
            mask=(rows[:, None] < end) & (cols[None, :] < n), other=0.0,
        )  # fmt: skip
        summed = tl.dot(x, grad_y, summed)
    grad_weight_ptrs = grad_weight_ptr + (expert.to(tl.int64) * k + terms[:, None]) * n + cols[None, :]
    mask = (terms[:, None] < k) & (cols[None, :] < n)
    tl.store(grad_weight_ptrs, summed.to(grad_weight_ptr.dtype.element_ty), mask=mask)
