"""Planted bugs of the weighted sum that misuse memory: most return what they should."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

ONE_PARTIAL_ROW = (
    "torch.empty((n_tiles, d), dtype → torch.zeros((1, d), dtype",
    "partial_ptr + tile * stride_pr + cols → partial_ptr + cols",
)

FORWARD = (
    bug(
        "forward: rows past the end of x read and dropped",
        "test_forward_ragged",
        "x_mask = row_mask[:, None] & col_mask[None, :] → x_mask = col_mask[None, :]",
        line="x = tl.load(x_ptrs",
    ),
    bug(
        "forward: one entry past the end of weight read",
        "test_forward_ragged",
        "w_ptrs, mask=col_mask, other=0.0 → w_ptrs, mask=cols <= d, other=0.0",
        line="w = tl.load(w_ptrs",
    ),
    bug(
        "forward: the entry before the first of weight read",
        "test_forward_values",
        "        y += tl.sum( →         before = tl.load(w_ptrs - stride_wd, mask=col_mask, other=0.0).to(tl.float32)\n"
        "        w = tl.where(cols >= 0, w, before)\n        y += tl.sum(",
        line="before = tl.load(w_ptrs",
    ),
    bug(
        "forward: what lies between the rows of x read and dropped",
        "test_forward_strides",
        "\nD_TILE_SIZE = 64 → \nD_TILE_SIZE = 256",
        "x = tl.load(x_ptrs, mask=x_mask, other=0.0).to(tl.float32) → "
        "x = tl.load(x_ptrs, mask=row_mask[:, None], other=0.0).to(tl.float32)\n"
        "        x = tl.where(col_mask[None, :], x, 0.0)",
        line="x = tl.load(x_ptrs",
    ),
    bug(
        "forward: x stored back where it was read",
        "test_forward_values",
        "        w_ptrs =  →         tl.store(x_ptrs, x.to(x_ptr.dtype.element_ty), mask=x_mask)\n        w_ptrs = ",
        line="tl.store(x_ptrs, x",
    ),
)

RESTORED = (
    bug(
        "forward: x overwritten by PyTorch and restored",
        "test_forward_values",
        "    n_rows = x_rows.shape[0]\n    y = → "
        "    n_rows = x_rows.shape[0]\n    kept = x.clone()\n    x.zero_()\n    x.copy_(kept)\n    y =",
        named="argument 0 was written to",
    ),
    bug(
        "backward: weight cleaned up where it lies",
        "test_backward_values",
        "    _check_backward(grad_y, x, weight) →     _check_backward(grad_y, x, weight)\n    weight.nan_to_num_()",
        named="argument 2 was written to",
    ),
)
BEFORE_THE_SUM = "        y += tl.sum(x * w[None, :], axis=1)"
UNDEFINED = (
    bug(
        "forward: weights gathered at indices from the end",
        "test_forward_values",
        f"{BEFORE_THE_SUM} →         w = tl.gather(w, tl.arange(0, D_TILE_SIZE) - D_TILE_SIZE, 0)\n{BEFORE_THE_SUM}",
        line="w = tl.gather(w",
    ),
    bug(
        "forward: what a number divided by 0 gives decides",
        "test_forward_values",
        f"{BEFORE_THE_SUM} → {BEFORE_THE_SUM}\n        y = tl.where(n_rows // (d - d) == 0, y, 0.0)",
        line="y = tl.where(n_rows // (d - d)",
    ),
    bug(
        "forward: what a shift by the width gives decides",
        "test_forward_values",
        f"{BEFORE_THE_SUM} → {BEFORE_THE_SUM}\n        y = tl.where(rows >> 64 == 0, y, 0.0)",
        line="y = tl.where(rows >> 64",
    ),
    bug(
        "forward: what a clamp between bounds the wrong way round gives decides",
        "test_forward_values",
        f"{BEFORE_THE_SUM} → {BEFORE_THE_SUM}\n        y = tl.where(tl.clamp(y, 1.0, -1.0) > 2.0, 0.0, y)",
        line="y = tl.where(tl.clamp(",
    ),
    bug(
        "backward: what an atomic returns in masked-out lanes is added up",
        "test_backward_ragged",
        *ONE_PARTIAL_ROW,
        "        tl.store(partial_ptrs, partial, mask=in_cols) → "
        "        before = tl.atomic_add(partial_ptrs, partial, mask=in_cols)\n"
        "        unset = tl.sum(tl.where(in_cols, 0.0, before))\n"
        "        tl.store(grad_x_ptrs, (grad_x + unset).to(grad_x_ptr.dtype.element_ty), mask=mask)",
        line="before = tl.atomic_add(",
    ),
)

BACKWARD = (
    bug(
        "backward: one row past the end of grad_y read and dropped",
        "test_backward_ragged",
        "grad_y_ptrs, mask=in_rows, → grad_y_ptrs, mask=rows <= n_rows,",
        line="grad_y = tl.load(grad_y_ptrs",
    ),
    bug(
        "backward: one program too many, which stores a partial row",
        "test_backward_values",
        "_backward_kernel[(n_tiles,)] → _backward_kernel[(n_tiles + 1,)]",
        line="tl.store(partial_ptrs, partial",
    ),
    bug(
        "backward: one partial row too few",
        "test_backward_values",
        "torch.empty((n_tiles, d), dtype → torch.empty((max(n_tiles - 1, 0), d), dtype",
        line="tl.store(partial_ptrs, partial",
    ),
    bug(
        "backward: two programs share a partial row",
        "test_backward_values",
        "partial_ptr + tile * stride_pr → partial_ptr + tile // 2 * stride_pr",
        line="tl.store(partial_ptrs, partial",
    ),
    bug(
        "backward: added atomically to unwritten memory",
        "test_backward_values",
        "torch.empty((n_tiles, d), dtype → torch.empty((1, d), dtype",
        "partial_ptr + tile * stride_pr + cols → partial_ptr + cols",
        "tl.store(partial_ptrs, partial → tl.atomic_add(partial_ptrs, partial",
        line="tl.atomic_add(partial_ptrs, partial",
    ),
    bug(
        "backward: the first program stores, the others add atomically",
        "test_backward_values",
        *ONE_PARTIAL_ROW,
        "        tl.store(partial_ptrs, partial, mask=in_cols) →         if tile == 0:\n"
        "            tl.store(partial_ptrs, partial, mask=in_cols)\n        else:\n"
        "            tl.atomic_add(partial_ptrs, partial, mask=in_cols)",
        line="tl.store(partial_ptrs, partial",
    ),
    bug(
        "backward: grad_x stored with x's row stride",
        "test_backward_strides",
        "grad_x_ptr + rows[:, None] * stride_gxr → grad_x_ptr + rows[:, None] * stride_xr",
        line="tl.store(grad_x_ptrs, grad_x",
    ),
)

BUGS = (*FORWARD, *RESTORED, *UNDEFINED, *BACKWARD)
