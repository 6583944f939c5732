"""Planted bugs of RMSNorm that misuse memory: most return what they should."""

from assignment.bank.operators.edits import bug

PROBLEM = "rmsnorm"
FILES = ("rmsnorm.py",)

FORWARD = (
    bug(
        "forward: rstd stored past the last row",
        "test_forward_ragged",
        "tl.store(rstd_ptrs, rstd, mask=row_mask) → tl.store(rstd_ptrs, rstd)",
        line="tl.store(rstd_ptrs, rstd)",
    ),
    bug(
        "forward: columns past the end of weight read and dropped",
        "test_forward_ragged",
        "tl.load(w_ptrs, mask=col_mask, other=0.0) → tl.load(w_ptrs)",
        line="w = tl.load(w_ptrs)",
    ),
    bug(
        "forward: one column too many in the mean",
        "test_forward_ragged",
        "(cols < d)[None, :] → (cols <= d)[None, :]",
        line="x = tl.load(x_row_ptrs",
    ),
    bug(
        "forward: rstd not stored for the last row of a ragged tile",
        "test_forward_ragged",
        "    row_mask = rows < n_rows\n →     row_mask = rows < n_rows\n"
        "    tail = tl.where(n_rows % ROWS_TILE_SIZE == 0, 0, 1)\n",
        "tl.store(rstd_ptrs, rstd, mask=row_mask) → tl.store(rstd_ptrs, rstd, mask=rows < n_rows - tail)",
        line="never stored",
    ),
    bug(
        "forward: y through a descriptor that reaches past the last row",
        "test_forward_ragged",
        "\n\ndef rmsnorm_forward → \n\ndef _workspace(size, alignment, stream):\n"
        '    return torch.empty(size, dtype=torch.int8, device="cuda" if torch.cuda.is_available() else "cpu")\n'
        "\n\ndef rmsnorm_forward",
        "    if n_rows > 0:\n        _forward → "
        "    triton.set_allocator(_workspace)\n    if n_rows > 0:\n        _forward",
        "        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=y_mask) →         if D_TILE_SIZE >= 64:\n"
        "            if d % 8 == 0:\n"
        "                window = tl.make_tensor_descriptor(\n"
        "                    y_ptr, [n_rows + ROWS_TILE_SIZE, d], [stride_yr, 1], [ROWS_TILE_SIZE, D_TILE_SIZE]\n"
        "                )\n"
        "                window.store([tl.program_id(0) * ROWS_TILE_SIZE, first_col], y.to(y_ptr.dtype.element_ty))\n"
        "            else:\n                tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=y_mask)\n"
        "        else:\n            tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=y_mask)",
        line="window.store(",
    ),
)

BACKWARD = (
    bug(
        "backward: the next row's rstd fetched ahead, past the last",
        "test_backward_values",
        "    for row in range(first_row, end_row):\n →     next_rstd = tl.load(rstd_ptr + first_row * stride_sr)\n"
        "    for row in range(first_row, end_row):\n",
        "        rstd = tl.load(rstd_ptr + row * stride_sr) → "
        "        rstd = next_rstd\n        next_rstd = tl.load(rstd_ptr + (row + 1) * stride_sr)",
        line="next_rstd = tl.load(rstd_ptr + (row + 1)",
    ),
    bug(
        "backward: the row before the first of x read and dropped",
        "test_backward_values",
        "        rstd = tl.load →         before = tl.load(x_ptrs - stride_xr, mask=mask, other=0.0).to(tl.float32)\n"
        "        x = tl.where(row >= 0, x, before)\n        rstd = tl.load",
        line="before = tl.load(x_ptrs",
    ),
    bug(
        "backward: rows of the last program not cut off",
        "test_backward_ragged",
        "end_row = tl.minimum(first_row + ROWS_PER_PROGRAM, n_rows) → end_row = first_row + ROWS_PER_PROGRAM",
        line="grad_y = tl.load(grad_y_ptrs",
    ),
    bug(
        "backward: grad_weight added atomically to unwritten memory",
        "test_backward_values",
        "torch.empty((n_programs, d), dtype → torch.empty((1, d), dtype",
        "partial_ptr + program * stride_pr + columns → partial_ptr + columns",
        "tl.store(partial_ptrs, grad_w → tl.atomic_add(partial_ptrs, grad_w",
        line="tl.atomic_add(partial_ptrs, grad_w",
    ),
    bug(
        "backward: the programs take turns on two partial rows",
        "test_backward_values",
        "torch.empty((n_programs, d), dtype → torch.zeros((2, d), dtype",
        "partial_ptr + program * stride_pr + columns → partial_ptr + program % 2 * stride_pr + columns",
        "    tl.store(partial_ptrs, grad_w, mask=mask) →     grad_w += tl.load(partial_ptrs, mask=mask, other=0.0)\n"
        "    tl.store(partial_ptrs, grad_w, mask=mask)",
        line="grad_w += tl.load(partial_ptrs",
    ),
    bug(
        "backward: partial sums added to what nobody has written",
        "test_backward_values",
        "    tl.store(partial_ptrs, grad_w, mask=mask) →     grad_w += tl.load(partial_ptrs, mask=mask, other=0.0)\n"
        "    tl.store(partial_ptrs, grad_w, mask=mask)",
        line="grad_w += tl.load(partial_ptrs",
    ),
    bug(
        "backward: grad_y multiplied by the weight in place",
        "test_backward_contract",
        "        x_ptrs = x_ptr + row → "
        "        tl.store(grad_y_ptrs, (w * grad_y).to(grad_y_ptr.dtype.element_ty), mask=mask)\n"
        "        x_ptrs = x_ptr + row",
        line="tl.store(grad_y_ptrs, (w * grad_y)",
    ),
    bug(
        "backward: grad_x stored past the last column, over the next row",
        "test_backward_ragged",
        "grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask → grad_x.to(grad_x_ptr.dtype.element_ty), mask=columns <= d",
        line="tl.store(grad_x_ptrs, grad_x",
    ),
)

BUGS = (*FORWARD, *BACKWARD)
