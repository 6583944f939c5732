"""RMSNorm in the style of flash-linear-attention: guarded inputs, block pointers, tiles of rows for narrow and whole
rows for wide inputs, both tuned over warps and stages, and one partial weight gradient for each of NS programs.
"""

import functools

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

MAX_BLOCKED = 512  # columns that a tile of rows may have
WARPS = [triton.Config({}, num_warps=w, num_stages=s) for w in (4, 8) for s in (2, 3)]
TILES = [triton.Config({"BT": bt}, num_warps=w) for bt in (16, 32) for w in (4, 8)]


def input_guard(fn):
    """Make all tensors contiguous and the first one's device the current one."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        contiguous_args = (i.contiguous() if isinstance(i, Tensor) else i for i in args)
        contiguous_kwargs = {k: v.contiguous() if isinstance(v, Tensor) else v for k, v in kwargs.items()}
        with torch.cuda.device(args[0].device.index):
            return fn(*contiguous_args, **contiguous_kwargs)

    return wrapper


@input_guard
def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    T, D = x.shape[:-1].numel(), x.shape[-1]
    y, rstd = torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    BD = triton.next_power_of_2(D)
    if T > 0 and D <= MAX_BLOCKED:
        _tiles_fwd_kernel[lambda meta: (triton.cdiv(T, meta["BT"]),)](x, y, weight, rstd, eps, T, D=D, BD=BD)
    elif T > 0:
        _row_fwd_kernel[(T,)](x, y, weight, rstd, eps, D=D, BD=BD)
    return y, rstd


@input_guard
def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y like x {x.shape} {x.dtype}, got {grad_y.shape} {grad_y.dtype}")
    if rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected rstd of shape {x.shape[:-1]}, got {rstd.shape}")
    T, D = x.shape[:-1].numel(), x.shape[-1]
    dx = torch.empty_like(x)
    if T == 0:
        return dx, torch.zeros_like(weight)
    BD, sm_count = triton.next_power_of_2(D), torch.cuda.get_device_properties(x.device).multi_processor_count
    step = 32 if D <= MAX_BLOCKED else 1  # whole tiles of every configuration
    BS = triton.cdiv(triton.cdiv(T, sm_count), step) * step
    NS = triton.cdiv(T, BS)
    dw = torch.empty((NS, D), dtype=torch.float32, device=x.device)
    kernel = _tiles_bwd_kernel if D <= MAX_BLOCKED else _row_bwd_kernel
    kernel[(NS,)](x, weight, grad_y, dx, dw, rstd, T, BS, D=D, BD=BD)
    return dx, dw.sum(0).to(weight)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.shape != (x.shape[-1],) or weight.dtype != x.dtype:
        raise ValueError(f"expected x (..., d) and weight (d,) in one dtype, got {x.shape} and {weight.shape}")


@triton.autotune(TILES, key=["D"])
@triton.jit(do_not_specialize=["T"])
def _tiles_fwd_kernel(x, y, w, rstd, eps, T, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr):
    i_t = tl.program_id(0)
    p_x = tl.make_block_ptr(x, (T, D), (D, 1), (i_t * BT, 0), (BT, BD), (1, 0))
    b_x = tl.load(p_x, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
    m_d = tl.arange(0, BD) < D
    b_w = tl.load(w + tl.arange(0, BD), mask=m_d, other=0.0).to(tl.float32)
    b_rstd = 1 / tl.sqrt(tl.sum(b_x * b_x, axis=1) / D + eps)
    b_y = b_x * b_rstd[:, None] * b_w[None, :]
    p_y = tl.make_block_ptr(y, (T, D), (D, 1), (i_t * BT, 0), (BT, BD), (1, 0))
    tl.store(p_y, b_y.to(p_y.dtype.element_ty), boundary_check=(0, 1))
    p_rstd = tl.make_block_ptr(rstd, (T,), (1,), (i_t * BT,), (BT,), (0,))
    tl.store(p_rstd, b_rstd, boundary_check=(0,))


@triton.autotune(WARPS, key=["D"])
@triton.jit
def _row_fwd_kernel(x, y, w, rstd, eps, D: tl.constexpr, BD: tl.constexpr):
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BD)
    b_x = tl.load(x + i_t * D + o_d, mask=o_d < D, other=0.0).to(tl.float32)
    b_w = tl.load(w + o_d, mask=o_d < D, other=0.0).to(tl.float32)
    b_rstd = 1 / tl.sqrt(tl.sum(b_x * b_x, axis=0) / D + eps)
    tl.store(rstd + i_t, b_rstd)
    tl.store(y + i_t * D + o_d, b_x * b_rstd * b_w, mask=o_d < D)


@triton.autotune(TILES, key=["D"])
@triton.jit(do_not_specialize=["T"])
def _tiles_bwd_kernel(x, w, dy, dx, dw, rstd, T, BS, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr):
    i_s = tl.program_id(0)
    o_d = tl.arange(0, BD)
    b_w = tl.load(w + o_d, mask=o_d < D, other=0.0).to(tl.float32)
    b_dw = tl.zeros((BT, BD), dtype=tl.float32)
    for i_t in range(i_s * BS, min(i_s * BS + BS, T), BT):
        p_x = tl.make_block_ptr(x, (T, D), (D, 1), (i_t, 0), (BT, BD), (1, 0))
        p_dy = tl.make_block_ptr(dy, (T, D), (D, 1), (i_t, 0), (BT, BD), (1, 0))
        p_dx = tl.make_block_ptr(dx, (T, D), (D, 1), (i_t, 0), (BT, BD), (1, 0))
        p_rstd = tl.make_block_ptr(rstd, (T,), (1,), (i_t,), (BT,), (0,))
        b_dy = tl.load(p_dy, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        b_rstd = tl.load(p_rstd, boundary_check=(0,), padding_option="zero")
        b_xhat = tl.load(p_x, boundary_check=(0, 1), padding_option="zero").to(tl.float32) * b_rstd[:, None]
        b_wdy = b_dy * b_w[None, :]
        b_dw += b_dy * b_xhat
        b_c1 = tl.sum(b_xhat * b_wdy, axis=1) / D
        b_dx = (b_wdy - b_xhat * b_c1[:, None]) * b_rstd[:, None]
        tl.store(p_dx, b_dx.to(p_dx.dtype.element_ty), boundary_check=(0, 1))
    tl.store(dw + i_s.to(tl.int64) * D + o_d, tl.sum(b_dw, axis=0), mask=o_d < D)


@triton.autotune(WARPS, key=["D"])
@triton.jit(do_not_specialize=["T"])
def _row_bwd_kernel(x, w, dy, dx, dw, rstd, T, BS, D: tl.constexpr, BD: tl.constexpr):
    i_s = tl.program_id(0).to(tl.int64)
    o_d = tl.arange(0, BD)
    mask = o_d < D
    b_w = tl.load(w + o_d, mask=mask, other=0.0).to(tl.float32)
    b_dw = tl.zeros((BD,), dtype=tl.float32)
    for i_t in range(i_s * BS, min(i_s * BS + BS, T)):
        b_rstd = tl.load(rstd + i_t)
        b_xhat = tl.load(x + i_t * D + o_d, mask=mask, other=0.0).to(tl.float32) * b_rstd
        b_dy = tl.load(dy + i_t * D + o_d, mask=mask, other=0.0).to(tl.float32)
        b_dw += b_dy * b_xhat
        b_wdy = b_w * b_dy
        tl.store(dx + i_t * D + o_d, (b_wdy - b_xhat * (tl.sum(b_xhat * b_wdy, axis=0) / D)) * b_rstd, mask=mask)
    tl.store(dw + i_s * D + o_d, b_dw, mask=mask)
