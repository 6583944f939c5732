"""The product of matrices, plainly: one program a tile, in groups of rows of tiles."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32
GROUP_SIZE = 8


def matmul(a, b):
    _check(a, b)
    k, n = b.shape
    rows = a.reshape(-1, k)
    m = rows.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if m > 0:
        grid = (triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),)
        _matmul_kernel[grid](
            rows, b, c,
            rows.stride(0), rows.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
            m, n, k,
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE, GROUP_SIZE=GROUP_SIZE,
        )  # fmt: skip
    return c.reshape(*a.shape[:-1], n)


def _check(a, b):
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[0] or min(*a.shape[-2:], *b.shape) < 1:
        raise ValueError(f"expected (..., m, k) and (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype != b.dtype or a.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for both, got {a.dtype} and {b.dtype}")


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, K_TILE_SIZE: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    n_row_tiles = tl.cdiv(m, M_TILE_SIZE)
    in_group = GROUP_SIZE * tl.cdiv(n, N_TILE_SIZE)
    first_row_tile = tl.program_id(0) // in_group * GROUP_SIZE
    n_rows_here = tl.minimum(n_row_tiles - first_row_tile, GROUP_SIZE)
    row_tile = first_row_tile + tl.program_id(0) % in_group % n_rows_here
    col_tile = tl.program_id(0) % in_group // n_rows_here
    rows = row_tile.to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, K_TILE_SIZE):
        terms = start + tl.arange(0, K_TILE_SIZE).to(tl.int64)
        a_mask = (rows[:, None] < m) & (terms[None, :] < k)
        b_mask = (terms[:, None] < k) & (cols[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * stride_am + terms[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + terms[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    c_mask = (rows[:, None] < m) & (cols[None, :] < n)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=c_mask)
