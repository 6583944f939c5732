"""Persistent, as in tutorial 09, with its split epilogue: one half of a tile's columns after the other is stored."""

import torch
import triton
import triton.language as tl

BM, BN, BK = 64, 128, 32


def linear_gelu(x, weight, bias, approximate="none"):
    _check(x, weight, bias, approximate)
    (n, k), rows = weight.shape, x.reshape(-1, x.shape[-1])
    m = rows.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if m > 0:
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        grid = (min(triton.cdiv(m, BM) * triton.cdiv(n, BN), multiprocessors),)
        _kernel[grid](
            rows, weight, bias, y, *rows.stride(), *weight.stride(), *bias.stride(), m, n, k,
            FORM=approximate, BM=BM, BN=BN, BK=BK,
        )  # fmt: skip
    return y.reshape(*x.shape[:-1], n)


def _check(x, weight, bias, approximate):
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or bias.shape != weight.shape[:1]:
        raise ValueError(f"expected (..., m, k), (n, k), (n,), got {x.shape}, {weight.shape}, {bias.shape}")
    if min(*x.shape[-2:], *weight.shape) < 1 or approximate not in ("none", "tanh"):
        raise ValueError(f"expected sizes from 1 and a form, got {x.shape}, {weight.shape}, {approximate!r}")
    if not x.dtype == weight.dtype == bias.dtype or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"expected one dtype for all, got {x.dtype}, {weight.dtype}, {bias.dtype}")


@triton.jit
def _finish(total, bias_ptr, stride, y_ptr, rows, cols, m, n, FORM: tl.constexpr):
    z = total + tl.load(bias_ptr + cols * stride, mask=cols < n, other=0.0)[None, :]
    if FORM == "tanh":
        u = 0.7978845608028654 * (z + 0.044715 * z * z * z)
        y = z * tl.sigmoid(2.0 * u)
    else:
        y = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(y_ptr + rows[:, None] * n + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, sxm, sxk, swn, swk, sb, m, n, k,
    FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    down = tl.cdiv(m, BM)
    for tile in range(tl.program_id(0), down * tl.cdiv(n, BN), tl.num_programs(0)):
        rows = (tile % down).to(tl.int64) * BM + tl.arange(0, BM)
        cols = (tile // down).to(tl.int64) * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            terms = start + tl.arange(0, BK).to(tl.int64)
            x_mask = (rows[:, None] < m) & (terms[None, :] < k)
            w_mask = (terms[:, None] < k) & (cols[None, :] < n)
            x = tl.load(x_ptr + rows[:, None] * sxm + terms[None, :] * sxk, mask=x_mask, other=0.0)
            w = tl.load(w_ptr + terms[:, None] * swk + cols[None, :] * swn, mask=w_mask, other=0.0)
            total = tl.dot(x, w, total)
        left, right = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
        half = (tile // down).to(tl.int64) * BN + tl.arange(0, BN // 2)
        _finish(left, bias_ptr, sb, y_ptr, rows, half, m, n, FORM)
        _finish(right, bias_ptr, sb, y_ptr, rows, half + BN // 2, m, n, FORM)
