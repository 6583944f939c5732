"""RMSNorm's forward in the style of FlagGems' softmax: heuristics choose the tile and whether one holds a whole row.

A row of several tiles is walked twice: forwards to add up squares, whole tiles without a mask and the last with one,
then backwards, to find in the cache what was read last. Rows and tiles are counted in 64 bits.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor

MAX_TILE_N = 8192


def heur_tile_n(args):
    return min(MAX_TILE_N, triton.next_power_of_2(args["N"]))


def heur_tile_m(args):
    return max(1, min(16, 2048 // args["TILE_N"]))


def heur_one_tile_per_cta(args):
    return args["TILE_N"] >= args["N"]


def heur_num_warps(args):
    return 4 if args["TILE_N"] * args["TILE_M"] <= 2048 else 8 if args["TILE_N"] <= 4096 else 16


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    if x.ndim == 0 or weight.shape != x.shape[-1:]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)}, {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")
    inp = x.reshape(-1, x.shape[-1])
    M, N = inp.shape
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    inv_rms = torch.empty((M,), dtype=torch.float32, device=x.device)
    if M > 0:
        with torch.cuda.device(inp.device):
            _rms_norm_kernel[lambda meta: (triton.cdiv(M, meta["TILE_M"]), 1, 1)](
                out, inv_rms, inp, weight, *inp.stride(), *weight.stride(), M=M, N=N, eps=eps
            )
    return out.view(x.shape), inv_rms.view(x.shape[:-1])


@triton.jit
def prev_multiple_of(a, b):
    """The largest multiple of b that is less than a."""
    return tl.cdiv(a, b) * b - b


@triton.jit
def _pointers(ptr, rows, cols, stride_m, stride_n):
    return ptr + rows[:, None] * stride_m + cols.to(tl.int64)[None, :] * stride_n


@triton.heuristics({"TILE_N": heur_tile_n})
@triton.heuristics({"TILE_M": heur_tile_m})
@triton.heuristics({"ONE_TILE_PER_CTA": heur_one_tile_per_cta, "num_warps": heur_num_warps})
@triton.jit(do_not_specialize=["eps"])
def _rms_norm_kernel(
    out_ptr, inv_rms_ptr, in_ptr, w_ptr, stride_im, stride_in, stride_w, M, N, eps,
    TILE_N: tl.constexpr, TILE_M: tl.constexpr, ONE_TILE_PER_CTA: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * TILE_M + tl.arange(0, TILE_M)
    row_mask = rows < M
    if ONE_TILE_PER_CTA:
        cols = tl.arange(0, TILE_N)
        mask = row_mask[:, None] & (cols < N)[None, :]
        x = tl.load(_pointers(in_ptr, rows, cols, stride_im, stride_in), mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols.to(tl.int64) * stride_w, mask=cols < N).to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
        out = (x * rstd[:, None] * w[None, :]).to(out_ptr.dtype.element_ty)
        tl.store(_pointers(out_ptr, rows, cols, N, 1), out, mask=mask)
    else:
        squares = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        previous_multiple = prev_multiple_of(N, TILE_N)
        for start in range(0, previous_multiple, TILE_N):
            ptrs = _pointers(in_ptr, rows, start + tl.arange(0, TILE_N), stride_im, stride_in)
            x = tl.load(ptrs, mask=row_mask[:, None], other=0.0).to(tl.float32)
            squares += x * x
        for start in range(previous_multiple, N, TILE_N):
            cols = start + tl.arange(0, TILE_N)
            ptrs = _pointers(in_ptr, rows, cols, stride_im, stride_in)
            x = tl.load(ptrs, mask=row_mask[:, None] & (cols < N)[None, :], other=0.0).to(tl.float32)
            squares += x * x
        rstd = tl.rsqrt(tl.sum(squares, axis=1) / N + eps)
        for start in range(0, N, TILE_N):
            cols = previous_multiple - start + tl.arange(0, TILE_N)
            mask = row_mask[:, None] & (cols < N)[None, :]
            ptrs = _pointers(in_ptr, rows, cols, stride_im, stride_in)
            x = tl.load(ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            w = tl.load(w_ptr + cols.to(tl.int64) * stride_w, mask=cols < N, other=0.0).to(tl.float32)
            out = (x * rstd[:, None] * w[None, :]).to(out_ptr.dtype.element_ty)
            tl.store(_pointers(out_ptr, rows, cols, N, 1), out, mask=mask)
    tl.store(inv_rms_ptr + rows, rstd, mask=row_mask)
