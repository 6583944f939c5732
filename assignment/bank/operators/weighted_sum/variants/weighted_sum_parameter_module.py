"""Weighted sum as a module: the weight is a parameter, buffers are tensors of the GPU, forward calls the Function."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn

ROWS, COLS = 32, 64


class WeightedSum(nn.Module):
    """y = x @ weight, with a parameter around the weight that it is given."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("scale", torch.ones((), device=weight.device), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return _WeightedSum.apply(nn.Parameter(x, requires_grad=False), self.weight)

    def extra_repr(self) -> str:
        return f"d={len(self.weight)}"


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    with torch.no_grad():
        return WeightedSum(weight).to(x.device).eval()(x)


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    x_, grad_y_ = nn.Parameter(x.detach().reshape(-1, x.shape[-1])), grad_y.reshape(-1)
    n_rows, d = x_.shape
    grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)
    if not n_rows:
        return grad_x.view(x.shape), torch.zeros_like(weight)
    parts = nn.Buffer(torch.empty((triton.cdiv(n_rows, ROWS), d), dtype=torch.float32, device=x.device))
    _backward_kernel[(len(parts),)](
        grad_y_, x_, weight, grad_x, parts,
        *grad_y_.stride(), *x_.stride(), *weight.stride(), n_rows, d, ROWS=ROWS, COLS=COLS,
    )  # fmt: skip
    return grad_x.view(x.shape), parts.sum(0).to(weight.dtype)


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return _WeightedSum.apply(x, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(x, weight):
        _check(x, weight)
        x_ = x.reshape(-1, x.shape[-1])
        n_rows, d = x_.shape
        y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
        if n_rows:
            _forward_kernel[(triton.cdiv(n_rows, ROWS),)](
                x_, weight, y, *x_.stride(), *weight.stride(), n_rows, d, ROWS=ROWS, COLS=COLS
            )
        return y.view(x.shape[:-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.ndim != 1 or x.shape[-1] != weight.shape[0]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr,
    stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0)
        total += tl.sum(x.to(tl.float32) * w.to(tl.float32)[None, :], axis=1)
    tl.store(y_ptr + rows, total.to(y_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, parts_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0).to(tl.int64)
    rows = tile * ROWS + tl.arange(0, ROWS)
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=rows < n_rows, other=0.0).to(tl.float32)
    for start in range(0, d, COLS):
        cols = start + tl.arange(0, COLS).to(tl.int64)
        mask = (rows < n_rows)[:, None] & (cols < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd, mask=mask, other=0.0)
        w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
        grad_x = (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty)
        tl.store(grad_x_ptr + rows[:, None] * d + cols[None, :], grad_x, mask=mask)
        part = tl.sum(grad_y[:, None] * x.to(tl.float32), axis=0)
        tl.store(parts_ptr + tile * d + cols, part, mask=cols < d)
