"""RMSNorm as Triton's tutorials would write it: the forward like their fused softmax, the backward like layer norm's.

Forward: persistent programs stride over the rows; how many, a compilation ahead of time says, by the registers and the
shared memory that it takes. Backward: a program a row adds its share of grad_weight to one of a few buffers under a
lock, and a second kernel adds up the buffers.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Float32
from torch import Tensor
from triton.runtime import driver

NUM_WARPS = 8


def rmsnorm_forward(
    x: Float[Tensor, "*batch d"], weight: Float[Tensor, " d"], eps: float = 1e-5
) -> tuple[Float[Tensor, "*batch d"], Float32[Tensor, "*batch"]]:
    _check(x, weight)
    x_ = x.reshape(-1, x.shape[-1])
    n_rows, n_cols = x_.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rstd = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    if n_rows > 0:
        device = driver.active.get_current_device()
        properties = driver.active.utils.get_device_properties(device)
        block = triton.next_power_of_2(n_cols)
        fitting = properties["max_shared_mem"] // (block * x.element_size())  # rows that wait in shared memory
        stages = max(1, min(4, fitting))
        args = x_, weight, y, rstd, *x_.stride(), *weight.stride(), n_rows, n_cols, eps, block, stages
        kernel = _forward_kernel.warmup(*args, num_warps=NUM_WARPS, grid=(1,))
        kernel._init_handles()
        occupancy = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * NUM_WARPS)
        if kernel.metadata.shared > 0:
            occupancy = min(occupancy, properties["max_shared_mem"] // kernel.metadata.shared)
        n_programs = min(properties["multiprocessor_count"] * max(occupancy, 1), n_rows)
        kernel[(n_programs, 1, 1)](*args)
    return y.view(x.shape), rstd.view(x.shape[:-1])


def rmsnorm_backward(
    grad_y: Float[Tensor, "*batch d"],
    x: Float[Tensor, "*batch d"],
    weight: Float[Tensor, " d"],
    rstd: Float32[Tensor, "*batch"],
) -> tuple[Float[Tensor, "*batch d"], Float[Tensor, " d"]]:
    _check(x, weight)
    if (grad_y.shape, grad_y.dtype, rstd.shape) != (x.shape, x.dtype, x.shape[:-1]):
        raise ValueError(f"expected grad_y {x.shape} in {x.dtype} and rstd {x.shape[:-1]}")
    grad_y_, x_, rstd_ = grad_y.reshape(-1, x.shape[-1]), x.reshape(-1, x.shape[-1]), rstd.reshape(-1)
    n_rows, n_cols = x_.shape
    grad_x = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows == 0:
        return grad_x.view(x.shape), torch.zeros_like(weight)
    group = next((size for limit, size in ((1024, 256), (4096, 128), (8192, 96)) if n_cols <= limit), 64)
    locks = torch.zeros(2 * group, dtype=torch.int32, device=x.device)
    shares = torch.zeros((group, n_cols), dtype=torch.float32, device=x.device)
    grad_w = torch.empty(n_cols, dtype=weight.dtype, device=x.device)
    block = triton.next_power_of_2(n_cols)
    _backward_kernel[(n_rows,)](
        grad_y_, x_, weight, rstd_, grad_x, shares, locks,
        *grad_y_.stride(), *x_.stride(), *weight.stride(), *rstd_.stride(),
        n_cols, GROUP_SIZE=group, BLOCK_SIZE=block, num_warps=min(max(block // 256, 1), 8),
    )  # fmt: skip
    _add_shares_kernel[(triton.cdiv(n_cols, 128),)](
        shares, grad_w, min(group, n_rows), n_cols, BLOCK_SIZE_M=32, BLOCK_SIZE_N=128
    )
    return grad_x.view(x.shape), grad_w


def _check(x: Tensor, weight: Tensor) -> None:
    if x.ndim == 0 or weight.shape != (x.shape[-1],) or weight.dtype != x.dtype:
        raise ValueError(f"expected x (..., d) and weight (d,) alike, got {x.shape} and {weight.shape}")


@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xr, stride_xd, stride_wd, n_rows, n_cols, eps,
    BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row_start = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    w = tl.load(w_ptr + cols * stride_wd, mask=mask).to(tl.float32)
    for row in tl.range(row_start, n_rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
        rstd = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
        tl.store(rstd_ptr + row, rstd)
        tl.store(y_ptr + row * n_cols + cols, x * rstd * w, mask=mask)


@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr, locks_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rr,
    n_cols, GROUP_SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    """A row; shares (GROUP_SIZE, n_cols); locks: a lock and a flag "has been written" for each of these."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    lock_ptr = locks_ptr + row % GROUP_SIZE
    written_ptr = lock_ptr + GROUP_SIZE
    share_ptrs = shares_ptr + row % GROUP_SIZE * n_cols + cols
    x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
    grad_y = tl.load(grad_y_ptr + row * stride_gyr + cols * stride_gyd, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols * stride_wd, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row * stride_rr)
    x_hat = x * rstd
    grad_x_hat = w * grad_y
    c1 = tl.sum(x_hat * grad_x_hat, axis=0) / n_cols
    tl.store(grad_x_ptr + row * n_cols + cols, (grad_x_hat - x_hat * c1) * rstd, mask=mask)
    share = grad_y * x_hat
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(written_ptr) == 0:
        tl.atomic_xchg(written_ptr, 1)
    else:
        share += tl.load(share_ptrs, mask=mask, other=0.0)
    tl.store(share_ptrs, share, mask=mask)
    tl.debug_barrier()  # all threads have stored before the lock is given back
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def _add_shares_kernel(
    shares_ptr, grad_w_ptr, n_shares, n_cols, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    cols = tl.program_id(0).to(tl.int64) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for start in range(0, n_shares, BLOCK_SIZE_M):
        rows = start + tl.arange(0, BLOCK_SIZE_M).to(tl.int64)
        mask = (rows[:, None] < n_shares) & (cols[None, :] < n_cols)
        total += tl.load(shares_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    tl.store(grad_w_ptr + cols, tl.sum(total, axis=0), mask=cols < n_cols)
