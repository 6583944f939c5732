"""Two levels of accumulation: 32 terms at a time into a sum of a block, which is scaled into the sum of all."""

import torch
import triton
import triton.language as tl


def quantize_block_scaled(x, block=(1, 128)):
    _check_rows(x)
    (rows, d), (bm, bn) = x.shape, block
    values = torch.empty(rows, d, dtype=torch.float8_e4m3fn, device=x.device)
    scales = x.new_empty(triton.cdiv(rows, bm), triton.cdiv(d, bn), dtype=torch.float32)
    if rows:
        _quantize[scales.shape](x, values, scales, rows, d, *x.stride(), scales.stride(0), BM=bm, BN=bn, num_warps=4)
    return values, scales


def matmul_block_scaled(a, a_scales, b, b_scales):
    _check(a, a_scales, b, b_scales)
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    if m:
        _product[(triton.cdiv(m, 64), triton.cdiv(n, 64))](
            a, a_scales, b, b_scales, c, m, n, k, *a.stride(), *a_scales.stride(), *b.stride(), *b_scales.stride(),
            BM=64, BN=64, BK=32,
        )  # fmt: skip
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
def _quantize(x_ptr, v_ptr, s_ptr, rows, d, sx0, sx1, ss0, BM: tl.constexpr, BN: tl.constexpr):
    """A program for each block."""
    i, j = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    r, c = i * BM + tl.arange(0, BM)[:, None], j * BN + tl.arange(0, BN)[None, :]
    inside = (r < rows) & (c < d)
    x = tl.load(x_ptr + r * sx0 + c * sx1, mask=inside, other=0).to(tl.float32)
    amax = tl.max(tl.abs(x))
    scale = 1.0
    if amax > 0:
        scale = amax / 448
    tl.store(v_ptr + r * d + c, (x / scale).to(tl.float8e4nv), mask=inside)
    tl.store(s_ptr + i * ss0 + j, scale)


@triton.jit
def _product(
    a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, m, n, k, sam, sak, sasm, sask, sbn, sbk, sbsn, sbsk,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(tl.cdiv(k, 128)):
        part = tl.zeros((BM, BN), tl.float32)
        for inner in range(0, 128, BK):
            terms = block * 128 + inner + tl.arange(0, BK).to(tl.int64)
            a = tl.load(a_ptr + rows[:, None] * sam + terms * sak, mask=(rows[:, None] < m) & (terms < k), other=0.0)
            b = tl.load(b_ptr + cols * sbn + terms[:, None] * sbk, mask=(cols < n) & (terms[:, None] < k), other=0.0)
            part = tl.dot(a, b, part)
        a_scale = tl.load(as_ptr + rows * sasm + block * sask, mask=rows < m, other=1.0)
        b_scale = tl.load(bs_ptr + tl.program_id(1) * BN // 128 * sbsn + block * sbsk)
        total += part * a_scale[:, None] * b_scale
    c_ptrs = c_ptr + rows[:, None] * n + cols
    tl.store(c_ptrs, total.to(tl.bfloat16), mask=(rows[:, None] < m) & (cols < n))
