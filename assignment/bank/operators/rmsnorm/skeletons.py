# BEGIN SOLUTION
"""The kernel that students begin with, filled in as the chapter's box says; the reference has a faster grid.

`python -m assignment.release` adds it to the stubs.
"""

import torch
import triton
import triton.language as tl


def rmsnorm_backward(grad_y, x, weight, rstd):
    _check_x_and_weight(x, weight)  # type: ignore[name-defined]  # noqa: F821, of solution.py
    _check_grad_y_and_rstd(grad_y, rstd, x)  # type: ignore[name-defined]  # noqa: F821
    d = x.shape[-1]
    grad_y_rows, x_rows, rstd_rows = grad_y.reshape(-1, d), x.reshape(-1, d), rstd.reshape(-1)
    n_rows = x_rows.shape[0]
    d_tile_size = min(triton.next_power_of_2(d), 8192)
    rows_tile_size = max(1, 4096 // d_tile_size)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    n_programs = min(triton.cdiv(n_rows, rows_tile_size), 2 * multiprocessors)

    grad_x = x_rows.new_empty(n_rows, d)
    partial_grad_w = x_rows.new_zeros(n_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _rmsnorm_backward_kernel[(n_programs,)](
            grad_y_rows, x_rows, weight, rstd_rows, grad_x, partial_grad_w,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *rstd_rows.stride(),
            *grad_x.stride(), *partial_grad_w.stride(),
            n_rows, d,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
        )  # fmt: skip
    return grad_x.reshape(x.shape), partial_grad_w.sum(dim=0).to(weight.dtype)


# END SOLUTION
@triton.jit
def _rmsnorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, rstd_ptr, grad_x_ptr, partial_grad_w_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_rstdr,
    stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, x and grad_x (n_rows, d), w (d,), rstd (n_rows,), partial_grad_w (n_programs, d) in float32: the part of
    grad_weight that comes from the rows of one program, zeros at first.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    # BEGIN SOLUTION handout/rmsnorm.md
    program = tl.program_id(0).to(tl.int64)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(program * ROWS_TILE_SIZE, n_rows, tl.num_programs(0) * ROWS_TILE_SIZE):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=row_mask, other=0.0)[:, None]
        if IS_ONE_TILE:
            cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
            col_mask = cols < d
            mask = row_mask[:, None] & col_mask[None, :]
            w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
            grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
            x_hat = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) * rstd
            h = grad_y * w
            dot = tl.sum(h * x_hat, axis=1)
            grad_x = rstd * (h - x_hat * dot[:, None] / d)
            grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
            tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
            grad_w += tl.sum(grad_y * x_hat, axis=0)
        else:
            dot = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
            for first in range(0, d, D_TILE_SIZE):
                cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
                col_mask = cols < d
                mask = row_mask[:, None] & col_mask[None, :]
                w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
                grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
                x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
                grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
                x_hat = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) * rstd
                dot += tl.sum(grad_y * w * x_hat, axis=1)
            for first in range(0, d, D_TILE_SIZE):
                cols = first + tl.arange(0, D_TILE_SIZE).to(tl.int64)
                col_mask = cols < d
                mask = row_mask[:, None] & col_mask[None, :]
                w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
                grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
                x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
                grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
                x_hat = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) * rstd
                grad_x = rstd * (grad_y * w - x_hat * dot[:, None] / d)
                grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
                tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
                partial_ptrs = partial_grad_w_ptr + program * stride_pr + cols * stride_pd
                sums = tl.load(partial_ptrs, mask=col_mask, other=0.0) + tl.sum(grad_y * x_hat, axis=0)
                tl.store(partial_ptrs, sums, mask=col_mask)
    if IS_ONE_TILE:
        cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
        tl.store(partial_grad_w_ptr + program * stride_pr + cols * stride_pd, grad_w, mask=cols < d)
    # END SOLUTION
