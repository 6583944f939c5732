"""By descriptors that kernels make, of copies with aligned rows; a program takes one tile after another."""

import torch
import triton
import triton.language as tl


def quantize_block_scaled(x, block=(1, 128)):
    _check_rows(x)
    (rows, d), (height, width) = x.shape, block
    values = torch.empty(rows, d, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(triton.cdiv(rows, height), triton.cdiv(d, width), device=x.device)
    if rows:
        _quantize[(triton.cdiv(rows, 128),)](
            x, values, scales, rows, d, *x.stride(), scales.stride(0), H=height, W=width, num_warps=8
        )
    return values, scales


def matmul_block_scaled(a, a_scales, b, b_scales):
    _check(a, a_scales, b, b_scales)
    (m, k), n = a.shape, b.shape[0]
    c = _rows(a, m, n, torch.bfloat16)
    if m:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        a, b = _padded(a), _padded(b)
        programs = torch.cuda.get_device_properties(a.device).multi_processor_count
        _product[(min(programs, triton.cdiv(m, 64) * triton.cdiv(n, 128)),)](
            a, a_scales, b, b_scales, c, m, n, k, a.stride(0), *a_scales.stride(), b.stride(0), *b_scales.stride(),
            c.stride(0), BM=64, BN=128, BK=128,
        )  # fmt: skip
    return c


def _rows(like, n_rows, n_columns, dtype):
    """New rows that are a multiple of 16 bytes apart."""
    step = 16 // dtype.itemsize
    return like.new_empty(n_rows, -(-n_columns // step) * step, dtype=dtype)[:, :n_columns]


def _padded(x):
    n_rows, n_columns = x.shape
    return _rows(x, n_rows, n_columns, x.dtype).copy_(x)


def _check(a, a_scales, b, b_scales):
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or min(*a.shape[1:], *b.shape) < 1:
        raise ValueError(f"expected (m, k) and (n, k), got {tuple(a.shape)} and {tuple(b.shape)}")
    k_blocks = triton.cdiv(a.shape[1], 128)
    if a_scales.shape != (a.shape[0], k_blocks) or b_scales.shape != (triton.cdiv(b.shape[0], 128), k_blocks):
        raise ValueError(f"expected a scale a block, got {tuple(a_scales.shape)} and {tuple(b_scales.shape)}")
    if [x.dtype for x in (a, a_scales, b, b_scales)] != [torch.float8_e4m3fn, torch.float32] * 2:
        raise ValueError("expected float8 e4m3 with scales in float32")


def _check_rows(x):
    if x.ndim != 2 or x.shape[1] < 1 or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected a matrix of 16 or 32 bits, got {tuple(x.shape)}, {x.dtype}")


@triton.jit
def _quantize(x_ptr, v_ptr, s_ptr, rows, d, sx0, sx1, ss0, H: tl.constexpr, W: tl.constexpr):
    """128 rows a program, block after block of columns."""
    at = tl.program_id(0).to(tl.int64) * 128 + tl.arange(0, 128)
    for first in range(0, d, W):
        cols = first + tl.arange(0, W)
        mask = (at[:, None] < rows) & (cols[None, :] < d)
        x = tl.load(x_ptr + at[:, None] * sx0 + cols[None, :].to(tl.int64) * sx1, mask=mask, other=0.0).to(tl.float32)
        if H == 1:
            amax = tl.max(tl.abs(x), 1, keep_dims=True)
        else:
            amax = tl.max(tl.max(tl.abs(x), 1, keep_dims=True), 0, keep_dims=True)
        scale = tl.where(amax > 0, amax / 448.0, 1.0)
        tl.store(v_ptr + at[:, None] * d + cols[None, :], (x / scale).to(tl.float8e4nv), mask=mask)
        s_ptrs = s_ptr + (tl.program_id(0) * (128 // H) + tl.arange(0, 128 // H)[:, None]) * ss0 + first // W
        tl.store(s_ptrs, scale, mask=(tl.program_id(0) * 128 + tl.arange(0, 128 // H)[:, None]) < rows)


@triton.jit
def _product(
    a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, m, n, k, lda, sasm, sask, ldb, sbsn, sbsk, ldc,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [lda, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [n, k], [ldb, 1], [BN, BK])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [ldc, 1], [BM, BN])
    down = tl.cdiv(m, BM)
    for tile in range(tl.program_id(0), down * tl.cdiv(n, BN), tl.num_programs(0)):
        row, col = tile % down * BM, tile // down * BN
        rows = row + tl.arange(0, BM).to(tl.int64)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            scale = tl.load(as_ptr + rows * sasm + start // BK * sask, mask=rows < m, other=0.0)
            scale *= tl.load(bs_ptr + col // 128 * sbsn + start // BK * sbsk)
            total += tl.dot(a.load([row, start]), tl.trans(b.load([col, start]))) * scale[:, None]
        c.store([row, col], total.to(tl.bfloat16))
