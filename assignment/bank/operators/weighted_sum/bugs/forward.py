"""Planted bugs of the weighted sum: the forward pass."""

from assignment.bank.operators.edits import bug

PROBLEM = "weighted_sum"
FILES = ("weighted_sum.py",)

BUGS = (
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
