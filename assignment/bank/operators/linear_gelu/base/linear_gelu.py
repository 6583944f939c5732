"""A linear layer and its GELU, plainly: one program a tile, in groups of rows of tiles."""

import torch
import triton
import triton.language as tl

M_TILE_SIZE, N_TILE_SIZE, K_TILE_SIZE = 64, 64, 32
GROUP_SIZE = 8
SQRT_1_2 = tl.constexpr(0.7071067811865476)
TWICE_SQRT_2_PI = tl.constexpr(1.5957691216057308)
CUBIC = tl.constexpr(0.044715)


def linear_gelu(x, weight, bias, approximate="none"):
    _check(x, weight, bias, approximate)
    n, k = weight.shape
    rows = x.reshape(-1, k)
    m = rows.shape[0]
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if m > 0:
        grid = (triton.cdiv(m, M_TILE_SIZE) * triton.cdiv(n, N_TILE_SIZE),)
        _linear_gelu_kernel[grid](
            rows, weight, bias, y,
            rows.stride(0), rows.stride(1), weight.stride(0), weight.stride(1), bias.stride(0), y.stride(0),
            m, n, k,
            IS_TANH=approximate == "tanh",
            M_TILE_SIZE=M_TILE_SIZE, N_TILE_SIZE=N_TILE_SIZE, K_TILE_SIZE=K_TILE_SIZE, GROUP_SIZE=GROUP_SIZE,
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
def _linear_gelu_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr,
    stride_xm, stride_xk, stride_wn, stride_wk, stride_bn, stride_ym,
    m, n, k,
    IS_TANH: tl.constexpr,
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
        x_mask = (rows[:, None] < m) & (terms[None, :] < k)
        w_mask = (terms[:, None] < k) & (cols[None, :] < n)
        x = tl.load(x_ptr + rows[:, None] * stride_xm + terms[None, :] * stride_xk, mask=x_mask, other=0.0)
        w = tl.load(weight_ptr + terms[:, None] * stride_wk + cols[None, :] * stride_wn, mask=w_mask, other=0.0)
        total = tl.dot(x, w, total)
    bias = tl.load(bias_ptr + cols * stride_bn, mask=cols < n, other=0.0).to(tl.float32)
    z = total + bias[None, :]
    if IS_TANH:
        share = 1.0 / (1.0 + tl.exp(-TWICE_SQRT_2_PI * (z + CUBIC * z * z * z)))
    else:
        share = 0.5 * (1.0 + tl.erf(z * SQRT_1_2))
    y = z * share
    y_mask = (rows[:, None] < m) & (cols[None, :] < n)
    tl.store(y_ptr + rows[:, None] * stride_ym + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=y_mask)
