"""Planted bugs of the weighted sum: the backward pass."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

BUGS = (
    bug(
        "backward: the weight forgotten",
        "test_backward_values",
        "[:, None] * weight → [:, None] * in_cols",
        named="grad-x-without-the-weight",
    ),
    bug(
        "backward: grad_weight the mean of the tiles",
        "test_backward_values",
        ".sum(dim=0) → .mean(dim=0)",
        named="weighted-sum-mean-over-rows",
    ),
    bug(
        "backward: gradients in the wrong order",
        "test_backward_values",
        "grad_x.reshape(x.shape), grad_weight.to(weight.dtype) → grad_weight.to(weight.dtype), grad_x.reshape(x.shape)",
        named="grad_x has shape",
    ),
    bug(
        "backward: a partial row that nobody writes",
        "test_backward_values",
        "(n_tiles, d), → (n_tiles + 1, d),",
        named="never stored",
    ),
    bug(
        "backward: partial rows for half of the tiles",
        "test_backward_values",
        "torch.empty((n_tiles, d), dtype → torch.empty((triton.cdiv(n_tiles, 2), d), dtype",
        named="tl.store(partial_ptrs, partial, mask=in_cols)",
    ),
    bug(
        "backward: every tile stores its part over the last one's",
        "test_backward_values",
        "torch.empty((n_tiles, d), dtype → torch.zeros((1, d), dtype",
        "partial_ptr + tile * stride_pr + cols → partial_ptr + cols",
        named="tl.store(partial_ptrs, partial, mask=in_cols)",
    ),
    bug(
        "backward: grad_weight added to without atomics",
        "test_backward_values",
        "torch.empty((n_tiles, d), dtype → torch.zeros((1, d), dtype",
        "partial_ptr + tile * stride_pr + cols → partial_ptr + cols",
        "tl.store(partial_ptrs, partial, mask=in_cols) → "
        "tl.store(partial_ptrs, partial + tl.load(partial_ptrs, mask=in_cols, other=0.0), mask=in_cols)",
        line="tl.store(partial_ptrs, partial + tl.load(partial_ptrs",
    ),
    bug(
        "backward: rows past the end of grad_y unmasked",
        "test_backward_ragged",
        ", mask=in_rows, other=0.0 → ",
        named="grad_y = tl.load(grad_y_ptrs).to(tl.float32)",
    ),
    bug(
        "backward: rows past the end of x unmasked",
        "test_backward_ragged",
        "=mask, → =in_cols[None, :],",
        named="x = tl.load(row_ptrs + cols[None, :] * stride_",
    ),
    bug(
        "backward: grid rounded down",
        "test_backward_ragged",
        "n_tiles = triton.cdiv(n_rows, ROWS_TILE_SIZE) → n_tiles = n_rows // ROWS_TILE_SIZE",
        named="never stored",
    ),
    bug(
        "backward: grad_x stored past the last row",
        "test_backward_ragged",
        "(grad_x_ptr.dtype.element_ty), mask=mask → (grad_x_ptr.dtype.element_ty), mask=in_cols[None, :]",
        named="tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dty",
    ),
    bug(
        "backward: grad_y flattened with view",
        "test_backward_strides",
        "= grad_y.reshape(-1) → = grad_y.view(-1)",
        named="grad_y_rows = grad_y.view(-1)",
    ),
    bug(
        "backward: grad_y's stride taken to be 1",
        "test_backward_strides",
        "+ rows * stride_gyr → + rows",
        named="grad_y = tl.load(grad_y_ptrs, mask=in_rows, ot",
    ),
    bug(
        "backward: row offsets in int32",
        "test_backward_offsets",
        "tile = tl.program_id(0).to(tl.int64) → tile = tl.program_id(0)",
        named=("x = tl.load(row_ptrs + cols[None, :] * stride_", "an offset of 32 bits has wrapped"),
    ),
    bug(
        "backward: partial sums in the input's dtype",
        "test_backward_16_bit",
        "=torch.float32 → =x.dtype",
        named="weighted-sum-partial-sums-in-16-bits",
    ),
    bug(
        "backward: products in the input's dtype",
        "test_backward_16_bit",
        "grad_y[:, None] * x, → (grad_y[:, None] * x).to(x_ptr.dtype.element_ty).to(tl.float32),",
        named="weighted-sum-partial-sums-in-16-bits",
    ),
    bug(
        "backward: grad_weight always float32",
        "test_backward_16_bit",
        "grad_weight.to(weight.dtype) → grad_weight",
        named="grad_weight is float32",
    ),
    bug(
        "backward: grad_x always float32",
        "test_backward_16_bit",
        "grad_x = torch.empty((n_rows, d), dtype=x.dtype → grad_x = torch.empty((n_rows, d), dtype=torch.float32",
        named="grad_x is float32",
    ),
    bug(
        "backward: grad_weight not a number for an empty batch",
        "test_backward_contract",
        "partial_grad_w.sum(dim=0) → partial_grad_w.mean(dim=0) * n_tiles",
        named="a mean over no rows is 0/0",
    ),
    bug(
        "backward: grad_x written over x",
        "test_backward_contract",
        "grad_x = torch.empty((n_rows, d), dtype=x.dtype, device=x.device) → grad_x = x_matrix",
        named="tl.store(grad_x_ptrs, grad_x.to(grad_x_ptr.dty",
    ),
    bug(
        "backward: no checks",
        "test_backward_mistakes",
        "    _check_backward(grad_y, x, weight)\n → ",
        named="expected a ValueError before any launch",
    ),
)
