"""Weighted sum for CUDA alone: asks about the GPU when it is imported, insists on it, and keeps a workspace there.

As many programs as multiprocessors stride over the rows; partial sums of the weight's gradient go to a workspace that
lives from call to call.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor
from triton.runtime import driver

DEVICE = driver.active.get_active_torch_device()
N_PROGRAMS = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
IS_HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
ZERO = torch.zeros((), device="cuda")
_workspaces: dict[int, Tensor] = {}


def weighted_sum_forward(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    _check(x, weight)
    d = x.shape[-1]
    rows = x.reshape(-1, d)
    y = torch.empty(x.shape[:-1], device="cuda", dtype=x.dtype)
    if y.numel():
        with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
            _dot_kernel[(min(N_PROGRAMS, len(rows)),)](
                rows, weight, y, *rows.stride(), *weight.stride(), len(rows), d, **_tile(d)
            )
        torch.cuda.synchronize()
    return y


def weighted_sum_backward(
    grad_y: Float[Tensor, "*batch"], x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if grad_y.shape != x.shape[:-1] or grad_y.dtype != x.dtype:
        raise ValueError(f"expected grad_y {tuple(x.shape[:-1])} {x.dtype}, got {tuple(grad_y.shape)} {grad_y.dtype}")
    d = x.shape[-1]
    rows, grads = x.reshape(-1, d), grad_y.cuda().reshape(-1)
    grad_x = torch.empty(rows.shape, dtype=x.dtype, device=DEVICE)
    if not len(rows):
        return grad_x.reshape(x.shape), ZERO.expand(d).to(weight.dtype).clone()
    n_programs = min(N_PROGRAMS, len(rows))
    partials = _workspace(d)[:n_programs]
    _scale_kernel[(n_programs,)](
        grads, rows, weight, grad_x, partials,
        *grads.stride(), *rows.stride(), *weight.stride(),
        len(rows), d,
        **_tile(d),
    )  # fmt: skip
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    torch.cuda.current_stream().wait_event(event)
    return grad_x.reshape(x.shape), partials.sum(dim=0).to(weight.dtype)


def weighted_sum(x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"]) -> Float[Tensor, "*batch"]:
    return _WeightedSum.apply(x, weight)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weighted_sum_forward(x, weight)

    @staticmethod
    def backward(ctx, grad_y):
        assert grad_y.is_cuda
        assert grad_y.device.type == "cuda"
        assert grad_y.get_device() == 0
        return weighted_sum_backward(grad_y, *ctx.saved_tensors)


def _check(x: Tensor, weight: Tensor) -> None:
    assert x.is_cuda, "expected x on a GPU"
    assert weight.device == x.device
    if x.ndim < 1 or weight.shape != x.shape[-1:]:
        raise ValueError(f"expected x (..., d) and weight (d,), got {tuple(x.shape)} and {tuple(weight.shape)}")
    if x.dtype != weight.dtype:
        raise ValueError(f"expected x and weight in one dtype, got {x.dtype} and {weight.dtype}")


def _workspace(d: int) -> Tensor:
    if d not in _workspaces:
        _workspaces[d] = torch.empty((N_PROGRAMS, d), device=DEVICE)
    return _workspaces[d]


def _tile(d: int) -> dict[str, int]:
    block = triton.next_power_of_2(d)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 4 if IS_HOPPER else 1), 32)}


@triton.jit
def _dot_kernel(x_ptr, w_ptr, y_ptr, stride_xr, stride_xd, stride_wd, n_rows, d, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0).to(tl.float32)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x = tl.load(x_ptr + tl.cast(row, tl.int64) * stride_xr + cols * stride_xd, mask=inside, other=0).to(tl.float32)
        tl.store(y_ptr + row, tl.sum(x * w, axis=0))


@triton.jit
def _scale_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partial_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd,
    n_rows, d,
    BLOCK: tl.constexpr,
):  # fmt: skip
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < d
    w = tl.load(w_ptr + cols * stride_wd, mask=inside, other=0).to(tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(i, tl.int64)
        grad_y = tl.load(grad_y_ptr + row * stride_gyr).to(tl.float32)
        tl.store(grad_x_ptr + row * d + cols, grad_y * w, mask=inside)
        total += grad_y * tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=inside, other=0).to(tl.float32)
    tl.store(partial_ptr + tl.program_id(0).to(tl.int64) * d + cols, total, mask=inside)
