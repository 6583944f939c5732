# BEGIN SOLUTION
"""The kernel that students begin with, filled in as the chapter's box says; the reference has a faster grid.

`python -m assignment.release` adds it to the stubs.
"""

import torch
import triton
import triton.language as tl


def weighted_sum_backward(grad_y, x, weight):
    _check_x_and_weight(x, weight)  # type: ignore[name-defined]  # noqa: F821, of solution.py
    _check_grad_y(grad_y, x)  # type: ignore[name-defined]  # noqa: F821
    x_rows, grad_y_rows = x.reshape(-1, x.shape[-1]), grad_y.reshape(-1)
    n_rows, d = x_rows.shape
    n_programs = triton.cdiv(n_rows, 16)

    grad_x = x_rows.new_empty(n_rows, d)
    partial_grad_w = x_rows.new_empty(n_programs, d, dtype=torch.float32)
    if n_rows > 0:
        _weighted_sum_backward_kernel[(n_programs,)](
            grad_y_rows, x_rows, weight, grad_x, partial_grad_w,
            *grad_y_rows.stride(), *x_rows.stride(), *weight.stride(), *grad_x.stride(), *partial_grad_w.stride(),
            n_rows, d,
            ROWS_TILE_SIZE=16, D_TILE_SIZE=256,
        )  # fmt: skip
    return grad_x.reshape(x.shape), partial_grad_w.sum(dim=0).to(weight.dtype)


# END SOLUTION
@triton.jit
def _weighted_sum_backward_kernel(
    grad_y_ptr, x_ptr, w_ptr, grad_x_ptr, partial_grad_w_ptr,
    stride_gyr, stride_xr, stride_xd, stride_wd, stride_gxr, stride_gxd, stride_pr, stride_pd,
    n_rows, d,
    ROWS_TILE_SIZE: tl.constexpr, D_TILE_SIZE: tl.constexpr,
):  # fmt: skip
    """One program a tile of rows, which walks along the columns.

    grad_y (n_rows,), x and grad_x (n_rows, d), w (d,), partial_grad_w (n_programs, d) in float32: the part of
    grad_weight that comes from the rows of one program.
    Grid: (⌈n_rows / ROWS_TILE_SIZE⌉,).
    """
    # BEGIN SOLUTION handout/weighted_sum.md
    program = tl.program_id(0).to(tl.int64)
    rows = program * ROWS_TILE_SIZE + tl.arange(0, ROWS_TILE_SIZE)
    row_mask = rows < n_rows
    grad_y = tl.load(grad_y_ptr + rows * stride_gyr, mask=row_mask, other=0.0).to(tl.float32)
    for start in range(0, d, D_TILE_SIZE):
        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)
        col_mask = cols < d
        mask = row_mask[:, None] & col_mask[None, :]
        x_ptrs = x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd
        x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols * stride_wd, mask=col_mask, other=0.0).to(tl.float32)
        grad_x_ptrs = grad_x_ptr + rows[:, None] * stride_gxr + cols[None, :] * stride_gxd
        tl.store(grad_x_ptrs, (grad_y[:, None] * w[None, :]).to(grad_x_ptr.dtype.element_ty), mask=mask)
        sums = tl.sum(grad_y[:, None] * x, axis=0)
        tl.store(partial_grad_w_ptr + program * stride_pr + cols * stride_pd, sums, mask=col_mask)
    # END SOLUTION
