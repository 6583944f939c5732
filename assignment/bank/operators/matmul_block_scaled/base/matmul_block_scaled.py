"""Quantization by blocks and the block-scaled product, plainly: one program a tile, in groups of rows of tiles."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, BLOCK = 64, 64, 128
GROUP_SIZE = 8
ROWS = 32


def quantize_block_scaled(x, block=(1, BLOCK)):
    if x.ndim != 2 or x.shape[1] < 1 or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected a matrix of 16 or 32 bits, got {tuple(x.shape)}, {x.dtype}")
    (n_rows, d), (height, width) = x.shape, block
    values = torch.empty((n_rows, d), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((triton.cdiv(n_rows, height), triton.cdiv(d, width)), dtype=torch.float32, device=x.device)
    if n_rows > 0:
        rows = max(height, ROWS)
        _quantize_kernel[(triton.cdiv(n_rows, rows), triton.cdiv(d, width))](
            x, values, scales, x.stride(0), x.stride(1), values.stride(0), scales.stride(0),
            n_rows, d, ROWS=rows, HEIGHT=height, WIDTH=width,
        )  # fmt: skip
    return values, scales


def matmul_block_scaled(a, a_scales, b, b_scales):
    _check(a, a_scales, b, b_scales)
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    if m > 0:
        grid = (triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),)
        _matmul_kernel[grid](
            a, a_scales, b, b_scales, c,
            a.stride(0), a.stride(1), a_scales.stride(0), a_scales.stride(1),
            b.stride(0), b.stride(1), b_scales.stride(0), b_scales.stride(1), c.stride(0), c.stride(1),
            m, n, k,
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, BLOCK=BLOCK, GROUP_SIZE=GROUP_SIZE,
        )  # fmt: skip
    return c


def _check(a, a_scales, b, b_scales):
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or min(*a.shape[1:], *b.shape) < 1:
        raise ValueError(f"expected (m, k) and (n, k), got {tuple(a.shape)} and {tuple(b.shape)}")
    k_blocks = triton.cdiv(a.shape[1], BLOCK)
    if a_scales.shape != (a.shape[0], k_blocks) or b_scales.shape != (triton.cdiv(b.shape[0], BLOCK), k_blocks):
        raise ValueError(f"expected a scale a block, got {tuple(a_scales.shape)} and {tuple(b_scales.shape)}")
    if a.dtype != torch.float8_e4m3fn or b.dtype != a.dtype:
        raise ValueError(f"expected float8 e4m3, got {a.dtype} and {b.dtype}")
    if a_scales.dtype != torch.float32 or b_scales.dtype != torch.float32:
        raise ValueError(f"expected scales in float32, got {a_scales.dtype} and {b_scales.dtype}")


@triton.jit
def _quantize_kernel(
    x_ptr, values_ptr, scales_ptr, stride_xr, stride_xd, stride_v, stride_s, n_rows, d,
    ROWS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    mask = (rows[:, None] < n_rows) & (columns[None, :] < d)
    x_ptrs = x_ptr + rows[:, None] * stride_xr + columns[None, :] * stride_xd
    x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
    size = tl.abs(x)
    largest = tl.max(tl.reshape(tl.max(size, axis=1), (ROWS // HEIGHT, HEIGHT)), axis=1)
    scale = tl.where(largest > 0, largest / 448.0, 1.0)
    of_rows = tl.reshape(tl.broadcast_to(scale[:, None], (ROWS // HEIGHT, HEIGHT)), (ROWS,))
    value = x / of_rows[:, None]
    value = value.to(tl.float8e4nv)
    tl.store(values_ptr + rows[:, None] * stride_v + columns[None, :], value, mask=mask)
    blocks = tl.program_id(0) * (ROWS // HEIGHT) + tl.arange(0, ROWS // HEIGHT)
    tl.store(scales_ptr + blocks * stride_s + tl.program_id(1), scale, mask=blocks < tl.cdiv(n_rows, HEIGHT))


@triton.jit
def _matmul_kernel(
    a_ptr, a_scales_ptr, b_ptr, b_scales_ptr, c_ptr,
    stride_am, stride_ak, stride_asm, stride_ask, stride_bn, stride_bk, stride_bsn, stride_bsk, stride_cm, stride_cn,
    m, n, k,
    M_TILE_SIZE: tl.constexpr, N_TILE_SIZE: tl.constexpr, BLOCK: tl.constexpr, GROUP_SIZE: tl.constexpr,
):  # fmt: skip
    n_row_tiles = tl.cdiv(m, M_TILE_SIZE)
    in_group = GROUP_SIZE * tl.cdiv(n, N_TILE_SIZE)
    first_row_tile = tl.program_id(0) // in_group * GROUP_SIZE
    n_rows_here = tl.minimum(n_row_tiles - first_row_tile, GROUP_SIZE)
    row_tile = first_row_tile + tl.program_id(0) % in_group % n_rows_here
    col_tile = tl.program_id(0) % in_group // n_rows_here
    rows = row_tile.to(tl.int64) * M_TILE_SIZE + tl.arange(0, M_TILE_SIZE)
    cols = col_tile.to(tl.int64) * N_TILE_SIZE + tl.arange(0, N_TILE_SIZE)
    a_scale_ptrs = a_scales_ptr + rows * stride_asm
    b_scale_ptrs = b_scales_ptr + cols // BLOCK * stride_bsn
    total = tl.zeros((M_TILE_SIZE, N_TILE_SIZE), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        terms = start + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (rows[:, None] < m) & (terms[None, :] < k)
        b_mask = (terms[:, None] < k) & (cols[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * stride_am + terms[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + terms[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        block = start // BLOCK
        a_scale = tl.load(a_scale_ptrs + block * stride_ask, mask=rows < m, other=0.0)
        b_scale = tl.load(b_scale_ptrs + block * stride_bsk, mask=cols < n, other=0.0)
        part = tl.dot(a, b)
        total += part * a_scale[:, None] * b_scale[None, :]
    c_mask = (rows[:, None] < m) & (cols[None, :] < n)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(tl.bfloat16), mask=c_mask)
