"""RMSNorm in the style of unsloth: a program a row, pointers moved to the row by its stride, a flag for Gemma's 1 + w,
and rows that must be contiguous within themselves alone. grad_weight is added by atomics, to 32 rows in turn.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_FUSED_SIZE = 65536
SHARES = 32


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    """Of rows with at most 65,536 elements."""
    _check(x, weight)
    X, W = _rows(x), _rows(weight[None, :])[0]
    n_rows, n_cols = X.shape
    Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
    r = torch.empty(n_rows, dtype=torch.float32, device=X.device)
    if n_rows > 0:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        with torch.cuda.device(X.device):
            _rms_layernorm_forward[(n_rows,)](
                Y, Y.stride(0), X, X.stride(0), W, W.stride(0), r, r.stride(0), n_cols, eps,
                GEMMA=False, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
            )  # fmt: skip
    return Y.view(*x.shape), r.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape or rstd.shape != x.shape[:-1]:
        raise ValueError(f"expected grad_y {x.shape} and rstd {x.shape[:-1]}, got {grad_y.shape}, {rstd.shape}")
    if grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y in {x.dtype}, got {grad_y.dtype}")
    dY, X, W, r = _rows(grad_y), _rows(x), _rows(weight[None, :])[0], rstd.reshape(-1)
    n_rows, n_cols = X.shape
    dX = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
    dW = torch.zeros((SHARES, n_cols), dtype=torch.float32, device=X.device)
    if n_rows > 0:
        BLOCK_SIZE, num_warps = _settings(n_cols)
        with torch.cuda.device(X.device):
            _rms_layernorm_backward[(n_rows,)](
                dY, dY.stride(0), dX, dX.stride(0), X, X.stride(0), W, W.stride(0), r, r.stride(0), dW, dW.stride(0),
                n_cols, GEMMA=False, SHARES=SHARES, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
            )  # fmt: skip
    return dX.view(*x.shape), dW.sum(0).to(weight.dtype)


def rmsnorm(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5) -> Float[Tensor, "*batch d"]:
    return Fast_RMS_Layernorm.apply(x, weight, eps)


class Fast_RMS_Layernorm(torch.autograd.Function):  # noqa: N801
    @staticmethod
    def forward(ctx, X, W, eps):
        Y, r = rmsnorm_forward(X, W, eps)
        ctx.save_for_backward(X, W, r)
        return Y

    @staticmethod
    @once_differentiable
    def backward(ctx, dY):
        dX, dW = rmsnorm_backward(dY, *ctx.saved_tensors)
        return dX, dW, None


def _rows(x: Tensor) -> Tensor:
    """x as a matrix whose rows are contiguous."""
    x = x.reshape(-1, x.shape[-1])
    return x if x.stride(-1) == 1 else x.contiguous()


def _settings(n: int) -> tuple[int, int]:
    BLOCK_SIZE = triton.next_power_of_2(n)
    if BLOCK_SIZE > MAX_FUSED_SIZE:
        raise RuntimeError(f"Cannot launch Triton kernel since n = {n} exceeds {MAX_FUSED_SIZE}.")
    return BLOCK_SIZE, 32 if BLOCK_SIZE >= 32768 else 16 if BLOCK_SIZE >= 8192 else 8 if BLOCK_SIZE >= 2048 else 4


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim < 1 or weight.ndim != 1 or weight.numel() != x.shape[-1]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected weight in {x.dtype}, got {weight.dtype}")


@triton.jit
def _rms_layernorm_forward(
    Y, Y_row_stride: tl.constexpr, X, X_row_stride, W, W_row_stride: tl.constexpr, r, r_row_stride: tl.constexpr,
    n_cols: tl.constexpr, eps: tl.constexpr, GEMMA: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    Y += row_idx * Y_row_stride
    X += row_idx * X_row_stride
    r += row_idx * r_row_stride
    X_row = tl.load(X + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets * W_row_stride, mask=mask, other=0).to(tl.float32)
    row_var = tl.sum(X_row * X_row, axis=0) / n_cols
    inv_var = tl.math.rsqrt(row_var + eps)
    tl.store(r, inv_var)
    normed = X_row * inv_var
    output = normed * (W_row + 1.0) if GEMMA else normed * W_row
    tl.store(Y + col_offsets, output, mask=mask)


@triton.heuristics({"GEMMA": lambda args: bool(args["GEMMA"])})
@triton.jit
def _rms_layernorm_backward(
    dY, dY_row_stride, dX, dX_row_stride: tl.constexpr, X, X_row_stride, W, W_row_stride: tl.constexpr,
    r, r_row_stride, dW, dW_row_stride: tl.constexpr, n_cols: tl.constexpr,
    GEMMA: tl.constexpr, SHARES: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    dY += row_idx * dY_row_stride
    dX += row_idx * dX_row_stride
    X += row_idx * X_row_stride
    dW += row_idx % SHARES * dW_row_stride
    dY_row = tl.load(dY + col_offsets, mask=mask, other=0).to(tl.float32)
    X_row = tl.load(X + col_offsets, mask=mask, other=0).to(tl.float32)
    W_row = tl.load(W + col_offsets * W_row_stride, mask=mask, other=0).to(tl.float32)
    inv_var = tl.load(r + row_idx * r_row_stride).to(tl.float32)
    normed = X_row * inv_var
    dY_W = dY_row * (W_row + 1.0) if GEMMA else dY_row * W_row
    rowsum_dY_normed = tl.sum(dY_W * normed, axis=0)
    output = inv_var / n_cols * (n_cols * dY_W - normed * rowsum_dY_normed)
    tl.store(dX + col_offsets, output, mask=mask)
    tl.atomic_add(dW + col_offsets, dY_row * normed, mask=mask)
