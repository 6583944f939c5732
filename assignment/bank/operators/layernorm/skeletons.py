# BEGIN SOLUTION
"""The kernel that students begin with, filled in as the chapter's box says; the reference has a faster grid.

`python -m assignment.release` adds it to the stubs.
"""

import torch
import triton
import triton.language as tl


def layernorm_backward(grad_y, x, weight, mean, rstd):
    _check_inputs(x, weight)  # type: ignore[name-defined]  # noqa: F821, of solution.py
    _check_gradient(grad_y, mean, rstd, x)  # type: ignore[name-defined]  # noqa: F821
    d = x.shape[-1]
    grad_y_rows, x_rows = grad_y.reshape(-1, d), x.reshape(-1, d)
    mean_rows, rstd_rows = mean.reshape(-1), rstd.reshape(-1)
    n_rows = x_rows.shape[0]
    d_tile_size = min(triton.next_power_of_2(d), 8192)
    rows_tile_size = max(1, 4096 // d_tile_size)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    n_programs = min(triton.cdiv(n_rows, rows_tile_size), 2 * multiprocessors)

    grad_x = x_rows.new_empty(n_rows, d)
    partials = x_rows.new_zeros(2, n_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _layernorm_backward_kernel[(n_programs,)](
            grad_y_rows, x_rows, weight, mean_rows, rstd_rows, grad_x, partials,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *mean_rows.stride(), *rstd_rows.stride(),
            *grad_x.stride(), *partials.stride(),
            n_rows, d,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
        )  # fmt: skip
    grad_weight, grad_bias = partials.sum(dim=1).to(weight.dtype)
    return grad_x.reshape(x.shape), grad_weight, grad_bias


# END SOLUTION
@triton.jit
def _layernorm_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_xr, stride_xd, stride_wd, stride_mr, stride_sr,
    stride_gxr, stride_gxd, stride_pk, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, x and grad_x (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_programs, d) in float32: the
    parts of grad_weight and grad_bias that come from the rows of one program, zeros at first.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    # BEGIN SOLUTION handout/layernorm.md
    partial_ptr = partials_ptr + tl.program_id(0).to(tl.int64) * stride_pr
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    grad_b = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(tl.program_id(0) * ROWS_TILE_SIZE, n_rows, tl.num_programs(0) * ROWS_TILE_SIZE):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        mean = tl.load(mean_ptr + rows * stride_mr, mask=row_mask, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows * stride_sr, mask=row_mask, other=0.0)[:, None]
        if IS_ONE_TILE:
            mask = row_mask[:, None] & (cols < d)[None, :]
            w = tl.load(w_ptr + cols * stride_wd, mask=cols < d, other=0.0).to(tl.float32)
            grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + cols[None, :] * stride_gyd
            x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
            grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
            x_hat = (tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
            h = grad_y * w
            h_mean = tl.sum(h, axis=1)[:, None] / d
            along = tl.sum(h * x_hat, axis=1)[:, None] / d
            grad_x = rstd * (h - h_mean - x_hat * along)
            grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
            tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
            grad_w += tl.sum(grad_y * x_hat, axis=0)
            grad_b += tl.sum(grad_y, axis=0)
        else:
            h_sum = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
            along_sum = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
            for first in range(0, d, D_TILE_SIZE):
                at = first + cols
                mask = row_mask[:, None] & (at < d)[None, :]
                w = tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32)
                grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + at[None, :] * stride_gyd
                x_ptrs = x_ptr + rows[:, None] * stride_xr + at[None, :] * stride_xd
                h = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32) * w
                x_hat = (tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
                h_sum += tl.sum(h, axis=1)
                along_sum += tl.sum(h * x_hat, axis=1)
            for first in range(0, d, D_TILE_SIZE):
                at = first + cols
                mask = row_mask[:, None] & (at < d)[None, :]
                w = tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32)
                grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + at[None, :] * stride_gyd
                x_ptrs = x_ptr + rows[:, None] * stride_xr + at[None, :] * stride_xd
                grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
                x_hat = (tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
                grad_x = rstd * (grad_y * w - h_sum[:, None] / d - x_hat * along_sum[:, None] / d)
                grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + at[None, :] * stride_gxd
                tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
                partial_ptrs = partial_ptr + at * stride_pd
                grad_w_sums = tl.load(partial_ptrs, mask=at < d, other=0.0) + tl.sum(grad_y * x_hat, axis=0)
                tl.store(partial_ptrs, grad_w_sums, mask=at < d)
                grad_b_sums = tl.load(partial_ptrs + stride_pk, mask=at < d, other=0.0) + tl.sum(grad_y, axis=0)
                tl.store(partial_ptrs + stride_pk, grad_b_sums, mask=at < d)
    if IS_ONE_TILE:
        tl.store(partial_ptr + cols * stride_pd, grad_w, mask=cols < d)
        tl.store(partial_ptr + stride_pk + cols * stride_pd, grad_b, mask=cols < d)
    # END SOLUTION
