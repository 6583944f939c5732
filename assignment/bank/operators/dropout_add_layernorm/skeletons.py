# BEGIN SOLUTION
"""The kernel that students begin with, filled in as the chapter's box says; the reference has a faster grid.

`python -m assignment.release` adds it to the stubs.
"""

import torch
import triton
import triton.language as tl


def dropout_add_layernorm_backward(grad_y, summed, weight, mean, rstd, p=0.1, seed=0):
    _check_inputs(p, summed, weight)  # type: ignore[name-defined]  # noqa: F821, of solution.py
    _check_like(summed, grad_y)  # type: ignore[name-defined]  # noqa: F821
    _check_statistics(summed, mean, rstd)  # type: ignore[name-defined]  # noqa: F821
    d = summed.shape[-1]
    grad_y_rows, summed_rows = grad_y.reshape(-1, d), summed.reshape(-1, d)
    mean_rows, rstd_rows = mean.reshape(-1), rstd.reshape(-1)
    n_rows = summed_rows.shape[0]
    d_tile_size = min(triton.next_power_of_2(d), 8192)
    rows_tile_size = max(1, 4096 // d_tile_size)
    multiprocessors = torch.cuda.get_device_properties(summed.device).multi_processor_count
    n_programs = min(triton.cdiv(n_rows, rows_tile_size), 2 * multiprocessors)

    grad_x, grad_residual = (summed_rows.new_empty(n_rows, d) for _ in range(2))
    partials = summed_rows.new_zeros(2, n_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _backward_kernel[(n_programs,)](
            grad_y_rows, summed_rows, weight, mean_rows, rstd_rows, grad_x, grad_residual, partials,
            *grad_y_rows.stride(), *summed_rows.stride(), *weight.stride(), *mean_rows.stride(), *rstd_rows.stride(),
            n_rows, d, float(p), 1 / (1 - p), seed,
            ROWS_TILE_SIZE=rows_tile_size, D_TILE_SIZE=d_tile_size, IS_ONE_TILE=d <= d_tile_size,
        )  # fmt: skip
    grad_weight, grad_bias = partials.sum(dim=1).to(weight.dtype)
    return grad_x.reshape(summed.shape), grad_residual.reshape(summed.shape), grad_weight, grad_bias


# END SOLUTION
@triton.jit
def _backward_kernel(
    grad_y_ptr, summed_ptr, w_ptr, mean_ptr, rstd_ptr, grad_x_ptr, grad_residual_ptr, partials_ptr,
    stride_gyr, stride_gyd, stride_sr, stride_sd, stride_wd, stride_mr, stride_rstdr,
    n_rows, d, p, scale, seed,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr, IS_ONE_TILE: tl.constexpr,
):  # fmt: skip
    """One program a share of the row tiles, every n_programs-th of them; it walks along the columns of each twice.

    grad_y, summed, grad_x and grad_residual (n_rows, d), w (d,), mean and rstd (n_rows,), partials (2, n_programs, d)
    in float32: the parts of grad_weight and grad_bias that come from the rows of one program, zeros at first.
    scale is 1 / (1 − p); grad_x, grad_residual and partials are contiguous.
    IS_ONE_TILE: d <= D_TILE_SIZE; both walks then share one load, and column sums stay in registers until the end.
    Grid: (n_programs,).
    """
    # BEGIN SOLUTION handout/dropout_add_layernorm.md
    partial_ptr = partials_ptr + tl.program_id(0).to(tl.int64) * d
    to_grad_b = tl.num_programs(0).to(tl.int64) * d
    cols = tl.arange(0, D_TILE_SIZE).to(tl.int64)
    dtype = grad_x_ptr.dtype.element_ty
    grad_w = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    grad_b = tl.zeros((D_TILE_SIZE,), dtype=tl.float32)
    for start in range(tl.program_id(0) * ROWS_TILE_SIZE, n_rows, tl.num_programs(0) * ROWS_TILE_SIZE):
        rows = start + tl.arange(0, ROWS_TILE_SIZE).to(tl.int64)
        row_mask = rows < n_rows
        mean = tl.load(mean_ptr + rows * stride_mr, mask=row_mask, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows * stride_rstdr, mask=row_mask, other=0.0)[:, None]
        h_sum = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
        along_sum = tl.zeros((ROWS_TILE_SIZE,), dtype=tl.float32)
        if not IS_ONE_TILE:
            for first in range(0, d, D_TILE_SIZE):
                at = first + cols
                mask = row_mask[:, None] & (at < d)[None, :]
                w = tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32)
                grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + at[None, :] * stride_gyd
                summed_ptrs = summed_ptr + rows[:, None] * stride_sr + at[None, :] * stride_sd
                h = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32) * w
                x_hat = (tl.load(summed_ptrs, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
                h_sum += tl.sum(h, axis=1)
                along_sum += tl.sum(h * x_hat, axis=1)
        for first in range(0, d, D_TILE_SIZE):
            at = first + cols
            mask = row_mask[:, None] & (at < d)[None, :]
            indices = rows[:, None] * d + at[None, :]
            w = tl.load(w_ptr + at * stride_wd, mask=at < d, other=0.0).to(tl.float32)
            grad_y_ptrs = grad_y_ptr + rows[:, None] * stride_gyr + at[None, :] * stride_gyd
            summed_ptrs = summed_ptr + rows[:, None] * stride_sr + at[None, :] * stride_sd
            grad_y = tl.load(grad_y_ptrs, mask=mask, other=0.0).to(tl.float32)
            x_hat = (tl.load(summed_ptrs, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
            h = grad_y * w
            if IS_ONE_TILE:
                h_sum = tl.sum(h, axis=1)
                along_sum = tl.sum(h * x_hat, axis=1)
            grad_residual = rstd * (h - h_sum[:, None] / d - x_hat * along_sum[:, None] / d)
            keep = tl.rand(seed, indices) >= p
            tl.store(grad_residual_ptr + indices, grad_residual.to(dtype), mask=mask)
            tl.store(grad_x_ptr + indices, tl.where(keep, grad_residual * scale, 0.0).to(dtype), mask=mask)
            if IS_ONE_TILE:
                grad_w += tl.sum(grad_y * x_hat, axis=0)
                grad_b += tl.sum(grad_y, axis=0)
            else:
                partial_ptrs = partial_ptr + at
                grad_w_sums = tl.load(partial_ptrs, mask=at < d, other=0.0) + tl.sum(grad_y * x_hat, axis=0)
                tl.store(partial_ptrs, grad_w_sums, mask=at < d)
                grad_b_sums = tl.load(partial_ptrs + to_grad_b, mask=at < d, other=0.0) + tl.sum(grad_y, axis=0)
                tl.store(partial_ptrs + to_grad_b, grad_b_sums, mask=at < d)
    if IS_ONE_TILE:
        tl.store(partial_ptr + cols, grad_w, mask=cols < d)
        tl.store(partial_ptr + to_grad_b + cols, grad_b, mask=cols < d)
    # END SOLUTION
