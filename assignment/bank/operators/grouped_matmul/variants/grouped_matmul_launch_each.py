"""A launch for each group, in a loop of Python that reads the sizes."""

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
    y = torch.zeros(x.shape[0], weight.shape[2], dtype=x.dtype, device=x.device)
    first = 0
    for expert, size in enumerate(group_sizes.tolist()):
        _multiply(x[first : first + size], weight[expert], y[first : first + size])
        first += size
    return y


def grouped_matmul_backward(grad_y, x, weight, group_sizes):
    _check(x, weight, group_sizes, grad_y)
    grad_x = torch.zeros_like(x, memory_format=torch.contiguous_format)
    grad_weight = torch.zeros(weight.shape, dtype=x.dtype, device=x.device)
    first = 0
    for expert in range(len(group_sizes)):
        rows = slice(first, first := first + group_sizes[expert].item())
        _multiply(grad_y[rows], weight[expert].T, grad_x[rows])
        _multiply(x[rows].T, grad_y[rows], grad_weight[expert])
    return grad_x, grad_weight


def _multiply(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    if m > 0 and k > 0:
        grid = (triton.cdiv(m, M_TILE_SIZE), triton.cdiv(n, N_TILE_SIZE))
        _matmul_kernel[grid](
            a, b, c, *a.stride(), *b.stride(), *c.stride(), m, n, k, M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE
        )


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)[:, None]
    cols = tl.program_id(1).to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)[None, :]
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        a_at = a_ptr + rows * stride_am + terms[None, :] * stride_ak
        b_at = b_ptr + terms[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_at, mask=(rows < m) & (terms[None, :] < k), other=0.0)
        b = tl.load(b_at, mask=(terms[:, None] < k) & (cols < n), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(
        c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=(rows < m) & (cols < n)
    )
