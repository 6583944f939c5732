"""Planted bugs of the weighted sum."""

from assignment.attacks.bugs import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

FORWARD = (
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)",
        named="x_rows = x.view(-1, d)",
    ),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        "x_ptr + rows[:, None] * stride_xr + cols[None, :] * stride_xd → x_ptr + rows[:, None] * stride_xr + cols",
        named="x is read as if its last stride were 1",
    ),
    bug(
        "forward: x's row stride taken to be d",
        "test_forward_strides",
        "[:, None] * stride_xr + → [:, None] * d +",
        named="x = tl.load(x_ptrs, mask=x_mask, other=0.0).to",
    ),
    bug(
        "forward: weight's stride taken to be 1",
        "test_forward_strides",
        "w_ptr + cols * stride_wd → w_ptr + cols",
        named="w = tl.load(w_ptrs, mask=col_mask, other=0.0).",
    ),
    bug(
        "forward: x's strides swapped",
        "test_forward_values",
        "(0), x_rows.stride(1), → (1), x_rows.stride(0),",
        named=("x = tl.load(x_ptrs, mask=x_mask, other=0.0).to", "x's last two strides are swapped"),
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "(0).to(tl.int64) * → (0) *",
        named=("x = tl.load(x_ptrs, mask=x_mask, other=0.0).to", "an offset of 32 bits has wrapped"),
    ),
    bug(
        "forward: columns past the end of x unmasked",
        "test_forward_ragged",
        "=x_mask, → =row_mask[:, None],",
        named="x = tl.load(x_ptrs, mask=row_mask[:, None], ot",
    ),
    bug(
        "forward: columns past the end of weight unmasked",
        "test_forward_ragged",
        ", mask=col_mask, other=0.0 → ",
        named="w = tl.load(w_ptrs).to(tl.float32)",
    ),
    bug(
        "forward: grid rounded down",
        "test_forward_ragged",
        "grid = (triton.cdiv(n_rows, ROWS_TILE_SIZE),) → grid = (n_rows // ROWS_TILE_SIZE,)",
        named="never stored",
    ),
    bug(
        "forward: only whole column tiles",
        "test_forward_ragged",
        "(0, d, D_TILE_SIZE):\n        cols = start → (0, d - D_TILE_SIZE + 1, D_TILE_SIZE):\n        cols = start",
        named="sum-of-one-tile-of-columns",
    ),
    bug(
        "forward: the sum of the last column tile only",
        "test_forward_values",
        "y += tl.sum → y = tl.sum",
        named="sum-of-one-tile-of-columns",
    ),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "(0),\n            n_rows, d,\n            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=D_TILE_SIZE → (0),\n"
        "            n_rows, d,\n            ROWS_TILE_SIZE=ROWS_TILE_SIZE, D_TILE_SIZE=d",
        named="cols = start + tl.arange(0, D_TILE_SIZE).to(tl",
    ),
    bug(
        "forward: products in the input's dtype",
        "test_forward_16_bit",
        "x = tl.load(x_ptrs, mask=x_mask, other=0.0).to(tl.float32) → x = tl.load(x_ptrs, mask=x_mask, other=0.0)",
        "w = tl.load(w_ptrs, mask=col_mask, other=0.0).to(tl.float32) → w = tl.load(w_ptrs, mask=col_mask, other=0.0)",
        "tl.sum(x * w[None, :], axis=1) → tl.sum((x * w[None, :]).to(tl.float32), axis=1)",
        named="sum-in-16-bits-of-a-row",
    ),
    bug(
        "forward: sum in the input's dtype",
        "test_forward_16_bit",
        "y += tl.sum(x * w[None, :], axis=1) → y = (y + tl.sum(x * w[None, :], "
        "axis=1)).to(y_ptr.dtype.element_ty).to(tl.float32)",
        named="sum-in-16-bits-of-a-row",
    ),
    bug(
        "forward: float32 x rounded to bfloat16",
        "test_forward_values",
        ".load(x_ptrs, mask=x_mask, other=0.0) → .load(x_ptrs, mask=x_mask, other=0.0).to(tl.bfloat16)",
        named="inputs-rounded",
    ),
    bug(
        "forward: y always float32",
        "test_forward_16_bit",
        "n_rows, dtype=x.dtype → n_rows, dtype=torch.float32",
        named="y is float32",
    ),
    bug(
        "forward: no x without a batch dimension",
        "test_forward_ragged",
        "return y.reshape(x.shape[:-1]) → return y.reshape(*x.shape[:-1])",
        named="return y.reshape(*x.shape[:-1])",
    ),
    bug(
        "forward: y kept from call to call",
        "test_forward_contract",
        "D_TILE_SIZE = 64\n\n → D_TILE_SIZE = 64\nBUFFERS = {}\n\n",
        "y = torch.empty(n_rows, dtype=x.dtype, device=x.device) → "
        "y = BUFFERS.setdefault((n_rows, x.dtype), torch.empty(n_rows, dtype=x.dtype, device=x.device))",
        named="the second call returned the memory of the fir",
    ),
    bug(
        "forward: an earlier result looked up by address",
        "test_forward_contract",
        "D_TILE_SIZE = 64\n\n → D_TILE_SIZE = 64\nRESULTS = {}\n\n",
        "    _check_forward(x, weight)\n →     _check_forward(x, weight)\n"
        "    key = x.data_ptr(), weight.data_ptr(), x.shape, x.stride()\n    if key in RESULTS:\n"
        "        return RESULTS[key].clone()\n",
        "    return y.reshape(x.shape[:-1]) →     RESULTS[key] = y.reshape(x.shape[:-1])\n"
        "    return RESULTS[key].clone()",
        named="right for the inputs of another call",
    ),
    bug(
        "forward: no checks",
        "test_forward_mistakes",
        "    _check_forward(x, weight)\n → ",
        named="expected a ValueError before any launch",
    ),
)

