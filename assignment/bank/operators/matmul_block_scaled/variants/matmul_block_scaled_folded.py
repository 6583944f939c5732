"""The transpose is computed, with both scales folded into one vector; values are multiplied by 448 / amax."""

import torch
import triton
import triton.language as tl


def quantize_block_scaled(x, block=(1, 128)):
    _check_rows(x)
    (rows, d), (height, width) = x.shape, block
    values = torch.empty(rows, d, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(-(-d // width), -(-rows // height), dtype=torch.float32, device=x.device).mT
    if rows:
        _quantize[(-(-rows // 128), -(-d // width))](
            x, values, scales, rows, d, *x.stride(), *scales.stride(), PARTS=128 // height, HEIGHT=height, WIDTH=width
        )
    return values, scales


def matmul_block_scaled(a, a_scales, b, b_scales):
    _check(a, a_scales, b, b_scales)
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    if m:
        _product[(-(-n // 128) * -(-m // 64),)](
            a, a_scales, b, b_scales, c, m, n, k, *a.stride(), *a_scales.stride(), *b.stride(), *b_scales.stride(),
            M=64, N=128, K=128, num_warps=8, num_stages=3,
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
def _quantize(
    x_ptr, v_ptr, s_ptr, rows, d, sx0, sx1, ss0, ss1, PARTS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    """128 rows a program, as PARTS blocks of HEIGHT rows: a tile of three dimensions."""
    blocks = tl.program_id(0) * PARTS + tl.arange(0, PARTS).to(tl.int64)
    r = blocks[:, None, None] * HEIGHT + tl.arange(0, HEIGHT)[None, :, None]
    c = tl.program_id(1).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    inside = (r < rows) & (c < d)
    x = tl.load(x_ptr + r * sx0 + c * sx1, mask=inside, other=0.0).to(tl.float32)
    amax = tl.max(tl.max(tl.abs(x), 2), 1)
    factor = tl.where(amax == 0, 1.0, 448.0 / amax)
    scaled = tl.clamp(x * factor[:, None, None], -448.0, 448.0)
    tl.store(v_ptr + r * d + c, scaled.to(tl.float8e4nv), mask=inside)
    scale = tl.where(amax == 0, 1.0, amax * (1 / 448))
    tl.store(s_ptr + blocks * ss0 + tl.program_id(1).to(tl.int64) * ss1, scale, mask=blocks * HEIGHT < rows)


@triton.jit
def _product(
    a_ptr, as_ptr, b_ptr, bs_ptr, c_ptr, m, n, k, sam, sak, sasm, sask, sbn, sbk, sbsn, sbsk,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    of_b, of_a = tl.program_id(0) // tl.cdiv(m, M), tl.program_id(0) % tl.cdiv(m, M)
    cols, rows = of_b.to(tl.int64) * N + tl.arange(0, N), of_a.to(tl.int64) * M + tl.arange(0, M)
    is_col, is_row = cols[:, None] < n, rows[None, :] < m
    terms = tl.arange(0, K).to(tl.int64)
    a_ptrs, b_ptrs = a_ptr + rows[None, :] * sam + terms[:, None] * sak, b_ptr + cols[:, None] * sbn + terms * sbk
    as_ptrs, bs_ptrs = as_ptr + rows * sasm, bs_ptr + of_b.to(tl.int64) * sbsn
    total = tl.zeros((N, M), tl.float32)
    for left in range(k, 0, -K):
        b = tl.load(b_ptrs, mask=is_col & (terms[None, :] < left), other=0.0)
        a = tl.load(a_ptrs, mask=is_row & (terms[:, None] < left), other=0.0)
        folded = tl.load(as_ptrs, mask=rows < m, other=0.0) * tl.load(bs_ptrs)
        total += tl.dot(b, a) * folded[None, :]
        a_ptrs += tl.full((), K, tl.int64) * sak
        b_ptrs += tl.full((), K, tl.int64) * sbk
        as_ptrs += sask
        bs_ptrs += sbsk
    tl.store(c_ptr + rows[None, :] * n + cols[:, None], total.to(c_ptr.dtype.element_ty), mask=is_col & is_row)
