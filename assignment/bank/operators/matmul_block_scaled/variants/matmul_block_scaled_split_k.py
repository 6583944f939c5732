"""Split-K: three programs share the blocks of a tile, and a second kernel adds up what they have."""

import torch
import triton
import triton.language as tl

SPLITS = 3


def quantize_block_scaled(x, block=(1, 128)):
    _check_rows(x)
    (rows, d), (height, width) = x.shape, block
    values = torch.empty(rows, d, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.ones(triton.cdiv(rows, height), triton.cdiv(d, width), device=x.device)
    if rows:
        of_a_program = height if height > 1 else 16
        _quantize[(triton.cdiv(rows, of_a_program), triton.cdiv(d, width))](
            x, values, scales, rows, d, *x.stride(), scales.stride(0), R=of_a_program, H=height, W=width
        )
    return values, scales


def matmul_block_scaled(a, a_scales, b, b_scales):
    _check(a, a_scales, b, b_scales)
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    if m:
        parts = torch.empty(SPLITS, m, n, device=a.device)
        _parts[(triton.cdiv(m, 64), triton.cdiv(n, 64), SPLITS)](
            a, a_scales, b, b_scales, parts, m, n, k, *a.stride(), *a_scales.stride(), *b.stride(), *b_scales.stride(),
            BM=64, BN=64, BK=128,
        )  # fmt: skip
        _add[(triton.cdiv(m * n, 1024),)](parts, c, m * n, SPLITS=SPLITS, SIZE=1024)
    return c


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
def _quantize(x_ptr, v_ptr, s_ptr, rows, d, sx0, sx1, ss0, R: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    c = tl.program_id(1).to(tl.int64) * W + tl.arange(0, W)
    mask = (r[:, None] < rows) & (c[None, :] < d)
    x = tl.load(x_ptr + r[:, None] * sx0 + c[None, :] * sx1, mask=mask, other=0.0).to(tl.float32)
    amax = tl.max(tl.abs(x), axis=1)
    if H > 1:
        amax = tl.where(r >= 0, tl.max(amax, axis=0), 0.0)
    scale = tl.where(amax > 0, amax / 448.0, 1.0)
    tl.store(v_ptr + r[:, None] * d + c[None, :], (x / scale[:, None]).to(tl.float8e4nv), mask=mask)
    is_first = (r % H == 0) & (r < rows) & (amax > 0)  # a block of zeros has its 1
    tl.store(s_ptr + r // H * ss0 + tl.program_id(1), scale, mask=is_first)


@triton.jit
def _parts(
    a_ptr, as_ptr, b_ptr, bs_ptr, p_ptr, m, n, k, sam, sak, sasm, sask, sbn, sbk, sbsn, sbsk,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(tl.program_id(2), tl.cdiv(k, BK), tl.num_programs(2)):
        terms = block * BK + tl.arange(0, BK).to(tl.int64)
        a_mask = (rows[:, None] < m) & (terms[None, :] < k)
        b_mask = (cols[:, None] < n) & (terms[None, :] < k)
        a = tl.load(a_ptr + rows[:, None] * sam + terms[None, :] * sak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + cols[:, None] * sbn + terms[None, :] * sbk, mask=b_mask, other=0.0)
        a_scale = tl.load(as_ptr + rows * sasm + block * sask, mask=rows < m, other=0.0)
        b_scale = tl.load(bs_ptr + cols // 128 * sbsn + block * sbsk, mask=cols < n, other=0.0)
        total += tl.dot(a, b.T) * (a_scale[:, None] * b_scale[None, :])
    p_ptrs = p_ptr + (tl.program_id(2) * m + rows[:, None]) * n + cols[None, :]
    tl.store(p_ptrs, total, mask=(rows[:, None] < m) & (cols[None, :] < n))


@triton.jit
def _add(p_ptr, c_ptr, size, SPLITS: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), tl.float32)
    for i in range(SPLITS):
        total += tl.load(p_ptr + i * size + at, mask=at < size, other=0.0)
    tl.store(c_ptr + at, total.to(tl.bfloat16), mask=at < size)