BACKWARD = (
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

AUTOGRAD = (
    bug(
        "autograd: not a Function",
        "test_gradients",
        "WeightedSum.apply(x, weight) → weighted_sum_forward(x, weight)",
        named="returned a tensor without a gradient",
    ),
    bug(
        "autograd: a tuple of one",
        "test_value",
        "WeightedSum.apply(x, weight) → (WeightedSum.apply(x, weight),)",
        named="expected one tensor, y; got a tuple of 1 tenso",
    ),
    bug(
        "autograd: gradients only if all are asked for",
        "test_gradients",
        "grad_x, grad_weight = weighted_sum_backward(grad_y, x, weight) → if not all(ctx.needs_input_grad):\n"
        "            return None, None\n        grad_x, grad_weight = weighted_sum_backward(grad_y, x, weight)",
        named="no gradient came for",
    ),
    bug(
        "autograd: backward runs once only",
        "test_gradients",
        "ctx.save_for_backward(x, weight) → ctx.saved = [(x, weight)]",
        "x, weight = ctx.saved_tensors → x, weight = ctx.saved.pop()",
        named="x, weight = ctx.saved.pop()",
    ),
    bug(
        "autograd: tensors kept in the class, not in the graph",
        "test_gradients",
        "ctx.save_for_backward(x, weight) → WeightedSum.saved = x, weight",
        "x, weight = ctx.saved_tensors → x, weight = WeightedSum.saved",
        named="another forward pass that came in between",
    ),
)

UNSEEN = (
    bug(
        "forward: y stored past the last row",
        "test_forward_ragged",
        ", mask=row_mask → ",
        named="tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty))",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_weighted_sum.py::test_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
        named="x is read",
    ),
    bug(
        "forward: a kernel whose result is thrown away",
        "test_forward_values",
        "return y.reshape(x.shape[:-1]) → return (x.float() * weight.float()).sum(-1).to(x.dtype)",
        computed="(x.float() * weight.float()).sum(-1)",
    ),
    bug(
        "backward: no kernel",
        "test_backward_values",
        "    _check_backward(grad_y, x, weight)\n →     _check_backward(grad_y, x, weight)\n"
        "    outer = grad_y.float()[..., None]\n    grad_w = (outer * x.float()).reshape(-1, x.shape[-1]).sum(0)\n"
        "    return (outer * weight.float()).to(x.dtype), grad_w.to(x.dtype)\n",
        computed="(outer * weight.float())",
    ),
)

RARE = (
    bug(
        "forward: what is next to zero taken for zero",
        "test_outliers",
        "        y += tl.sum( →         x = tl.where(tl.abs(x) < 1e-6, 0.0, x)\n        y += tl.sum(",
        named="small-taken-for-zero",
    ),
    bug(
        "backward: no x without a batch dimension",
        "test_backward_ragged",
        "    _check_backward(grad_y, x, weight)\n → "
        "    _check_backward(grad_y, x, weight)\n    n_batches = x.shape[-2]\n",
        named="n_batches = x.shape[-2]",
    ),
    bug(
        "autograd: another forward",
        "test_value",
        "        return weighted_sum_forward(x, weight) →         return weighted_sum_forward(x, weight.abs())",
        named="return weighted_sum_forward(x, weight.abs())",
    ),
)

BUGS = (*FORWARD, *BACKWARD, *AUTOGRAD, *UNSEEN, *RARE)
