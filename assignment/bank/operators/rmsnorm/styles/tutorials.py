"""Styles of Triton's tutorials, and of unsloth, a program a row."""

from assignment.bank.operators.edits import style
from assignment.bank.operators.rmsnorm.styles.parts import (
    FILES,
    PROBLEMS,
    above,
    other_backward,
    other_forward,
)

__all__ = ["FILES", "PROBLEMS", "STYLES"]

STYLES = (
    style(  # as Triton's tutorials: forward like their fused softmax, as many programs as a compilation first says;
        # backward like layer norm's, each row added to one of a few buffers under a lock, which a second kernel adds up
        "rmsnorm_tutorials",
        ("import triton.language as tl\n", "import triton.language as tl\nfrom triton.runtime import driver\n"),
        above("NUM_WARPS = 8\n"),
        *other_forward(
            """\
        device = driver.active.get_current_device()
        properties = driver.active.utils.get_device_properties(device)
        block = triton.next_power_of_2(d)
        fitting = properties["max_shared_mem"] // (block * x.element_size())  # rows that wait in shared memory
        stages = max(1, min(4, fitting))
        args = x_rows, weight, y, rstd, *x_rows.stride(), *weight.stride(), n_rows, d, eps, block, stages
        kernel = _forward_kernel.warmup(*args, num_warps=NUM_WARPS, grid=(1,))
        kernel._init_handles()
        occupancy = properties["max_num_regs"] // (kernel.n_regs * properties["warpSize"] * NUM_WARPS)
        if kernel.metadata.shared > 0:
            occupancy = min(occupancy, properties["max_shared_mem"] // kernel.metadata.shared)
        n_programs = min(properties["multiprocessor_count"] * max(occupancy, 1), n_rows)
        kernel[(n_programs, 1, 1)](*args)
""",
            """\
@triton.jit
def _forward_kernel(
    x_ptr, w_ptr, y_ptr, rstd_ptr, stride_xr, stride_xd, stride_wd, n_rows, n_cols, eps,
    BLOCK_SIZE: tl.constexpr, STAGES: tl.constexpr,
):
    row_start = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = cols < n_cols
    w = tl.load(w_ptr + cols * stride_wd, mask=mask).to(tl.float32)
    for row in tl.range(row_start, n_rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=mask, other=0.0).to(tl.float32)
        rstd = 1 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + eps)
        tl.store(rstd_ptr + row, rstd)
        tl.store(y_ptr + row * n_cols + cols, x * rstd * w, mask=mask)
""",
        ),
        *other_backward(
            """\
    group = next((size for limit, size in ((1024, 256), (4096, 128), (8192, 96)) if d <= limit), 64)
    locks = torch.zeros(2 * group, dtype=torch.int32, device=x.device)
    shares = torch.zeros((group, d), dtype=torch.float32, device=x.device)
    grad_weight = torch.empty(d, dtype=weight.dtype, device=x.device)
    block = triton.next_power_of_2(d)
    _backward_kernel[(n_rows,)](
        grad_y_rows, x_matrix, weight, rstd_rows, grad_x, shares, locks,
        *grad_y_rows.stride(), *x_matrix.stride(), *weight.stride(), *rstd_rows.stride(),
        d, GROUP_SIZE=group, BLOCK_SIZE=block, num_warps=min(max(block // 256, 1), 8),
    )
    _add_shares_kernel[(triton.cdiv(d, 128),)](
        shares, grad_weight, min(group, n_rows), d, BLOCK_SIZE_M=32, BLOCK_SIZE_N=128
    )
""",
            '''\
@triton.jit
def _backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, shares_ptr, locks_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rr,
    n_cols, GROUP_SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
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
''',
        ),
    ),
    style(  # as unsloth: a program a row, pointers moved to it, a flag for Gemma's 1 + w, and rows that must be
        # contiguous within themselves alone; the weight's gradient is added by atomics, to 32 rows in turn
        "rmsnorm_unsloth",
        above(
            '''
MAX_FUSED_SIZE = 65536
SHARES = 32


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x as a matrix whose rows are contiguous."""
    x = x.reshape(-1, x.shape[-1])
    return x if x.stride(-1) == 1 else x.contiguous()


def _settings(n: int) -> tuple[int, int]:
    BLOCK_SIZE = triton.next_power_of_2(n)
    if BLOCK_SIZE > MAX_FUSED_SIZE:
        raise RuntimeError(f"Cannot launch Triton kernel since n = {n} exceeds {MAX_FUSED_SIZE}.")
    return BLOCK_SIZE, 32 if BLOCK_SIZE >= 32768 else 16 if BLOCK_SIZE >= 8192 else 8 if BLOCK_SIZE >= 2048 else 4
'''.replace("x: torch.Tensor) -> Tensor", "x: torch.Tensor) -> torch.Tensor")
        ),
        ("    x_rows = x.reshape(-1, d)\n", "    x_rows, W = _rows(x), _rows(weight[None, :])[0]\n"),
        *other_forward(
            """\
        BLOCK_SIZE, num_warps = _settings(d)
        with torch.cuda.device(x.device):
            _rms_layernorm_forward[(n_rows,)](
                y, y.stride(0), x_rows, x_rows.stride(0), W, W.stride(0), rstd, rstd.stride(0), d, eps,
                GEMMA=False, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
            )
""",
            """\
@triton.jit
def _rms_layernorm_forward(
    Y, Y_row_stride: tl.constexpr, X, X_row_stride, W, W_row_stride: tl.constexpr, r, r_row_stride: tl.constexpr,
    n_cols: tl.constexpr, eps: tl.constexpr, GEMMA: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
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
""",
        ),
        *other_backward(
            """\
    dY, X, W, r = _rows(grad_y), _rows(x), _rows(weight[None, :])[0], rstd_rows
    dW = torch.zeros((SHARES, d), dtype=torch.float32, device=x.device)
    BLOCK_SIZE, num_warps = _settings(d)
    with torch.cuda.device(x.device):
        _rms_layernorm_backward[(n_rows,)](
            dY, dY.stride(0), grad_x, grad_x.stride(0), X, X.stride(0), W, W.stride(0), r, r.stride(0),
            dW, dW.stride(0), d, GEMMA=False, SHARES=SHARES, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
        )
    grad_weight = dW.sum(0)
""",
            """\
@triton.heuristics({"GEMMA": lambda args: bool(args["GEMMA"])})
@triton.jit
def _rms_layernorm_backward(
    dY, dY_row_stride, dX, dX_row_stride: tl.constexpr, X, X_row_stride, W, W_row_stride: tl.constexpr,
    r, r_row_stride, dW, dW_row_stride: tl.constexpr, n_cols: tl.constexpr,
    GEMMA: tl.constexpr, SHARES: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):
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
""",
        ),
    ),
)
