"""Planted bugs of softmax: the forward pass."""

from assignment.attacks.bugs import bug

PROBLEM = "softmax"
FILES = ("practice/softmax.py",)
CAST = "y.to(y_ptr.dtype.element_ty), mask=y_mask"
DIVIDED = "y = tl.exp(x - shift) / total"
RESCALED = "total = total * tl.exp(row_max - shift) + tl.sum(powers, axis=0)"
SHIFT = '        shift = tl.where(new_max == float("-inf"), 0.0, new_max)'
LAST_SHIFT = '    shift = tl.where(row_max == float("-inf"), 0.0, row_max)'
MADE = "y = torch.empty((n_rows, d), dtype=x.dtype, device=x.device)"
LOADED = "x = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=col_mask"

BUGS = (
    bug(
        "forward: no maximum subtracted",
        "test_forward_outliers",
        f"{SHIFT} →         shift = 0.0",
        f"{LAST_SHIFT} →     shift = 0.0",
        RESCALED + " → total = total + tl.sum(powers, axis=0)",
        named="no-max",
    ),
    bug(
        "forward: the maximum starts at 0",
        "test_forward_outliers",
        'row_max = float("-inf")\n → row_max = 0.0\n',
        named="max-from-zero",
    ),
    bug(
        "forward: not divided", "test_forward_values", f"{DIVIDED} → y = tl.exp(x - shift)", named="softmax-not-divided"
    ),
    bug(
        "forward: base 2",
        "test_forward_values",
        "powers = tl.exp( → powers = tl.exp2(",
        "tl.exp(row_max - shift) → tl.exp2(row_max - shift)",
        "y = tl.exp(x → y = tl.exp2(x",
        named="softmax-base-2",
    ),
    bug(
        "forward: the sign",
        "test_forward_values",
        'other=float("-inf")).to(tl.float32) → other=float("inf")).to(tl.float32) * -1',
        named="negated",
    ),
    bug(
        "forward: the logarithm",
        "test_forward_values",
        f"{DIVIDED} → y = x - shift - tl.log(total)",
        named="the-logarithm",
    ),
    bug(
        "forward: divided by the mean",
        "test_forward_values",
        f"{DIVIDED} → y = tl.exp(x - shift) / (total / d)",
        named="mean-for-sum",
    ),
    bug(
        "forward: rows padded with zeros",
        "test_forward_ragged",
        f'{LOADED}, other=float("-inf") → {LOADED}, other=0.0',
        named="padding-in-the-sum",
    ),
    bug(
        "forward: rows padded with their maximum",
        "test_forward_ragged",
        "powers = tl.exp(x - shift) → powers = tl.exp(tl.where(col_mask, x - shift, 0.0))",
        named="padding-as-large-as-the-max",
    ),
    bug(
        "forward: the sum not rescaled",
        "test_forward_wide",
        f"{RESCALED} → total = total + tl.sum(powers, axis=0)",
        named="softmax-sum-not-rescaled",
    ),
    bug(
        "forward: the sum of the last tile",
        "test_forward_wide",
        f"{RESCALED} → total = tl.sum(powers, axis=0)",
        named="a-part-of-the-row",
    ),
    bug(
        "forward: the maximum of the last tile",
        "test_forward_outliers",
        "new_max = tl.maximum(row_max, tl.max(x, axis=0)) → new_max = tl.max(x, axis=0)",
        named="max-of-a-tile",
    ),
    bug(
        "forward: wide rows end after 8192 columns",
        "test_forward_wide",
        "    for start in range(0, d, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        y_mask → "
        "    for start in range(0, D_TILE_SIZE, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n        y_mask",
        line="never stored",
    ),
    bug(
        "forward: −∞ minus −∞ at the beginning of a row",
        "test_forward_infinity",
        f"{SHIFT} →         shift = new_max",
        named="begun-with-nan",
    ),
    bug(
        "forward: a row of −∞ divided by 0",
        "test_forward_infinity",
        "    total = tl.where(total > 0, total, 1.0)\n → ",
        named=("0/0", DIVIDED),
    ),
    bug(
        "forward: −∞ cut off",
        "test_forward_infinity",
        "new_max = tl.maximum(row_max, → x = tl.maximum(x, -10.0)\n        new_max = tl.maximum(row_max,",
        named="limited",
    ),
    bug(
        "forward: columns past the end stored",
        "test_forward_ragged",
        f"{CAST} → y.to(y_ptr.dtype.element_ty)",
        line="tl.store(y_ptrs, y.to(",
    ),
    bug(
        "forward: columns past the end loaded",
        "test_forward_ragged",
        f'{LOADED}, other=float("-inf")).to(tl.float32) → '
        'x = tl.where(col_mask, tl.load(x_ptr + row * stride_xr + cols * stride_xd).to(tl.float32), float("-inf"))',
        line="x = tl.where(col_mask, tl.load(x_ptr",
    ),
    bug(
        "forward: d must be a power of two",
        "test_forward_ragged",
        "    if n_rows > 0:\n        d_tile_size = min(triton.next_power_of_2(d), MAX_D_TILE_SIZE)\n        _forward → "
        "    if n_rows > 0:\n        d_tile_size = min(d, MAX_D_TILE_SIZE)\n        _forward",
        named="must be a power of 2",
    ),
    bug(
        "forward: the total in the dtype of x",
        "test_forward_16_bit",
        f"{RESCALED} → {RESCALED}\n        total = total.to(x_ptr.dtype.element_ty).to(tl.float32)",
        named="softmax-sum-in-16-bits",
    ),
    bug(
        "forward: always float32",
        "test_forward_16_bit",
        "y = torch.empty((n_rows, d), dtype=x.dtype → y = torch.empty((n_rows, d), dtype=torch.float32",
        named="y is float32",
    ),
    bug(
        "forward: x's last stride taken to be 1",
        "test_forward_strides",
        f"{LOADED} → x = tl.load(x_ptr + row * stride_xr + cols, mask=col_mask",
        named=("x is read as if its last stride were 1", "x = tl.load(x_ptr + row * stride_xr + cols,"),
    ),
    bug(
        "forward: x flattened with view",
        "test_forward_strides",
        "x_rows = x.reshape(-1, d) → x_rows = x.view(-1, d)",
        named="x_rows = x.view(-1, d)",
    ),
    bug(
        "forward: row offsets in int32",
        "test_forward_offsets",
        "    row = tl.program_id(0).to(tl.int64)\n    row_max →     row = tl.program_id(0)\n    row_max",
        named="x = tl.load(x_ptr + row * stride_xr",
    ),
    bug("forward: in place", "test_forward_contract", f"{MADE} → y = x_rows", line="tl.store(y_ptrs, y.to("),
    bug(
        "forward: an empty batch is launched",
        "test_forward_contract",
        "    n_rows = x_rows.shape[0]\n → "
        "    n_rows = x_rows.shape[0]\n    if n_rows == 0:\n        raise RuntimeError('no rows')\n",
        named="raise RuntimeError('no rows')",
    ),
    bug("forward: no checks", "test_forward_mistakes", "    _check_forward(x)\n → ", named="expected a ValueError"),
    bug(
        "forward: x read twice although it fits",
        "test_forward_traffic",
        "        if not IS_ONE_TILE:\n            x = →         if True:\n            x =",
        named="x is read",
    ),
    bug(
        "forward: x copied to float32 first",
        "test_forward_traffic",
        "x_rows = x.reshape(-1, d) → x_rows = x.reshape(-1, d).float()",
        named="x is read",
    ),
    bug(
        "forward: the maximum by a walk of its own",
        "test_forward_wide_traffic",
        "    total = 0.0\n    x = → "
        "    for start in range(0, d, D_TILE_SIZE):\n"
        "        cols = start + tl.arange(0, D_TILE_SIZE).to(tl.int64)\n"
        "        ahead = tl.load(x_ptr + row * stride_xr + cols * stride_xd, mask=cols < d, other=float('-inf'))\n"
        "        row_max = tl.maximum(row_max, tl.max(ahead.to(tl.float32), axis=0))\n"
        "    total = 0.0\n    x =",
        named="x is read 3",
    ),
    bug(
        "forward: divided by PyTorch",
        "test_forward_values",
        "    return y.reshape(x.shape)\n →     return (y / y.sum(-1, keepdim=True)).reshape(x.shape)\n",
        computed="return (y / y.sum(",
    ),
)
